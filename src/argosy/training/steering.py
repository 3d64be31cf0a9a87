"""What rank 0 wants before a step, and how all ranks come to want the same.

Whether to stop or save can depend on clocks, files and signals, which ranks see differently. So each rank adds its
wishes to a small sum over ranks that a step needs anyway (the count of loss tokens), and all read the same answer.
"""

import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

from argosy.errors import Exit
from argosy.policy.action import Save, Stop
from argosy.policy.budget import BudgetPolicy
from argosy.policy.event import BeforeStep, StepDone
from argosy.policy.save import SavePolicy
from argosy.policy.view import Tier, View
from argosy.recipe.schema import Recipe

_NS_PER_HOUR = 3_600_000_000_000


class Signals:
    """Notes SIGTERM and SIGINT instead of dying; a second one changes nothing."""

    def __init__(self) -> None:
        self.seen: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._note)
        # The launcher holds them back while a rank starts; what came meanwhile is noted now.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.seen = self.seen or number


@dataclass(frozen=True)
class Account:
    """What the run has been paid for, from this attempt's point of view."""

    paid_before_ns: int
    """Device-nanoseconds of earlier attempts."""
    opened_ns: int
    """Monotonic clock when this attempt's devices began to be paid."""
    devices: int
    created_wall_ns: int
    price_per_hour: Fraction | None

    def paid_ns(self, now_ns: int) -> int:
        return self.paid_before_ns + self.devices * (now_ns - self.opened_ns)

    def event(self, now_ns: int, closing_s: float) -> BeforeStep:
        paid_ns = self.paid_ns(now_ns)
        return BeforeStep(
            paid_device_ns=paid_ns,
            paid_money=None if self.price_per_hour is None else self.price_per_hour * Fraction(paid_ns, _NS_PER_HOUR),
            since_created_s=(time.time_ns() - self.created_wall_ns) / 1e9,
            closing_s=closing_s,
        )


SLOW_DISK_BYTES_PER_S = 2e8
SLOW_MEMORY_BYTES_PER_S = 4e9


class Pace:
    """Measured durations that policies look ahead with.

    Until there is a measurement of a save, its time is what slow hardware would take: a policy that waits for a
    measured cost before it saves would never save, and a budget would be passed by the first save.
    """

    def __init__(self, state_bytes: int) -> None:
        self._steps_s: deque[float] = deque(maxlen=16)
        self._undisturbed_s: deque[float] = deque(maxlen=64)
        self._disturbed_s: list[float] = []
        self._cost_s: float | None = None
        self.save_s = state_bytes / SLOW_DISK_BYTES_PER_S
        """From the order to the committed checkpoint, for the last save."""
        self.snapshot_s = state_bytes / SLOW_MEMORY_BYTES_PER_S
        """Of the last snapshot."""
        self.eval_s_per_window: float | None = None

    def step(self, duration_s: float, *, saving: bool = False) -> None:
        """A step took so long; `saving`: while a checkpoint was written in the background."""
        self._steps_s.append(duration_s)
        (self._disturbed_s if saving else self._undisturbed_s).append(duration_s)

    def saved(self, blocked_s: float, duration_s: float) -> None:
        """A save in the background ended that kept the step path waiting for `blocked_s`."""
        slower_s = 0.0
        if self._undisturbed_s and self._disturbed_s:
            slower_s = sum(self._disturbed_s) - len(self._disturbed_s) * median(self._undisturbed_s)
        self._disturbed_s.clear()
        self.save_s, self._cost_s = duration_s, blocked_s + max(0.0, slower_s)

    @property
    def save_cost_s(self) -> float:
        """What a save costs training: all of it, or, in the background, the wait and what steps were slower by."""
        return self.save_s if self._cost_s is None else self._cost_s

    @property
    def step_s(self) -> float | None:
        """Longest of the last steps: a budget must not be passed by an ordinary slow step."""
        return max(self._steps_s, default=None)


@dataclass(frozen=True)
class Wish:
    """What one rank wants before a step; all-zero on ranks that want nothing."""

    stop: Stop | None = None
    save: bool = False
    snapshot: bool = False


