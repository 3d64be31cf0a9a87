"""The engine and the simulator ask the same policy objects: one list of events, one list of decisions.

The engine's side is `training.steering.Steering` (when to save, when the budget ends a run) and
`launch.restarts.Restarts` (what to do after a fault), driven by a clock that the test moves.
"""

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from courses import At, every_node

from argosy.errors import Exit
from argosy.launch.restarts import RUNGS, Restarts
from argosy.policy.action import Action, RestartWorkers, RollBack, Stop, Wait
from argosy.policy.budget import BudgetPolicy
from argosy.policy.event import RanksLost
from argosy.policy.recovery import RecoveryPolicy
from argosy.policy.save import SavePolicy
from argosy.recipe.load import parse_recipe
from argosy.recipe.schema import Recipe
from argosy.registry.run_folder import RunFolder
from argosy.simulator.course import Course
from argosy.simulator.failures import Fault
from argosy.simulator.job import Job, Price, restart_phases, save_times
from argosy.simulator.policies import Policies
from argosy.training import steering
from argosy.training.steering import Account, Pace, Signals, Steering

S = 10**9
STEP_S, SAVE_S, DETECT_S, START_S, LOAD_S = 7.3, 3.1, 2.0, 20.0, 4.0
RANKS = 8
HORIZON_S = 6_000.0
FAULTS = [11.0, 431.0, 900.5, 905.0, 1500.0, 1620.0, 1740.0, 3333.0, 4321.0]
"""Two in a start; three within one interval between saves."""
BASE = "[objective]\ntokens = 100_000_000\n[batch]\ntokens = 256\n"
RECIPES = {
    "Daly": ("checkpoint.failures_per_day=8",),
    "seconds": ("checkpoint.every_s=300",),
    "steps": ("checkpoint.every_steps=37",),
    "deadline": ("checkpoint.every_s=300", "budget.deadline_s=2222"),
    "money": ("checkpoint.every_s=300", "budget.money=9.5", "budget.price_per_device_hour=2.5"),
    "impatient": ("checkpoint.every_s=600", "resilience.restarts_limit=2"),
}
Trace = list[tuple[str, Any]]


@contextmanager
def clock_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A clock of one number, for the modules that read the time."""
    now = [0.0]
    module = types.SimpleNamespace(
        monotonic=lambda: now[0],
        monotonic_ns=lambda: round(now[0] * S),
        time=lambda: now[0] + 1e6,
        time_ns=lambda: round((now[0] + 1e6) * S),
    )
    monkeypatch.setattr(steering, "time", module)
    yield now


def engine_trace(recipe: Recipe, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Trace:
    """Saves by step, actions after faults, and why and where it ended."""
    run = RunFolder.create(folder, recipe)
    restarts = Restarts(run, recipe, RANKS)
    trace: Trace = []
    faults = list(FAULTS)
    step = committed = 0
    with clock_at(monkeypatch) as now:
        ready_s = START_S

        def fault_before(moment_s: float) -> bool:
            return bool(faults) and faults[0] < moment_s

        while True:
            lost = fault_before(ready_s)
            now[0] = faults[0] if lost else ready_s
            if not lost:
                account = Account(0, 0, RANKS, round(1e6 * S), recipe.budget.price_per_device_hour)
                pace = Pace(0)
                pace.save_s = SAVE_S
                steer = Steering(recipe, run.control, account, Signals(), pace, leads=True)
                pace.step(STEP_S)
                while not lost:
                    if now[0] >= HORIZON_S:
                        return [*trace, ("end", step)]
                    wish = steer.wish(step, committed, 0.0)
                    if wish.stop:
                        return [*trace, ("stop", step)]
                    if wish.save:
                        if lost := fault_before(now[0] + SAVE_S):
                            break
                        now[0] += SAVE_S
                        committed = step
                        (run.checkpoints / f"step-{step}").mkdir(exist_ok=True)
                        trace.append(("save", step))
                        if now[0] >= HORIZON_S:
                            return [*trace, ("end", step)]
                    if lost := fault_before(now[0] + STEP_S):
                        break
                    now[0] += STEP_S
                    step += 1
            now[0] = faults.pop(0)
            incident = types.SimpleNamespace(kind="crash", rank=0, step=step, attempt=1, number=1, cause="crash")
            failure = types.SimpleNamespace(
                incident=incident,
                cause=types.SimpleNamespace(good_until=None, bad_until=None),
                told=None,
                step_s=STEP_S,
            )
            action = restarts.decide(failure)  # type: ignore[arg-type]
            trace.append(("lost", type(action).__name__))
            if isinstance(action, Stop):
                return [*trace, ("stop", committed)]
            step = action.step if isinstance(action, RollBack) else committed
            ready_s = now[0] + DETECT_S + START_S + (LOAD_S if step else 0.0)


def simulator_trace(recipe: Recipe) -> Trace:
    """The same of a simulated job with the same times."""
    phases = {rung: {"reschedule": START_S} for rung in restart_phases(RANKS)}
    price = recipe.budget.price_per_device_hour
    job = Job(
        RANKS,
        STEP_S,
        save_times(SAVE_S, restore_s=LOAD_S),
        phases,
        person_s=1e9,
        prices=() if price is None else (Price(Fraction(price)),),
    )
    policies = Policies(
        saves=(SavePolicy.from_recipe(recipe.checkpoint),),
        recovery=RecoveryPolicy.from_recipe(recipe.resilience, RUNGS),
        budget=BudgetPolicy.from_recipe(recipe.budget),
    )
    failures = every_node(RANKS * recipe.checkpoint.failures_per_day, DETECT_S)
    strikes = At(FAULTS, Fault("crash", "process", 1.0, DETECT_S))
    course = Course(job, failures, policies, horizon_s=HORIZON_S, detailed=True, strikes=strikes)  # type: ignore[arg-type]
    outcome = course.run()
    found: list[tuple[float, str, Any]] = []
    for attempt in outcome.record.attempts:
        last_s = attempt.alive_s if attempt.alive_s else outcome.wall_s
        found += [(s.t0_s, "save", s.step) for s in attempt.saves if s.t1_s <= last_s + 1e-6]
    for made in outcome.record.decisions:
        if isinstance(made.event, RanksLost):
            found.append((made.t_s, "lost", type(made.action).__name__))
    trace: Trace = [(what, value) for _, what, value in sorted(found, key=lambda item: item[0])]
    if any(value == "Stop" for what, value in trace if what == "lost"):  # a person is not waited for here
        upto = [value for _, value in trace].index("Stop") + 1
        saves = [value for what, value in trace[:upto] if what == "save"]
        return [*trace[:upto], ("stop", saves[-1] if saves else 0)]
    if outcome.end.startswith("budget"):
        return [*_without_last_save(trace, outcome.steps), ("stop", outcome.steps)]
    return [*_without_last_save(trace, outcome.steps), ("end", outcome.steps)]


def _without_last_save(trace: Trace, steps: int) -> Trace:
    """The save that ends a run is nobody's decision."""
    return trace[:-1] if trace and trace[-1] == ("save", steps) else trace


