"""A job at work and at a standstill: its steps, saves and restarts in time, and what is booked for them.

What lies between two events is worked out at once (:mod:`argosy.simulator.pattern`).
"""

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

from argosy.errors import Exit
from argosy.policy.action import Action, Stop
from argosy.policy.event import BeforeStep, Event
from argosy.policy.view import Tier, View
from argosy.simulator.failures import Failures
from argosy.simulator.job import Job
from argosy.simulator.lineage import Lineage, Saves, Steps
from argosy.simulator.nodes import Nodes
from argosy.simulator.pattern import Pattern, ask
from argosy.simulator.policies import Policies
from argosy.simulator.record import Attempt, Block, Decided, Record, SaveMade, Span
from argosy.simulator.strikes import Strikes

SOON_S = 1e-9


class Work:
    """The state of a job. :class:`~argosy.simulator.course.Course` says what befalls it."""

    def __init__(
        self,
        job: Job,
        failures: Failures,
        policies: Policies,
        *,
        horizon_s: float,
        seed: int = 0,
        detailed: bool = False,
        strikes: Strikes | None = None,
    ):
        self.job, self.failures, self.policies = job, failures, policies
        self.horizon_s = horizon_s
        self.now_s = 0.0
        self.step = 0
        self.saved: dict[Tier, int] = {}
        """Newest step whose save was begun, by tier."""
        self.tries = 0
        """Restarts since the last save to storage."""
        self.line = Lineage()
        self.nodes = Nodes(job.nodes, job.spares)
        self.record = Record(detailed)
        self.ended: Stop | None = None
        self._strikes = strikes or Strikes(failures, job, seed, horizon_s)
        self._agenda: list[tuple[float, int, str, Any]] = []
        self._count = 0
        self._down: list[tuple[str, float]] = [(name, s) for name, s in job.restart["requeue"].items() if s]
        """What is left of a restart: (phase, seconds). Empty while the job trains."""
        self._parked = False
        """It waits for machines."""
        self._away: dict[int, tuple[float, int]] = {}
        """Replica group → (since when it is away, its number among those that are)."""
        self._starting: dict[int, float] = {}
        self._gone = 0
        """Machines that are not paid, because their owner has them back."""
        self._patterns: dict[tuple[Any, ...], Pattern] = {}
        self._grid = math.lcm(*(p.every_steps or 1 for p in policies.saves)) if policies.saves else 1
        self._restart_cost_s = {rung: job.restart_s(rung) for rung in job.restart}
        self._broken_off: Block | None = None
        """The step that the last fault cut off."""
        self._attempt: Attempt | None = None
        self._attempts = 0
        self._since_attempt_s = 0.0
        """Device-seconds between attempts so far."""
        self._restored: tuple[int, Tier, str] | None = None
        self._paid_changed()

    # -- training ------------------------------------------------------------------------------------

    @property
    def world(self) -> int:
        """Ranks of the job, with those of groups that are away."""
        return self.nodes.active * self.job.per_node

    @property
    def group_ranks(self) -> int:
        return self.job.gpus // self.job.replica_groups

    @property
    def devices(self) -> int:
        """Devices that train."""
        return self.world - len(self._away) * self.group_ranks

    @property
    def _step(self) -> Steps:
        """The next step, of which there may be many alike."""
        job = self.job
        work_s = job.step_time_s * job.gpus / self.devices
        eval_s = job.eval_s / job.eval_every_steps if job.eval_every_steps else 0.0
        return Steps(self.step, 1, work_s, work_s * self.nodes.slowdown, eval_s, self.devices)

    def view(self, step: int, saved: dict[Tier, int], step_s: float, now_s: float | None = None) -> View:
        """What the policies may know."""
        now_s = self.now_s if now_s is None else now_s
        return View(
            now_s=now_s,
            step=step,
            step_time_s=step_s,
            save_cost_s={tier: save.block_s for tier, save in self.job.saves.items()},
            restart_cost_s=self._restart_cost_s,
            failure_rate_per_s=self.failures.per_s(self.nodes.active),
            committed_step=dict(saved),
            restarts_since_commit=self.tries,
            spares=len(self.nodes.idle) * self.job.per_node,
            world_size=self.devices,
            price_per_s=self.job.price_per_s(now_s),
        )

    def _train_until(self, until_s: float, *, finish_step: bool) -> None:
        """Train; at `until_s` the step or save under way is finished first, or is cut off."""
        stop = self._budget_stop(until_s)
        if stop is not None:
            until_s, finish_step = stop[0], True
        while self.now_s < until_s - SOON_S:
            step = self._step
            pattern, recurs = self._pattern(step.step_s)
            room = math.inf if self.job.steps is None else self.job.steps - self.step
            left_s = until_s - self.now_s
            if pattern.tiers and pattern.steps <= room and pattern.length_s <= left_s:
                whole = int(min(left_s // pattern.length_s, room / pattern.steps)) if recurs else 1
                self._book(pattern, step, whole, len(pattern.tiers), pattern.steps, pattern.length_s)
            elif room < math.inf and pattern.after_s(int(room)) <= left_s + SOON_S:
                elapsed_s = pattern.after_s(int(room))
                self._book(pattern, step, 1, _saves_before(pattern, int(room)), int(room), elapsed_s)
                self.ended = Stop(Exit.DONE, f"all {self.job.steps} steps are done")
                return
            else:
                self._part(pattern, step, left_s, finish_step)
                break
        if stop is not None:
            self.ended = stop[1]

    def _pattern(self, step_s: float) -> tuple[Pattern, bool]:
        """What comes until the next save to storage, and whether the same comes after it."""
        at = self.step
        since = tuple(at - self.saved.get(tier, 0) for tier in self.job.saves)
        key = (since, at % self._grid, step_s, self.devices)
        pattern = self._patterns.get(key)
        if pattern is None:
            pattern = ask(
                self.policies.saves, self.job.saves, at, self.saved, lambda step, saved: self.view(step, saved, step_s)
            )
            self._patterns[key] = pattern
        ends_on_storage = bool(pattern.tiers) and pattern.tiers[-1] == "storage"
        return pattern, ends_on_storage and not any(since) and pattern.steps % self._grid == 0

    def _part(self, pattern: Pattern, step: Steps, left_s: float, finish_step: bool) -> None:
        """Less than a whole pattern."""
        saves, steps, rest_s = pattern.at(left_s)
        saving = pattern.in_save(saves, steps)
        elapsed_s = left_s - rest_s
        if finish_step and rest_s > SOON_S:
            saves, steps = (saves + 1, steps) if saving else (saves, steps + 1)
            elapsed_s = float(pattern.ends_s[saves - 1]) if saving else pattern.after_s(steps)
            rest_s = 0.0
        self._book(pattern, step, 1, saves, steps, elapsed_s)
        if rest_s > SOON_S:
            begin_s, end_s = self.now_s, self.now_s + rest_s
            account = "stability.ckpt_block" if saving else "stability.lost_work"
            self._spend(account, rest_s, self.devices)
            if self._attempt and saving:
                self._attempt.spans.append(Span("ckpt_block", begin_s, end_s))
            self._broken_off = None if saving else Block(begin_s, end_s, self.step, 1, 0.0, 0.0, len(self._away))
            self.now_s = end_s

    def _book(self, pattern: Pattern, step: Steps, times: int, saves: int, steps: int, elapsed_s: float) -> None:
        """`saves` and `steps` of a pattern are done, `times` times."""
        if self.record.detailed:
            for _ in range(times):
                self._book_detail(pattern, step, saves, steps, elapsed_s)
                self._advance(pattern, step, 1, saves, steps, elapsed_s)
        else:
            self._advance(pattern, step, times, saves, steps, elapsed_s)

    def _advance(self, pattern: Pattern, step: Steps, times: int, saves: int, steps: int, elapsed_s: float) -> None:
        job, count = self.job, steps * times
        if count:
            self.line.add(Steps(self.step, count, step.work_s, step.slow_s, step.eval_s, step.devices))
        for save in range(saves):
            tier, at = pattern.tiers[save], self.step + int(pattern.offsets[save])
            self.record.saves[tier] += times
            self._spend("stability.ckpt_block", job.saves[tier].block_s * times, step.devices)
            counts_s = self.now_s + float(pattern.ends_s[save]) - job.saves[tier].block_s + job.saves[tier].durable_s
            again_s = (times - 1) * elapsed_s
            if tier == "storage":
                self.line.saved(Saves(at, steps, times, counts_s, elapsed_s))
                self.tries = 0
                self.saved = dict.fromkeys(job.saves, at + (times - 1) * steps)
            else:
                self.saved["memory"] = at + (times - 1) * steps
            if "memory" in job.saves:
                in_memory_s = counts_s if tier == "memory" else self.now_s + float(pattern.ends_s[save])
                self.line.copied(at + (times - 1) * steps, in_memory_s + again_s)
        self.step += count
        self.now_s += times * elapsed_s

    def _book_detail(self, pattern: Pattern, step: Steps, saves: int, steps: int, elapsed_s: float) -> None:
        attempt = self._attempt
        assert attempt is not None
        done, at_s = 0, self.now_s
        for save in range(saves + 1):
            upto = int(pattern.offsets[save]) if save < saves else steps
            if upto > done:
                last = save == saves  # ends where the clock will stand, to the last bit
                end_s = self.now_s + elapsed_s if last else at_s + (upto - done) * step.step_s
                slow_s, eval_s = (upto - done) * step.slow_s, (upto - done) * step.eval_s
                block = Block(at_s, end_s, self.step + done, upto - done, slow_s, eval_s, len(self._away))
                attempt.blocks.append(block)
                at_s, done = end_s, upto
            if save < saves:
                tier, times = pattern.tiers[save], self.job.saves[pattern.tiers[save]]
                last = save == saves - 1 and steps == done
                end_s = self.now_s + elapsed_s if last else at_s + times.block_s
                attempt.saves.append(SaveMade(at_s, end_s, self.step + done, tier, at_s + times.durable_s))
                at_s = end_s

    def _budget_stop(self, until_s: float) -> tuple[float, Stop] | None:
        """When the budget ends the run before `until_s`, and its word; what is paid only grows, so it is bisected."""
        budget = self.policies.budget
        if budget.money is None and budget.device_hours is None and budget.deadline_s is None:
            return None
        step_s = self._step.step_s
        paid_s, money = self._paid_until(self.now_s)
        devices = self.job.devices - self._gone * self.job.per_node

        def asked(at_s: float) -> Action:
            more_s = at_s - self.now_s
            cost = None if money is None else money + self._cost(self.now_s, at_s, devices)
            event = BeforeStep(round((paid_s + more_s * devices) * 1e9), cost, at_s)
            return budget.decide(self.view(self.step, self.saved, step_s, at_s), event)

        if not isinstance(asked(until_s), Stop):
            return None
        low, high = self.now_s, until_s
        while high - low > step_s / 100:
            middle = (low + high) / 2
            low, high = (low, middle) if isinstance(asked(middle), Stop) else (middle, high)
        stop = asked(high)
        assert isinstance(stop, Stop)
        self._decided("budget", BeforeStep(round(paid_s * 1e9), money, high), stop)
        return high, stop

    # -- standing still ------------------------------------------------------------------------------

    def _wait_until(self, until_s: float) -> None:
        """Restart, as far as it gets until then; a job that waits for machines cannot start."""
        while self._down and self.now_s < until_s - SOON_S:
            phase, left_s = self._down[0]
            if self._parked and phase not in ("detect", "wait"):
                break
            spent_s = min(left_s, until_s - self.now_s)
            self._stand("reschedule" if phase == "wait" else phase, spent_s)
            if spent_s >= left_s - SOON_S:
                self._down.pop(0)
                if not self._down and not self._parked:
                    self._begin()
            else:
                self._down[0] = (phase, left_s - spent_s)
        if self._parked and self.now_s < until_s - SOON_S:
            self._stand("reschedule", until_s - self.now_s)

    def _stand(self, phase: str, seconds: float) -> None:
        begin_s, end_s = self.now_s, self.now_s + seconds
        gap = "provision" if not self._attempts else "reschedule"
        if phase == "detect":
            if self._attempt:
                self._attempt.end_s = end_s
            else:
                phase = gap
        elif phase == "reschedule":
            self._attempt = None
            phase = gap
        else:
            if self._attempt is None or self._attempt.end_s:
                self._new_attempt()
            assert self._attempt is not None
            self._attempt.spans.append(Span(f"startup.{phase}", begin_s, end_s))
        if self._attempt is not None:
            devices = self._attempt.world
        else:  # between attempts nobody tells the places that the next one will not use from the others
            devices = self.job.gpus - max(0, self._gone - self.job.spares) * self.job.per_node
            self._since_attempt_s += seconds * devices
        self._spend(f"stability.{phase}", seconds, devices)
        self.now_s = end_s

    def _new_attempt(self) -> None:
        self._since_attempt_s = 0.0
        self._attempts += 1
        self._attempt = Attempt(self.now_s, self.world)
        if self.record.detailed:
            self.record.attempts.append(self._attempt)

    def _groups_without_machines(self) -> set[int]:
        """Replica groups that cannot start."""
        return {place * self.job.per_node // self.group_ranks for place in self.nodes.empty}

    def _begin(self) -> None:
        """The first step comes next; groups that lack a machine are away from the start."""
        self._away = {group: (self.now_s, i) for i, group in enumerate(sorted(self._groups_without_machines()))}
        if self._attempt is None or self._attempt.end_s:
            self._new_attempt()
        assert self._attempt is not None
        self._attempt.restored, self._attempt.restored_s = self._restored, self.now_s

    def _die(self, reason: str) -> None:
        if self._attempt and not self._attempt.end_s:
            self._attempt.alive_s = self._attempt.end_s = self.now_s
            self._attempt.exit_code, self._attempt.reason = 1, reason

    def _end_attempt(self, code: Exit, reason: str) -> None:
        """Its processes end as somebody meant them to."""
        if self._attempt:
            self._attempt.alive_s = self._attempt.end_s = self.now_s
            self._attempt.exit_code, self._attempt.reason = int(code), reason
            self._attempt = None

    def _stall(self, seconds: float) -> None:
        """All that train wait for each other."""
        if seconds <= 0:
            return
        self._spend("stability.rendezvous", seconds, self.devices)
        if self._attempt:
            self._attempt.spans.append(Span("startup.rendezvous", self.now_s, self.now_s + seconds))
        self.now_s += seconds

    def _returned(self, group: int) -> None:
        since_s, number = self._away.pop(group)
        self._starting.pop(group, None)
        left_s = self.now_s - since_s
        phases = self.job.restart["restart_workers"]
        start_s = sum(s for name, s in phases.items() if name != "reschedule")
        at_s = since_s
        for name, length_s in {"reschedule": max(0.0, left_s - start_s), **phases}.items():
            length_s = max(0.0, left_s - start_s) if name == "reschedule" else min(length_s, since_s + left_s - at_s)
            # in an attempt that goes on, waiting for a machine is waiting for the other ranks
            phase = "rendezvous" if name == "reschedule" else name
            self._spend(f"stability.{phase}", length_s, self.group_ranks)
            if self._attempt and length_s > 0:
                self._attempt.spans.append(Span(f"startup.{phase}", at_s, at_s + length_s, number))
            at_s += length_s

    def _save_now(self) -> None:
        """Save and wait until it counts."""
        if self.line.newest_on_storage(self.now_s) == self.step:
            return
        times = self.job.saves["storage"]
        begun = self.saved.get("storage") == self.step
        wait_s = times.durable_s if not begun else max(0.0, self.line.storage[-1].counts_s - self.now_s)
        if not begun:
            self.line.saved(Saves(self.step, 1, 1, self.now_s + wait_s, 0.0))
            self.record.saves["storage"] += 1
            self.saved = dict.fromkeys(self.job.saves, self.step)
            self.tries = 0
        self._spend("stability.ckpt_block", wait_s, self.devices)
        if self._attempt:
            begin_s, end_s = self.now_s, self.now_s + wait_s
            if begun:
                self._attempt.spans.append(Span("ckpt_block", begin_s, end_s))
            else:
                self._attempt.saves.append(SaveMade(begin_s, end_s, self.step, "storage", end_s))
        self.now_s += wait_s

    # -- books ---------------------------------------------------------------------------------------

    def _spend(self, account: str, seconds: float, devices: int) -> None:
        self.record.spent_s[account] += seconds * devices

    def _paid_changed(self) -> None:
        self.record.paid.append((self.now_s, self.job.devices - self._gone * self.job.per_node))

    def _paid_until(self, now_s: float) -> tuple[float, Fraction | None]:
        """Device-seconds and money so far."""
        paid_s, money = 0.0, Fraction(0)
        edges = [*self.record.paid, (now_s, 0)]
        for (begin_s, devices), (end_s, _) in pairwise(edges):
            paid_s += (end_s - begin_s) * devices
            money += self._cost(begin_s, end_s, devices)
        return paid_s, money if self.job.prices else None

    def _cost(self, begin_s: float, end_s: float, devices: int) -> Fraction:
        """Of `devices` between two moments."""
        changes = [p.from_s for p in self.job.prices if begin_s < p.from_s < end_s]
        edges = [begin_s, *changes, end_s]
        return sum(
            (Fraction(b - a) * (self.job.price_per_s(a, devices) or 0) for a, b in pairwise(edges)),
            Fraction(0),
        )

    def _asked(self, what: str, policy: Any, event: Event, now_s: float | None = None) -> Action:
        action: Action = policy.decide(self.view(self.step, self.saved, self._step.step_s, now_s), event)
        self._decided(what, event, action)
        return action

    def _decided(self, what: str, event: Event, action: Action) -> None:
        self.record.actions[type(action).__name__] += 1
        if self.record.detailed:
            self.record.decisions.append(Decided(self.now_s, self.step, what, event, action))


def _saves_before(pattern: Pattern, steps: int) -> int:
    """Saves that come before the end of step number `steps`."""
    return sum(1 for offset in pattern.offsets if offset < steps)
