"""The detection ladder on told stories: who is blamed, when, and who is left alone."""

from dataclasses import replace
from typing import Any

import pytest

from argosy.journal.heartbeat import NOWHERE, Beat, State
from argosy.journal.phys import INDEX
from argosy.resilience.signs import Sign
from argosy.resilience.watch import Finding, Limits, Watch

S = 1_000_000_000
STEP_NS = S // 10
LIMITS = Limits(heartbeat_s=5, step_factor=10, step_floor_s=5, phase_s=600)


class Ranks:
    """Some ranks whose pages a test writes; all are well unless it says otherwise."""

    def __init__(self, count: int, limits: Limits = LIMITS):
        self.watch = Watch(limits)
        self.now_s = 100.0
        self.fixed: dict[int, dict[str, Any]] = {rank: {} for rank in range(count)}
        self.stopped: set[int] = set()
        self.frozen_beat: dict[int, float] = {}
        self.steps = 10
        self.going = True

    def sign(self, rank: int) -> Sign:
        now_ns = int(self.now_s * S)
        beat = Beat(
            mono_ns=now_ns,
            step=self.steps,
            state=State.STEPPING,
            seq=0,
            attempt=1,
            rank=rank,
            pid=1000 + rank,
            boot=1,
            phase=INDEX["comm.control"] if self.fixed[rank] == {} and not self.going else INDEX["forward"],
            beat_ns=int(self.frozen_beat.get(rank, self.now_s) * S),
            collectives=100,
            step_ns=STEP_NS,
            steps=self.steps,
        )
        return Sign(rank, replace(beat, **self.fixed[rank]), rank in self.stopped)

    def go(self, seconds: float, every_s: float = 0.25) -> Finding | None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += every_s
            if self.going:
                self.steps += int(every_s * 10) or 1
            if found := self.watch.look(int(self.now_s * S), [self.sign(rank) for rank in self.fixed]):
                return found
        return None

    def stand(self, rank: int, **fields: Any) -> None:
        """From now on no step ends: `rank` is where `fields` say, the others wait for it."""
        self.going = False
        self.fixed[rank] = {"mono_ns": int(self.now_s * S), "phase": INDEX["forward"], **fields}


def test_a_clean_hour_is_quiet() -> None:
    assert Ranks(4).go(3600) is None


@pytest.mark.parametrize("rank", range(4))
def test_a_stopped_process_is_frozen_after_five_seconds(rank: int) -> None:
    ranks = Ranks(4)
    ranks.go(5)
    ranks.stand(rank)
    ranks.stopped.add(rank)
    ranks.frozen_beat[rank] = ranks.now_s
    begin_s = ranks.now_s
    found = ranks.go(60)
    assert found is not None
    assert (found.kind, found.ranks) == ("frozen", (rank,))
    assert 5 < ranks.now_s - begin_s < 6


def test_a_held_interpreter_is_told_from_a_frozen_process() -> None:
    ranks = Ranks(2)
    ranks.go(5)
    ranks.stand(1)
    ranks.frozen_beat[1] = ranks.now_s
    found = ranks.go(60)
    assert found is not None
    assert (found.kind, found.ranks) == ("held", (1,))


def test_a_loop_with_a_healthy_beat_is_seen_by_its_lack_of_progress_and_its_victims_are_not_blamed() -> None:
    ranks = Ranks(4)
    ranks.go(5)
    ranks.stand(2)
    begin_s = ranks.now_s
    found = ranks.go(60)
    assert found is not None
    assert (found.kind, found.ranks, found.phase) == ("stuck", (2,), "forward")
    assert 5 < ranks.now_s - begin_s < 6