def both(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Trace, Trace]:
    recipe = parse_recipe(BASE, RECIPES[name])
    return engine_trace(recipe, folder, monkeypatch), simulator_trace(recipe)


@pytest.mark.parametrize("name", RECIPES)
def test_one_list_of_events_one_list_of_decisions(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, simulated = both(name, tmp_path / "run", monkeypatch)
    assert engine == simulated
    assert sum(what == "lost" for what, _ in engine) >= 2
    assert sum(what == "save" for what, _ in engine) >= 3 or name == "impatient"


def _sooner(self: SavePolicy, view: Any) -> float:
    return 111.0


def _only_sevens(self: SavePolicy, view: Any) -> int:
    return max(7, -(-view.step // 7) * 7) if view.step > view.committed_step.get("storage", 0) else view.step + 7


def _never(self: SavePolicy, view: Any, event: Any) -> Action:
    return Wait()


def _give_up(self: RecoveryPolicy, view: Any, event: Any) -> Action:
    return Stop(Exit.NEEDS_PERSON, "patched")


def _patient(self: RecoveryPolicy, view: Any, event: Any) -> Action:
    return RestartWorkers()


def _stop_at_once(self: BudgetPolicy, view: Any, event: Any) -> Action:
    return Stop(Exit.DONE, "budget: patched") if event.since_created_s > 1000 else Wait()


@pytest.mark.parametrize(
    ("name", "owner", "method", "patch"),
    [
        ("Daly", SavePolicy, "interval_s", _sooner),
        ("seconds", SavePolicy, "due_step", _only_sevens),
        ("seconds", SavePolicy, "decide", _never),
        ("seconds", RecoveryPolicy, "decide", _give_up),
        ("impatient", RecoveryPolicy, "decide", _patient),
        ("deadline", BudgetPolicy, "decide", _stop_at_once),
    ],
)
def test_a_changed_method_changes_both_alike(
    name: str, owner: type, method: str, patch: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, _ = both(name, tmp_path / "before", monkeypatch)
    monkeypatch.setattr(owner, method, patch)
    engine, simulated = both(name, tmp_path / "after", monkeypatch)
    assert engine != before
    assert simulated != before
    assert engine == simulated


def test_the_traces_can_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A method patched for one side only is seen."""
    recipe = parse_recipe(BASE, RECIPES["seconds"])
    engine = engine_trace(recipe, tmp_path / "run", monkeypatch)
    monkeypatch.setattr(SavePolicy, "interval_s", _sooner)
    assert simulator_trace(recipe) != engine