class Steering:
    """Rank 0's eyes: budget, save policy, control files. Other ranks only report their signals."""

    def __init__(self, recipe: Recipe, control: Path, account: Account, signals: Signals, pace: Pace, *, leads: bool):
        self._leads = leads
        self._budget = BudgetPolicy.from_recipe(recipe.budget)
        self._saves = SavePolicy.from_recipe(recipe.checkpoint)
        self._saves_over_memory = SavePolicy.from_recipe(recipe.checkpoint, over_memory=True)
        self._snapshots = SavePolicy.from_recipe(recipe.checkpoint, "memory")
        self._failure_rate_per_s = account.devices * recipe.checkpoint.failures_per_day / 86_400
        self._control = control
        self._account = account
        self._signals = signals
        self._pace = pace
        self._began_s = time.time()

    def view(self, step: int, committed_step: int, snapshot_step: int | None = None) -> View:
        """What a policy may know; `committed_step` is on storage, `snapshot_step` in memory."""
        price = self._account.price_per_hour
        committed: dict[Tier, int] = {"storage": committed_step}
        if snapshot_step is not None:
            committed["memory"] = snapshot_step
        return View(
            now_s=time.monotonic(),
            step=step,
            step_time_s=self._pace.step_s,
            save_cost_s={"storage": self._pace.save_cost_s, "memory": self._pace.snapshot_s},
            failure_rate_per_s=self._failure_rate_per_s,
            committed_step=committed,
            world_size=self._account.devices,
            price_per_s=None if price is None else price * self._account.devices / 3600,
        )

    def wish(self, step: int, committed_step: int, closing_s: float, snapshot_step: int | None = None) -> Wish:
        """What this rank wants before `step`; `closing_s` is how long the end takes besides the save.

        `snapshot_step` is that of the newest snapshot (0: none yet), None where there is no memory tier.
        """
        if not self._leads:
            return Wish(stop=self._signal())
        view = self.view(step, committed_step, snapshot_step)
        for look in (self._signal, self._asked, self._deadline, lambda: self._limit(view, closing_s)):
            if stop := look():
                return Wish(stop=stop)
        asked = (self._control / "save").exists()
        (self._control / "save").unlink(missing_ok=True)
        saves = self._saves if snapshot_step is None else self._saves_over_memory
        return Wish(
            save=asked or isinstance(saves.decide(view, StepDone()), Save),
            snapshot=snapshot_step is not None and isinstance(self._snapshots.decide(view, StepDone()), Save),
        )

    def must_end(self) -> bool:
        """Whether this rank has been asked to end soon; cheap enough to be asked between batches of an evaluation."""
        return self._signal() is not None or (self._leads and (self._asked() or self._deadline()) is not None)

    def _limit(self, view: View, closing_s: float) -> Stop | None:
        # The last save is waited for to its end, also where one in the background would cost less.
        closing_s += self._pace.save_s - self._pace.save_cost_s
        action = self._budget.decide(view, self._account.event(time.monotonic_ns(), closing_s))
        return action if isinstance(action, Stop) else None

    def _signal(self) -> Stop | None:
        if self._signals.seen is None:
            return None
        return Stop(Exit.START_AGAIN, f"signal: {signal.Signals(self._signals.seen).name}")

    def _asked(self) -> Stop | None:
        asked = _read(self._control / "stop")
        return None if asked is None else Stop(Exit.START_AGAIN, f"asked to stop: {asked or 'control/stop'}")

    def _deadline(self) -> Stop | None:
        """A scheduler knows the time (seconds since the epoch) by which this attempt must have saved and ended."""
        text = _read(self._control / "deadline")
        if text is None:
            return None
        try:
            deadline_s = float(text)
        except ValueError:  # somebody will end this attempt, nobody knows when; a restart would not know either
            return Stop(Exit.NEEDS_PERSON, f"control/deadline holds {text!r}, not seconds since the epoch")
        if deadline_s <= self._began_s:  # it was meant for an earlier attempt
            return None
        if time.time() + (self._pace.step_s or 0) + self._pace.save_s < deadline_s:
            return None
        return Stop(Exit.START_AGAIN, f"control/deadline {text}")


def _read(file: Path) -> str | None:
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        return None


@dataclass(frozen=True)
class Agreement:
    """The same on all ranks."""

    loss_tokens: int
    context_tokens: int
    pad_tokens: int
    stop: bool
    save: bool
    snapshot: bool
    saved: tuple[float, float]
    """Ranks that are done with the save in the background, and ranks where it failed."""


def agree(
    wish: Wish,
    counts: tuple[int, int, int],
    total: Callable[[list[float]], list[float]],
    saved: tuple[float, float] = (0.0, 0.0),
) -> Agreement:
    """Sum token counts, wishes and reports over ranks; any rank's wish counts."""
    wishes = [float(wish.stop is not None), float(wish.save), float(wish.snapshot)]
    loss, context, pad, stops, saves, snapshots, done, failed = total([*counts, *wishes, *saved])
    return Agreement(int(loss), int(context), int(pad), stops > 0, saves > 0, snapshots > 0, (done, failed))