def test_the_limit_of_a_step_grows_with_the_steps() -> None:
    ranks = Ranks(2)
    for rank in ranks.fixed:
        ranks.fixed[rank] = {"step_ns": 2 * S}
    ranks.go(5)
    ranks.stand(1, step_ns=2 * S)
    ranks.fixed[0] = {"step_ns": 2 * S, "phase": INDEX["comm.control"]}
    begin_s = ranks.now_s
    assert ranks.go(60) is not None
    assert 20 < ranks.now_s - begin_s < 21


def test_twenty_seconds_in_a_declared_phase_are_no_fault_but_a_wait() -> None:
    ranks = Ranks(3)
    ranks.go(5)
    ranks.stand(1, span=INDEX["eval"])
    assert ranks.go(20) is None
    assert ranks.watch.waiting is not None
    assert (ranks.watch.waiting.rank, ranks.watch.waiting.phase) == (1, "eval")


def test_a_declared_phase_has_a_limit_too() -> None:
    ranks = Ranks(3)
    ranks.go(5)
    ranks.stand(1, span=INDEX["ckpt_block"])
    found = ranks.go(700)
    assert found is not None
    assert (found.kind, found.ranks, found.limit_s) == ("stuck", (1,), 600)


def test_first_steps_may_compile() -> None:
    ranks = Ranks(2)
    ranks.steps = 1
    ranks.stand(0)
    assert ranks.go(60) is None


def test_when_all_wait_the_one_with_the_fewest_collectives_is_missing() -> None:
    ranks = Ranks(3)
    ranks.go(5)
    ranks.going = False
    for rank, count in enumerate((101, 100, 101)):
        ranks.fixed[rank] = {"phase": INDEX["comm.exposed.dp"], "collectives": count}
    found = ranks.go(60)
    assert found is not None
    assert (found.kind, found.ranks) == ("collective", (1,))


def test_when_all_wait_alike_nobody_is_named() -> None:
    ranks = Ranks(3)
    ranks.go(5)
    ranks.going = False
    for rank in ranks.fixed:
        ranks.fixed[rank] = {"phase": INDEX["comm.exposed.dp"]}
    found = ranks.go(60)
    assert found is not None
    assert (found.kind, found.ranks) == ("collective", (0, 1, 2))


def test_a_machine_that_slept_is_no_fault_of_its_ranks() -> None:
    ranks = Ranks(4)
    ranks.go(5)
    before_s = ranks.now_s
    ranks.now_s += 300  # nobody looked, nobody beat
    for rank in ranks.fixed:
        ranks.frozen_beat[rank] = before_s
    assert ranks.watch.look(int(ranks.now_s * S), [ranks.sign(rank) for rank in ranks.fixed]) is None
    ranks.frozen_beat.clear()
    assert ranks.go(30) is None


def test_beats_that_are_all_late_at_once_are_a_busy_machine_for_a_while() -> None:
    ranks = Ranks(4)
    ranks.go(5)
    for rank in ranks.fixed:
        ranks.frozen_beat[rank] = ranks.now_s
    assert ranks.go(12) is None
    found = ranks.go(10)
    assert found is not None
    assert found.kind == "held"


def test_a_rank_that_ended_well_is_not_missed() -> None:
    ranks = Ranks(2)
    ranks.go(5)
    ranks.fixed[0] = {"state": State.CLOSED, "beat_ns": 1, "mono_ns": 1}
    assert ranks.go(60) is None


def test_a_rank_that_imports_may_hold_its_interpreter_for_long() -> None:
    ranks = Ranks(2)
    ranks.going = False
    for rank in ranks.fixed:
        ranks.fixed[rank] = {"state": State.STARTING, "steps": 0, "span": INDEX["startup.model_init"]}
    ranks.frozen_beat[0] = ranks.now_s
    assert ranks.go(40) is None
    assert ranks.go(40) is not None


def test_between_phases_is_a_place_too() -> None:
    ranks = Ranks(2)
    ranks.go(5)
    ranks.stand(0, phase=NOWHERE)
    found = ranks.go(60)
    assert found is not None
    assert found.phase == "no declared phase"
