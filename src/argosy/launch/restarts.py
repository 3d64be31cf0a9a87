"""Whether and how a run goes on after a fault: the recovery policy, shown what this launcher knows."""

import time

from argosy.checkpoint.commit import set_aside
from argosy.checkpoint.folders import saved_steps
from argosy.checkpoint.snapshot_host import SnapshotHost, host_name, newest_common
from argosy.errors import StoppedError
from argosy.journal.clock import mono_ns
from argosy.launch.append import append_records
from argosy.launch.supervise import Failure
from argosy.policy.action import Action, RollBack, Stop
from argosy.policy.event import RanksLost
from argosy.policy.recovery import RecoveryPolicy, Rung
from argosy.policy.view import Tier, View
from argosy.recipe.schema import Recipe
from argosy.registry.run_folder import RunFolder

RUNGS: tuple[Rung, ...] = ("restart_workers", "roll_back")
"""What one machine can do about lost ranks, cheapest first."""


class Restarts:
    """Counts restarts without a new committed step, and faults that come back at the same place."""

    def __init__(self, run: RunFolder, recipe: Recipe, world: int):
        self._run = run
        self._policy = RecoveryPolicy.from_recipe(recipe.resilience, RUNGS)
        self._world = world
        self._restarts = 0
        self._adopted: SnapshotHost | None = None
        self._committed = self._newest()
        self._places: list[tuple[str, int | None, int | None]] = []

    def decide(self, failure: Failure) -> Action:
        """What to do now; a rank's own word that another start is useless stands."""
        incident = failure.incident
        committed = self._newest()
        if committed > self._committed:
            self._committed, self._restarts, self._places = committed, 0, []
        good_until = failure.cause.good_until
        steps = self._committed_steps(good_until)
        place = (incident.kind, incident.rank, incident.step if good_until is None else good_until)
        event = RanksLost(
            ranks=() if incident.rank is None else (incident.rank,),
            good_until=good_until,
            out_of_memory=incident.kind == "out_of_memory",
            at_this_place=self._places.count(place),
        )
        view = View(
            now_s=time.monotonic(),
            step=incident.step or 0,
            step_time_s=failure.step_s,
            committed_step=steps,
            restarts_since_commit=self._restarts,
            world_size=self._world,
        )
        action = self._policy.decide(view, event) if failure.told is None else Stop(failure.told, incident.cause)
        self._restarts += 1
        self._places.append(place)
        if isinstance(action, RollBack):
            self._roll_back(action.step, incident.attempt)
            if failure.cause.bad_until is not None and good_until is not None:
                self._step_over(good_until, failure.cause.bad_until, incident.number)
        return action

    def _roll_back(self, step: int, attempt: int) -> None:
        """Let the next attempt start from the checkpoint of `step`: later states may be what makes it fail."""
        host = self._host()
        if host is not None:
            host.drop()
        for later in saved_steps(self._run.checkpoints):
            if later > step:
                set_aside(self._run.checkpoints, later, attempt)

    def _step_over(self, first: int, last: int, incident: int) -> None:
        """Let the ranks leave out the batches that steps `first` to `last` had."""
        decision = {"k": "decision", "t": mono_ns(), "wall": time.time_ns(), "what": "step_over"}
        append_records(self._run.decisions_file, [decision | {"first": first, "last": last, "incident": incident}])

    def close(self) -> None:
        """Let go of the snapshot host, which ends by itself when nobody comes for it."""
        if self._adopted is not None:
            self._adopted.close()
            self._adopted = None

    def end_host(self) -> None:
        """A finished run needs no snapshots: their host goes at once, not when it finds out."""
        host = self._host()
        if host is not None:
            host.stop()
            self._adopted = None

    def _host(self) -> SnapshotHost | None:
        """The process that keeps the ranks' snapshots; as long as it is adopted it outlives them."""
        if self._adopted is None:
            self._adopted = SnapshotHost.adopt(host_name(self._run.path, self._run.info.id))
        return self._adopted

    def _committed_steps(self, good_until: int | None = None) -> dict[Tier, int]:
        """Newest step of each tier; of those at or below `good_until` only, if that is given."""
        steps: dict[Tier, int] = {}
        storage = [step for step in saved_steps(self._run.checkpoints) if good_until is None or step <= good_until]
        if storage:
            steps["storage"] = storage[0]
        elif good_until is not None and not saved_steps(self._run.checkpoints):
            steps["storage"] = 0  # nothing has been saved, so little is lost with the beginning
        if good_until is not None:
            return steps
        try:
            host = self._host()
            held = [one for one in host.held() if one.rank < self._world] if host is not None else []
        except StoppedError:  # it is gone, and the snapshots with it
            self.close()
            return steps
        if len(held) == self._world and (step := newest_common(held)) is not None:
            steps["memory"] = step
        return steps

    def _newest(self) -> int:
        return max(self._committed_steps().values(), default=0)
