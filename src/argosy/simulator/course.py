"""The course of one job through time: faults strike, policies answer, and every device-second is booked.

The loop decides nothing: when to save, how to recover, whether to shrink, grow, go on without a replica or end is
asked of the objects of :mod:`argosy.policy`, which are those that the engine asks.
"""

import heapq
import math
from typing import Any

from argosy.errors import Exit
from argosy.policy.action import Grow, RebuildGroups, RollBack, Shrink, Stop, UseSpare, Wait
from argosy.policy.event import CapacityChanged, RanksLost
from argosy.policy.view import Tier
from argosy.simulator.failures import HARDWARE, Fault
from argosy.simulator.job import Phases
from argosy.simulator.outcome import Outcome, settle
from argosy.simulator.policies import kept_steps
from argosy.simulator.record import Attempt
from argosy.simulator.strikes import Strike
from argosy.simulator.work import SOON_S, Work

_RUNG: dict[type, str] = {UseSpare: "use_spare", Shrink: "shrink", Grow: "grow", RollBack: "roll_back",
                          RebuildGroups: "rebuild_groups"}  # fmt: skip


class Course(Work):
    """One job under one failure process; :meth:`run` takes it to its horizon or to the end of its work."""

    # -- the loop ------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """To the end; what it came to."""
        while not self.ended:
            strike_s = self._strikes.peek_s()
            agenda_s = self._agenda[0][0] if self._agenda else math.inf
            next_s = min(strike_s, agenda_s, self.horizon_s)
            if self._down or self._parked:
                self._wait_until(next_s)
                if not self._down and not self._parked and self.now_s < next_s - SOON_S:
                    continue
            if next_s == strike_s:
                strike = self._strikes.pop(self.nodes)
                if strike is not None and not self._is_away(strike.place):
                    self._struck(strike)
                continue
            self._train_until(next_s, finish_step=True)
            if self.ended or next_s >= self.horizon_s:
                break
            _, _, what, about = heapq.heappop(self._agenda)
            getattr(self, f"_on_{what}")(about)
        self._finish()
        return settle(self)

    def _finish(self) -> None:
        """Save what there is, as a run does that ends in order."""
        reason = self.ended or Stop(Exit.DONE, "the time is over")
        if not self._down and not self._parked and reason.exit_code in (Exit.DONE, Exit.START_AGAIN):
            self._save_now()
            self._all_back_in_line()
            self._end_attempt(reason.exit_code, reason.reason)
        else:
            self._all_back_in_line()
            self._undo(self.line.newest_on_storage(self.now_s), self.now_s)
            self._die(reason.reason)
            if self.record.detailed:  # its ranks would have gone on from there
                restored: tuple[int, Tier, str] = (self.step, "storage", "failure")
                last = Attempt(self.now_s, self.world, restored=restored, restored_s=self.now_s)
                last.alive_s = last.end_s = self.now_s
                last.exit_code, last.reason = 1, reason.reason
                self.record.attempts.append(last)
            # nothing came after it, so this was no way to the next attempt
            gap = "reschedule" if self._attempts else "provision"
            self.record.spent_s[f"stability.{gap}"] -= self._since_attempt_s
            self.record.spent_s["decision.idle_reservation"] += self._since_attempt_s
        self.ended = reason

    def _later(self, after_s: float, what: str, about: Any) -> None:
        self._count += 1
        heapq.heappush(self._agenda, (self.now_s + after_s, self._count, what, about))

    # -- faults --------------------------------------------------------------------------------------

    def _is_away(self, place: int) -> bool:
        return place * self.job.per_node // self.group_ranks in self._away if self._away else False

    def _struck(self, strike: Strike) -> None:
        fault = strike.fault
        if fault is None:
            self._preempted(strike)
            return
        machine = self.nodes.at[strike.place]
        known_s = fault.detect_s * -math.log1p(-strike.dice)
        if fault.kind in ("slow", "silent"):
            known = self.nodes.slow if fault.kind == "slow" else self.nodes.wrong_since
            if machine in known:
                return
            self._train_until(strike.t_s, finish_step=True)
            if fault.kind == "slow":
                self.nodes.slow[machine] = fault.slowdown
            else:
                self.nodes.wrong_since[machine] = self.step
            self._later(known_s, f"{fault.kind}_known", (machine, fault, strike))
            self.record.faults[fault.name] += 1
            return
        self.record.faults[fault.name] += 1
        self._train_until(strike.t_s, finish_step=False)
        if self.ended:
            return
        places = [strike.place]
        if fault.kind == "domain":
            first = strike.place // self.failures.domain_nodes * self.failures.domain_nodes
            places = list(range(first, min(first + self.failures.domain_nodes, self.nodes.active)))
        self._lost(places, fault, strike)

    def _preempted(self, strike: Strike) -> None:
        """The owner of spot capacity takes machines back; with enough notice the state is saved first."""
        spot, job = self.job.spot, self.job
        assert spot is not None
        self.record.faults["preemption"] += 1
        if not self._down and spot.notice_s >= self._step.step_s + job.saves["storage"].block_s:
            self._train_until(strike.t_s, finish_step=True)
            if self.ended:
                return
            self._save_now()
        else:
            self._train_until(strike.t_s, finish_step=False)
        places = list(range(strike.place, min(strike.place + spot.nodes, self.nodes.active)))
        self._lost(places, None, strike)

    def _lost(self, places: list[int], fault: Fault | None, strike: Strike) -> None:
        """Ranks of these places are lost now; somebody will know soon, and then something is done about it."""
        per_node = self.job.per_node
        hardware = fault is None or fault.kind in HARDWARE
        ranks = tuple(place * per_node + i for place in places for i in range(per_node))
        event = RanksLost(ranks, hardware=hardware)
        name = "preemption" if fault is None else fault.name
        detect_s = 0.0 if fault is None or fault.kind in ("slow", "silent") else fault.detect_s
        if self.policies.replicas is not None and not self._down and not self._parked:
            action = self._asked(name, self.policies.replicas, event)
            if isinstance(action, RebuildGroups):
                self._group_lost(places, event, fault, strike, detect_s)
                return
        self._all_back_in_line()
        self._stopped(event, places, fault, strike, detect_s)

    def _stopped(
        self,
        event: RanksLost,
        places: list[int],
        fault: Fault | None,
        strike: Strike,
        detect_s: float,
        wait_s: float = 0.0,
    ) -> None:
        """The whole job stops: back to a saved state, by the rung that the policy names."""
        name = "preemption" if fault is None else fault.name
        self._die(name)
        copies = fault is None or fault.kind != "domain" or self.job.domains_apart
        action = self._asked(name, self.policies.recovery, event, self.now_s + detect_s)
        self.tries += 1
        self.record.restarts += 1
        rung = _RUNG.get(type(action), "restart_workers")
        if fault is not None and fault.kind == "storage":
            wait_s += self._repair_s(fault, strike)
        if isinstance(action, UseSpare):
            self._send_away(places, fault, strike)
            self.nodes.fill()
        elif isinstance(action, Shrink):
            self._send_away(places, fault, strike)
            size = self._size(action.n)
            if size is None:
                self._call_person()
                rung = "requeue"
            else:
                self.nodes.resize(size // self.job.per_node)
        elif isinstance(action, Stop):
            if event.hardware:
                self._send_away(places, fault, strike)
            if action.exit_code != Exit.NEEDS_PERSON:
                self.ended = action
                return
            self._call_person(waits=fault is not None)
            rung = "requeue"
            wait_s += self.job.person_s if fault is not None else 0.0
        if len(self._groups_without_machines()) == self.job.replica_groups:
            self._parked = True
        restore = action.step if isinstance(action, RollBack) else None
        self._go_back(detect_s, restore, copies=copies)
        self._plan_restart(rung, detect_s, wait_s)

    def _go_back(self, detect_s: float, to: int | None = None, *, copies: bool = True) -> None:
        """Undo what no state holds that can still be had."""
        known_s = self.now_s
        storage = self.line.newest_on_storage(known_s, to)
        memory = self.line.newest_in_memory(known_s) if copies and to is None else 0
        step = max(memory, storage)
        tier: Tier = "memory" if memory > storage else "storage"
        self._undo(step, known_s)
        if not copies:
            self.line.memory.clear()
        self.saved = {t: s for t in self.job.saves if (s := storage if t == "storage" else step)}
        self._restored = (step, tier, "failure")

    def _undo(self, step: int, known_s: float) -> None:
        for undone in self.line.back_to(step, known_s):
            self._spend("stability.lost_work", undone.count * (undone.work_s + undone.slow_s), undone.devices)
            self._spend("compute.eval", undone.count * undone.eval_s, undone.devices)
            self.record.lost_steps += undone.count
        self.step = step
        for machine, since in self.nodes.wrong_since.items():
            self.nodes.wrong_since[machine] = min(since, step)

    def _plan_restart(self, rung: str, detect_s: float, wait_s: float = 0.0) -> None:
        phases: Phases = {"detect": detect_s, "wait": wait_s, **self.job.restart[rung]}
        if self._restored is not None and self._restored[0]:
            phases["ckpt_load"] = self.job.saves[self._restored[1]].restore_s
        self._down = [(name, s) for name, s in phases.items() if s]

    def _repair_s(self, fault: Fault | None, strike: Strike) -> float:
        if fault is None:
            assert self.job.spot is not None
            return self.job.spot.away_s * -math.log1p(-strike.dice)
        if self.job.refill_s is not None and fault.kind in HARDWARE:
            return self.job.refill_s
        return fault.repair_median_s * math.exp(fault.repair_sigma * strike.normal)

    def _send_away(self, places: list[int], fault: Fault | None, strike: Strike) -> None:
        """Machines leave the job to be repaired or replaced; those of a spot owner are not paid meanwhile."""
        machines = self.nodes.take_out(places)
        back_s = self._repair_s(fault, strike)
        if fault is None:
            self._gone += len(machines)
            self._paid_changed()
        for machine in machines:
            self._later(back_s, "repaired", (machine, fault is None))

    def _call_person(self, waits: bool = True) -> None:
        """The job has stopped for good; a person starts it again when there are machines."""
        self.tries = 0
        self.record.notes["a person was needed" if waits else "no spot capacity"] += 1
        if not self.nodes.fill():
            self._parked = True

    def _size(self, available: int) -> int | None:
        """The world size that the batch rule takes on so many ranks; None when it takes none."""
        if self.policies.resize is None:
            return available
        action = self._asked("lost", self.policies.resize, CapacityChanged(available))
        if isinstance(action, Shrink):
            return action.n
        return self.world if isinstance(action, Wait) else None

    # -- what becomes known --------------------------------------------------------------------------

    def _on_repaired(self, about: tuple[int, bool]) -> None:
        machine, was_gone = about
        if was_gone:
            self._gone -= 1
            self._paid_changed()
        elif self.job.refill_s is not None:
            self._strikes.replaced(machine)
        self.nodes.born_s[machine] = self.now_s
        self.nodes.idle.append(machine)
        if self._parked:
            self._parked = not self.nodes.fill()
            return
        if self._away:
            self.nodes.fill()
            self._start_groups()
        if self.policies.resize is not None and self.nodes.active < self.nodes.places:
            self._capacity_changed()

    def _capacity_changed(self) -> None:
        available = min(self.nodes.active + len(self.nodes.idle), self.nodes.places) * self.job.per_node
        assert self.policies.resize is not None
        action = self._asked("repaired", self.policies.resize, CapacityChanged(available))
        if not isinstance(action, Grow):
            return
        if self._down and self._attempt and not self._attempt.end_s:  # its processes have started in the old size
            self._later(sum(s for _, s in self._down), "capacity", None)
            return
        if not self._down:  # a restart that has not begun yet simply takes more machines
            self._save_now()
            self._end_attempt(Exit.START_AGAIN, "grows")
            self._restored = (self.step, "storage", "resume")
            self.record.restarts += 1
            self._plan_restart("grow", 0.0)
        self.nodes.resize(action.n // self.job.per_node)

    def _on_capacity(self, about: None) -> None:
        if self.nodes.active < self.nodes.places and not self._parked:
            self._capacity_changed()

    def _on_slow_known(self, about: tuple[int, Fault, Strike]) -> None:
        """A slow machine is found: it leaves at a step boundary after a save, if there is anything better."""
        machine, fault, strike = about
        place = self.nodes.place_of(machine)
        if place is None or machine not in self.nodes.slow or self._is_away(place):
            return
        if self._down:
            self._later(fault.detect_s, "slow_known", about)
            return
        ranks = tuple(place * self.job.per_node + i for i in range(self.job.per_node))
        action = self._asked(fault.name, self.policies.recovery, RanksLost(ranks, hardware=True))
        if not isinstance(action, UseSpare | Shrink):
            self._later(self._repair_s(fault, strike), "mended", machine)
            return
        self._save_now()
        self._all_back_in_line()
        self._stopped(RanksLost(ranks, hardware=True), [place], fault, strike, 0.0)

    def _on_mended(self, machine: int) -> None:
        self.nodes.slow.pop(machine, None)

    def _on_silent_known(self, about: tuple[int, Fault, Strike]) -> None:
        """Corruption is found: back to a state from before it, if retention has left one."""
        machine, fault, strike = about
        place = self.nodes.place_of(machine)
        since = self.nodes.wrong_since.get(machine)
        if place is None or since is None or self._is_away(place):
            return
        if self._down:
            self._later(fault.detect_s, "silent_known", about)
            return
        ranks = tuple(place * self.job.per_node + i for i in range(self.job.per_node))
        kept = kept_steps(self.policies.retention, self.line.steps_on_storage(self.now_s))
        clean = max((step for step in kept if step <= since), default=None)
        committed: dict[Tier, int] = {} if clean is None else {"storage": clean}
        view = self.view(self.step, committed, self._step.step_s)
        event = RanksLost(ranks, hardware=True, good_until=since)
        action = self.policies.recovery.decide(view, event)
        self._decided(fault.name, event, action)
        if isinstance(action, RollBack):
            to, wait_s = action.step, 0.0
        else:  # a person is called, who can only take the oldest state that there is
            to, wait_s = min(kept, default=0), self.job.person_s
            self.record.notes["no checkpoint from before a corruption was kept"] += 1
        self._undo(to, self.now_s)
        self.line.memory.clear()
        self._all_back_in_line()
        # the state is good again, but the machine is not: what becomes of it is the next question
        self._stopped(RanksLost(ranks, hardware=True), [place], fault, strike, 0.0, wait_s)

    # -- replica groups ------------------------------------------------------------------------------

    def _group_lost(
        self, places: list[int], event: RanksLost, fault: Fault | None, strike: Strike, detect_s: float
    ) -> None:
        """All wait until the loss is known and the survivors have found each other; then these train on."""
        self.record.restarts += 1
        if self._broken_off and self._broken_off.t1_s == self.now_s:  # the job goes on, and leaves this step out
            lost_s = (self._broken_off.t1_s - self._broken_off.t0_s) * self.devices
            self.record.spent_s["stability.lost_work"] -= lost_s
            self.record.spent_s["stability.skipped_step"] += lost_s
            if self._attempt:
                self._attempt.aborted.append(self._broken_off)
        self._stall(detect_s)
        for group in sorted({rank // self.group_ranks for rank in event.ranks}):
            taken = {number for _, number in self._away.values()}
            number = next(i for i in range(len(taken) + 1) if i not in taken)
            self._away[group] = (self.now_s, number)
        if event.hardware:
            action = self._asked("group", self.policies.recovery, event)
            self._send_away(places, fault, strike)
            if isinstance(action, UseSpare):
                self.nodes.fill()
        self._start_groups()
        self._stall(sum(self.job.restart["rebuild_groups"].values()))

    def _start_groups(self) -> None:
        """Groups that have all their machines start; until then they wait."""
        empty = self._groups_without_machines()
        for group, (since_s, _) in self._away.items():
            if group not in empty and group not in self._starting:
                self._starting[group] = since_s
                self._later(sum(self.job.restart["restart_workers"].values()), "group_ready", (group, since_s))

    def _on_group_ready(self, about: tuple[int, float]) -> None:
        """The group takes the state from the others and trains with them again."""
        group, since_s = about
        if self._away.get(group, (None,))[0] != since_s or self._down or self._parked:
            return
        self._stall(self.job.rejoin_s)
        self._returned(group)

    def _all_back_in_line(self) -> None:
        """The job starts anew, and with it the groups that were away."""
        for group in list(self._away):
            self._returned(group)
