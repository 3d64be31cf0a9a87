"""Limits and wishes against a clock that the test moves: each stop comes before the step that would pass the limit."""

import signal
import types
from fractions import Fraction
from pathlib import Path

import pytest

from argosy.errors import Exit
from argosy.recipe.load import parse_recipe
from argosy.training import steering
from argosy.training.steering import Account, Pace, Signals, Steering, Wish, agree

S = 10**9
BASE = "[objective]\ntokens = 1_000_000\n[batch]\ntokens = 256\n"
STEP_S, SAVE_S, CLOSING_S = 7.0, 3.0, 5.0


class Clock:
    """Stands for the `time` module; wall and monotonic clock differ by an hour."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.module = types.SimpleNamespace(
            monotonic=lambda: self.now_s,
            monotonic_ns=lambda: round(self.now_s * S),
            time=lambda: self.now_s + 3600,
            time_ns=lambda: round((self.now_s + 3600) * S),
        )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(steering, "time", clock.module)
    return clock


class Run:
    """Attempts of a run on two devices in which a step takes 7 s, a save 3 s and the end 5 s; a restart takes 20 s."""

    def __init__(self, clock: Clock, control: Path, *sets: str):
        self.clock = clock
        self.control = control
        self.recipe = parse_recipe(BASE, sets)
        self.created_s = clock.now_s
        self.paid_ns = 0
        self.step = 0

    def attempt(self, steps: int | None = None) -> tuple[str, float]:
        """Go on until a limit stops it (or for `steps`); the reason, and the clock when everything had ended."""
        began_s = self.clock.now_s
        self.clock.now_s += 20
        pace = Pace(0)
        account = Account(
            paid_before_ns=self.paid_ns,
            opened_ns=round(began_s * S),
            devices=2,
            created_wall_ns=round((self.created_s + 3600) * S),
            price_per_hour=self.recipe.budget.price_per_device_hour,
        )
        steer = Steering(self.recipe, self.control, account, Signals(), pace, leads=True)
        pace.step(STEP_S)
        pace.save_s = SAVE_S
        reason, last = "told to", self.step + (steps or 10_000)
        while self.step < last:
            wish = steer.wish(self.step, self.step, CLOSING_S)
            if wish.stop:
                assert wish.stop.exit_code == Exit.DONE
                reason = wish.stop.reason
                break
            self.clock.now_s += STEP_S
            self.step += 1
        self.clock.now_s += SAVE_S + CLOSING_S
        self.paid_ns += account.paid_ns(round(self.clock.now_s * S)) - account.paid_before_ns
        return reason, self.clock.now_s


LIMITS = {
    # limit of two devices in seconds of wall time: 400, 400 and 400
    "device_hours": ("budget.device_hours=0.2222222222",),
    "money": ("budget.money=0.5", "budget.price_per_device_hour=2.25"),
    "deadline_s": ("budget.deadline_s=400",),
}


@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_is_kept_to_the_step_over_restarts(clock: Clock, tmp_path: Path, limit: str, attempts: int) -> None:
    run = Run(clock, tmp_path, *LIMITS[limit])
    for _ in range(attempts - 1):
        assert run.attempt(steps=5)[0] == "told to"
    reason, ended_s = run.attempt()
    assert f"budget.{limit}" in reason
    spent_s = ended_s - run.created_s
    assert spent_s <= 400 < spent_s + STEP_S, "one step more would have passed it"


def test_what_is_spent_already_ends_a_run_before_its_first_step(clock: Clock, tmp_path: Path) -> None:
    run = Run(clock, tmp_path, "budget.device_hours=0.005")
    run.attempt()
    assert run.step == 0


def steer(clock: Clock, control: Path, *, leads: bool = True, signals: Signals | None = None) -> Steering:
    account = Account(0, round(clock.now_s * S), 2, round((clock.now_s + 3600) * S), Fraction(1))
    pace = Pace(0)
    pace.step(STEP_S)
    pace.save_s = SAVE_S
    return Steering(parse_recipe(BASE), control, account, signals or Signals(), pace, leads=leads)


def test_a_deadline_leaves_room_for_one_step_and_the_save(clock: Clock, tmp_path: Path) -> None:
    steering_of_rank_0 = steer(clock, tmp_path)
    (tmp_path / "deadline").write_text(f"{clock.now_s + 3600 + STEP_S + SAVE_S + 1}\n")
    assert steering_of_rank_0.wish(1, 1, 0.0).stop is None
    clock.now_s += 1
    stop = steering_of_rank_0.wish(1, 1, 0.0).stop
    assert stop is not None
    assert stop.exit_code == Exit.START_AGAIN
    assert stop.reason.startswith("control/deadline")
    assert steer(clock, tmp_path).wish(1, 1, 0.0).stop, "it holds for an attempt that starts just before it"
    clock.now_s += 60
    assert steer(clock, tmp_path).wish(1, 1, 0.0).stop is None, "a deadline that has passed was meant for another one"


def test_a_deadline_that_is_no_time_is_said_not_guessed(clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "deadline").write_text("tomorrow")
    stop = steer(clock, tmp_path).wish(1, 1, 0.0).stop
    assert stop is not None
    assert stop.exit_code == Exit.NEEDS_PERSON
    assert "'tomorrow'" in stop.reason


def test_a_wish_to_save_is_heard_once(clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "save").touch()
    rank_0 = steer(clock, tmp_path)
    assert [rank_0.wish(1, 0, 0.0).save for _ in range(2)] == [True, False]


def test_other_ranks_report_only_their_signals(clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "stop").write_text("")
    with Signals() as signals:
        rank_1 = steer(clock, tmp_path, leads=False, signals=signals)
        assert rank_1.wish(1, 0, 0.0) == Wish()
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        stop = rank_1.wish(1, 0, 0.0).stop
    assert stop is not None
    assert (stop.exit_code, stop.reason) == (Exit.START_AGAIN, "signal: SIGTERM")


def test_any_ranks_wish_counts_and_counts_are_exact() -> None:
    many = 2**52 + 1
    other = [1.0, 2.0, 3.0, 1.0, 0.0, 0.0, 1.0, 0.0]
    agreed = agree(Wish(save=True), (many, 0, 5), lambda mine: [a + b for a, b in zip(mine, other, strict=True)])
    assert (agreed.loss_tokens, agreed.context_tokens, agreed.pad_tokens) == (many + 1, 2, 8)
    assert agreed.stop
    assert agreed.save


def test_without_a_price_or_a_limit_nothing_stops(clock: Clock, tmp_path: Path) -> None:
    account = Account(10**18, 0, 2, 0, None)
    rank_0 = Steering(parse_recipe(BASE), tmp_path, account, Signals(), Pace(0), leads=True)
    assert rank_0.wish(10, 10, 0.0).stop is None
