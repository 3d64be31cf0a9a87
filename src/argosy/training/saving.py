"""What the loop keeps of its state: snapshots in memory, checkpoints on storage, copies elsewhere.

Each method is called at the same step on all ranks.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch.distributed as dist

from argosy.checkpoint.background import BackgroundSave, Saved
from argosy.checkpoint.confirm import confirm
from argosy.checkpoint.copying import Copied, Copying
from argosy.checkpoint.fence import Fenced
from argosy.checkpoint.folders import step_folder
from argosy.checkpoint.manifest import Manifest
from argosy.checkpoint.orders import Tidy
from argosy.checkpoint.plan import Plan, make_plan
from argosy.checkpoint.retention import tidy
from argosy.checkpoint.save import SaveError, save_plan
from argosy.checkpoint.state import Tree, refresh
from argosy.journal.recorder import Recording
from argosy.parallel.control import sum_over_ranks
from argosy.policy.retention import RetentionPolicy
from argosy.recipe.schema import CheckpointTable
from argosy.training.memory_tier import Memory
from argosy.training.phases import Phases
from argosy.training.state import LoopState
from argosy.training.steering import Pace

TOLD_EVERY_S = 1.0
"""Snapshots that follow each other faster are not told to the journal one by one."""


@dataclass
class Saving:
    """The tiers of one rank. `manifest` is that of this attempt; step and training state are filled in at each save."""

    table: CheckpointTable
    group: dist.ProcessGroup | None
    tree: Tree
    plan: Plan
    manifest: Manifest
    checkpoints: Path
    pace: Pace
    recorder: Recording
    phases: Phases
    say: Callable[[str], None]
    committed_step: int = 0
    """Newest step on storage."""
    memory: Memory | None = None
    """None where there is none for snapshots, or nobody wants them."""
    background: BackgroundSave | None = None
    """None where ranks wait until a save is written."""
    copying: Copying | None = None
    """On rank 0, where the recipe names a third tier."""
    snapshot_step: int | None = field(default=None, init=False)
    """Newest step in memory that outlives the ranks; 0 before the first, None where there is no such memory."""
    _held_back: int = field(default=-1, init=False)
    """Step of the last failed save: it is not tried again before the next step."""
    _owed: bool = field(default=False, init=False)
    """A save was due while another was under way."""
    _began_s: float = field(default=0.0, init=False)
    _blocked_s: float = field(default=0.0, init=False)
    _told_s: float = field(default=float("-inf"), init=False)

    def __post_init__(self) -> None:
        if self.memory is not None and self.memory.host is not None:
            self.snapshot_step = 0

    @property
    def tried_step(self) -> int:
        """Newest step of which a save was tried: the interval counts from there."""
        return max(self.committed_step, self._held_back, self.saving_step or 0)

    @property
    def saving_step(self) -> int | None:
        """Step of the save that is being written in the background."""
        return None if self.background is None else self.background.step

    @property
    def report(self) -> tuple[float, float]:
        """What this rank adds to the sum that decides whether a save in the background is complete."""
        return (0.0, 0.0) if self.background is None else self.background.report

    def go_on(self, state: LoopState, saved: tuple[float, float], *, save: bool, snapshot: bool) -> float:
        """Do what is due before a step; how long it took [s]. `saved` is the sum of all ranks' reports, the wishes are
        those of all."""
        begin_s = time.monotonic()
        if self.background is not None and (ended := self.background.advance(*saved)):
            self._end(ended)
        if save or (self._owed and self.saving_step is None):
            self.save(state)
        elif snapshot:
            self.snapshot(state)
        if self.copying is not None and (copied := self.copying.go_on()):
            self._copied(copied)
        return time.monotonic() - begin_s

    def snapshot(self, state: LoopState) -> None:
        """Copy the state into memory that outlives this process."""
        begin_s = time.monotonic()
        with self.phases("ckpt_block", state.step):
            self._take(state)
        self.pace.snapshot_s = time.monotonic() - begin_s

    def save(self, state: LoopState) -> None:
        """Save the state after `state.step` updates, unless it is saved already, or begin to.

        A save that fails is said, and tried again when the next is due. One that is due while another is under way
        begins when that has ended, with the state of then.
        """
        if state.step in (0, self.committed_step):
            return
        if self.background is None:
            self._save_now(state)
        elif self.saving_step is None:
            self._begin(state)
        elif not self._owed:
            self._owed = True
            self._event(state.step, "coalesced", why=f"step {self.saving_step} is still being written")
            self.say(f"saving takes longer than its interval: step {self.saving_step} is still being written")

    def finish(self, state: LoopState) -> None:
        """Put the state after `state.step` updates on storage and wait for it. Raises SaveError if that fails."""
        if self.background is None:
            if state.step not in (0, self.committed_step):
                self._save_now(state, final=True)
            return
        with self.phases.window("ckpt_block", state.step):
            self._wait(final=self.saving_step == state.step)
            if state.step not in (0, self.committed_step):
                self._begin(state)
                self._wait(final=True)

    def close(self) -> None:
        """All is on storage: end the writer, which finishes what it does, wait for the last copy, and give the memory
        back."""
        if self.background is not None:
            self.background.close()
        for copied in self.copying.finish() if self.copying is not None else ():
            self._copied(copied)
        if self.memory is not None:
            self.memory.let_go()

    # -- while the ranks wait ------------------------------------------------------------------------

    def _save_now(self, state: LoopState, *, final: bool = False) -> None:
        step, begin_s = state.step, time.monotonic()
        with self.phases.window("ckpt_block", step):
            self._event(step, "start")
            refresh(self.tree)
            try:
                save_plan(self.checkpoints, self.plan, self._manifest(state), self.group)
            except SaveError as error:
                self._failed(step, error, error.what)
                if final:
                    raise
                return
            self._committed(step)
            if self._leads:
                confirm(self.checkpoints, step, self.manifest.generation)
                tidy(self.checkpoints, self._retention, self.manifest.generation)
        self.pace.save_s = time.monotonic() - begin_s
        self.phases.saved(step, step_folder(self.checkpoints, step))

    # -- in the background ---------------------------------------------------------------------------

    def _begin(self, state: LoopState) -> None:
        assert self.background is not None
        self._began_s = time.monotonic()
        self._owed = False
        with self.phases("ckpt_block", state.step):
            self._event(state.step, "start")
            index = self._take(state)
            assert index is not None, "a buffer is free when no save is under way"
            self.background.begin(self._manifest(state), index)
        self._blocked_s = time.monotonic() - self._began_s

    def _end(self, saved: Saved, *, final: bool = False) -> None:
        begin_s = time.monotonic()
        with self.phases("ckpt_block", saved.step):
            if saved.error is not None:
                self._failed(saved.step, saved.error, str(saved.error), final=final)
                return
            self._committed(saved.step)
            assert self.background is not None
            if self._leads:
                self.background.writer.order(Tidy(saved.step, self._retention))
        now_s = time.monotonic()
        self.pace.saved(self._blocked_s + now_s - begin_s, now_s - self._began_s)
        self.phases.saved(saved.step, step_folder(self.checkpoints, saved.step))

    def _wait(self, *, final: bool) -> None:
        """Until the save under way has ended, if there is one."""
        assert self.background is not None
        while self.saving_step is not None:
            self.background.wait()
            done, failed = sum_over_ranks(self.background.report, self.group)
            if ended := self.background.advance(done, failed):
                self._end(ended, final=final)

    def _take(self, state: LoopState) -> int | None:
        """The buffer that holds the state after `state.step` updates."""
        assert self.memory is not None
        refresh(self.tree)
        index = self.memory.snapshots.take(state.step, {"training": state.to_dict()})
        if self.snapshot_step is not None and index is not None:
            self.snapshot_step = state.step
            if time.monotonic() >= self._told_s + TOLD_EVERY_S:
                self._told_s = time.monotonic()
                self._event(state.step, "committed", tier="memory")
        return index

    # -- what all ways share -------------------------------------------------------------------------

    @property
    def _leads(self) -> bool:
        return self.plan.dcp_metadata is not None

    def _manifest(self, state: LoopState) -> Manifest:
        return replace(
            self.manifest,
            step=state.step,
            training=state.to_dict(),
            data_position=None if state.position is None else state.position.index,
            created_wall_s=time.time(),
        )

    def _committed(self, step: int) -> None:
        self._event(step, "committed")
        self.committed_step = step
        if self.copying is not None:
            self.copying.offer(step)

    def _copied(self, copied: Copied) -> None:
        if copied.why is None:
            self._event(copied.step, "committed", tier="copy")
        else:
            self._event(copied.step, "failed", tier="copy", why=copied.why)
            self.say(f"no copy of step {copied.step}: {copied.why}")

    def _failed(self, step: int, error: Exception, why: str, *, final: bool = False) -> None:
        """Note it; raise what ends the run."""
        self._event(step, "failed", why=why)
        if isinstance(error, Fenced):
            raise error
        if not isinstance(error, SaveError):
            error = SaveError(
                f"checkpoint of step {step} not written: {why}",
                where=str(self.checkpoints),
                do="earlier checkpoints are kept; free space or mend the storage",
            )
        if final:
            raise error
        self._held_back = step
        self.say(f"{error}; training goes on and tries again")

    def _event(self, step: int, phase: str, tier: str = "storage", **more: str) -> None:
        self.recorder.event("ckpt", id=f"step-{step}", s=step, tier=tier, ph=phase, **more)

    @property
    def _retention(self) -> RetentionPolicy:
        return RetentionPolicy.from_recipe(self.table)


def open_saving(
    table: CheckpointTable,
    checkpoints: Path,
    manifest: Manifest,
    tree: Tree,
    group: dist.ProcessGroup | None,
    memory: Memory | None,
    committed_step: int,
    pace: Pace,
    recorder: Recording,
    phases: Phases,
    say: Callable[[str], None],
) -> Saving:
    """The tiers that the recipe wants, for an attempt whose newest step on storage is `committed_step`; collective."""
    plan = make_plan(tree, group)
    background, copying = None, None
    if memory is not None and table.background:
        background = BackgroundSave(memory.snapshots, plan, checkpoints, manifest.generation, group)
        background.writer.start()
    if table.copy_to is not None and plan.dcp_metadata is not None:
        copying = Copying(checkpoints, table.copy_to, manifest.run_id, table.copy_every_s, table.keep_last)
    return Saving(
        table=table,
        group=group,
        tree=tree,
        plan=plan,
        manifest=manifest,
        checkpoints=checkpoints,
        pace=pace,
        recorder=recorder,
        phases=phases,
        say=say,
        committed_step=committed_step,
        memory=memory,
        background=background,
        copying=copying,
    )
