"""What the recovery policy says to faults that a restart alone does not mend."""

from argosy.errors import Exit
from argosy.policy.action import RestartWorkers, RollBack, Stop
from argosy.policy.event import RanksLost
from argosy.policy.recovery import RecoveryPolicy
from argosy.policy.view import View

POLICY = RecoveryPolicy(rungs=("restart_workers", "roll_back"))


def view(restarts: int = 0, **committed: int) -> View:
    return View(now_s=0.0, step=50, world_size=4, restarts_since_commit=restarts, committed_step=committed)  # type: ignore[arg-type]


def test_first_from_memory_then_from_storage_then_a_person() -> None:
    lost = RanksLost((1,))
    actions = [POLICY.decide(view(restarts, memory=49, storage=40), lost) for restarts in range(4)]
    assert actions[:3] == [RestartWorkers(), RollBack(40), RollBack(40)]
    assert isinstance(actions[3], Stop)
    assert actions[3].exit_code == Exit.NEEDS_PERSON


def test_without_a_checkpoint_the_start_is_all_there_is() -> None:
    assert POLICY.decide(view(1), RanksLost((1,))) == RestartWorkers()


def test_memory_that_runs_out_twice_at_one_step_needs_a_person() -> None:
    assert POLICY.decide(view(), RanksLost((1,), out_of_memory=True)) == RestartWorkers()
    again = POLICY.decide(view(1), RanksLost((1,), out_of_memory=True, at_this_place=1))
    assert isinstance(again, Stop)
    assert "out of memory at the same step" in again.reason


def test_a_suspect_state_is_left_for_one_from_before_and_once_only() -> None:
    suspect = RanksLost((2,), good_until=45)
    assert POLICY.decide(view(memory=49, storage=40), suspect) == RollBack(40)
    assert isinstance(POLICY.decide(view(memory=49), suspect), Stop)
    again = POLICY.decide(view(storage=40), RanksLost((2,), good_until=45, at_this_place=1))
    assert isinstance(again, Stop)
    assert again.exit_code == Exit.NEEDS_PERSON
