"""Words of the command line as values of the simulator."""

import csv
import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

from argosy.errors import InputError, UsageError
from argosy.planner import quantities
from argosy.recipe.load import load_recipe
from argosy.simulator.failures import DAY_S, HOUR_S, Failures, exponential, preset, with_kind
from argosy.simulator.job import Job, Price, SaveTimes, Spot, restart_phases
from argosy.simulator.plans import read_plan
from argosy.simulator.scenario import Scenario, read_policy, spares_for

DAYS = 30.0


def job(
    *,
    plan: Path | None,
    gpus: int | None,
    step_time_s: float,
    batch_tokens: str | None,
    per_node: int,
    save: str | None,
    save_counts: str,
    memory_save: str | None,
    restore: str,
    restart: str | None,
    refill: str | None,
    groups: int,
    elastic: int | None,
    price: str | None,
    spot: float | None,
    own_save: bool,
) -> Job:
    """The job that is meant. Raises UsageError naming the option that is wrong."""
    if (plan is None) == (gpus is None):
        raise UsageError("give --plan or --gpus", do="argosy simulate --gpus 16384 --failures llama3 --days 54")
    restore_s = _seconds(restore, "--restore")
    if plan is not None:
        found = read_plan(plan)
        if batch_tokens is not None:
            raise UsageError("a plan knows its batch", where="--batch-tokens", do="leave it out, or give --gpus")
    else:
        assert gpus is not None
        found = Job(
            gpus,
            step_time_s,
            {"storage": SaveTimes(10.0, 60.0, restore_s)},
            restart_phases(max(gpus, 1)),
            per_node,
            tokens_per_step=0 if batch_tokens is None else quantities.count(batch_tokens, "--batch-tokens"),
        )
    if own_save or plan is None:
        block_s = _seconds(save or "10s", "--save")
        storage = SaveTimes(block_s, max(block_s, _seconds(save_counts, "--save-counts")), restore_s)
        found = replace(found, saves=found.saves | {"storage": storage})
    if memory_save is not None:
        block_s = _seconds(memory_save, "--memory-save")
        # a copy from a peer's memory crosses the network once; a checkpoint the storage too
        found = replace(found, saves=found.saves | {"memory": SaveTimes(block_s, max(block_s, 1.0), restore_s / 6)})
    if restart is not None:
        found = found.with_restart(_seconds(restart, "--restart"))
    return replace(
        found,
        refill_s=None if refill is None else _seconds(refill, "--refill"),
        replica_groups=groups,
        batch_sequences=elastic,
        prices=found.prices if price is None else _prices(price),
        spot=None if spot is None else Spot(spot),
    )


def failures(name: str, job: Job, *, slow: float, domain: float, storage: float) -> Failures:
    """Published failures by name, or ``mtbf:3h`` for one kind of fault that often; and more kinds on top."""
    if name.startswith("mtbf:"):
        found = exponential(_seconds(name.removeprefix("mtbf:"), "--failures", above_zero=True), job.nodes)
        found = replace(found, faults=(replace(found.faults[0], kind="hardware", detect_s=30.0),))
    else:
        found = preset(name)
    for kind, rate in (("slow", slow), ("domain", domain), ("storage", storage)):
        found = with_kind(found, kind, rate)  # type: ignore[arg-type]
    return found


def scenario(job: Job, failures: Failures, *, spares: str, days: float | None, policies: list[str]) -> Scenario:
    """Job, failures, time and policies together; spares by the policy when they are ``auto``."""
    if spares == "auto":
        count = spares_for(job, failures)
    elif spares.lstrip("-").isdecimal():
        count = int(spares)
    else:
        raise UsageError(f"{spares!r} spares", where="--spares", do="write a number of nodes, or auto")
    job = replace(job, spares=count)
    if days is not None and not 0 < days < math.inf:
        raise UsageError(f"{days:g} days", where="--days", do="write a number above 0")
    if days is None and job.steps is not None:
        horizon_s = 20 * job.steps * job.step_time_s  # until its work is done, within reason
    else:
        horizon_s = (DAYS if days is None else days) * DAY_S
    replaced, changes = [], {}
    for text in policies:
        name, equals, value = text.partition("=")
        if equals and "." in name and not text.lstrip().startswith("{"):
            changes[name.strip()] = value.strip()
        else:
            replaced.append(read_policy(text))
    found = Scenario(job, failures, horizon_s, changes, tuple(replaced))
    found.policies  # noqa: B018  so that a wrong one is told before anything runs
    return found


def knobs(sweeps: list[str]) -> dict[str, list[float | str]]:
    """``spares=0,4,16`` → {"spares": [0.0, 4.0, 16.0]}."""
    found: dict[str, list[float | str]] = {}
    for text in sweeps:
        name, equals, values = text.partition("=")
        listed = [v.strip() for v in values.split(",") if v.strip()]
        if not equals or not listed:
            raise UsageError(f"{text!r} is no sweep", where="--sweep", do="write spares=0,4,16")
        found[name.strip()] = [_number(v) for v in listed]
    return found


def budget(text: str | None) -> float | None:
    """A sum of money."""
    return None if text is None else quantities.money(text, "--budget")


def value(per_day: float | None, plan: Path | None) -> float:
    """What a day is worth: as told, else as the recipe of the plan's run says, else nothing."""
    if per_day is None:
        recipe = None if plan is None else plan.with_name("recipe.toml")
        told = load_recipe(recipe).budget.value_per_day if recipe is not None and recipe.is_file() else None
        return float(told or 0)
    if not 0 <= per_day < math.inf:
        raise UsageError(f"a day is worth {per_day:g}", where="--value-per-day", do="write 0 or more")
    return per_day


def _prices(text: str) -> tuple[Price, ...]:
    """A price, or a file with lines ``hour,price`` of a price over time."""
    try:
        return (Price(_price(text)),)
    except ValueError:
        pass
    try:
        with Path(text).open(encoding="utf-8", newline="") as stream:
            rows = [row for row in csv.reader(stream) if row]
    except OSError:
        raise UsageError(
            f"{text!r} is neither a price nor a file", where="--price", do="write 2.5, or name a CSV"
        ) from None
    prices = []
    for number, row in enumerate(rows, start=1):
        if number == 1 and not _is_number(row[0]):  # names of the columns
            continue
        try:
            hour, amount = row
            prices.append(Price(_price(amount), float(hour) * HOUR_S))
        except ValueError:
            raise InputError(f"line {number} is not hour,price", where=text, do="write 0,2.10") from None
    if not prices or prices[0].from_s != 0 or any(a.from_s >= b.from_s for a, b in pairwise(prices)):
        raise InputError("prices begin at hour 0 and come in order of time", where=text)
    return tuple(prices)


def _price(text: str) -> Fraction:
    amount = Fraction(text.strip().lstrip("$€£"))
    if amount < 0:
        raise UsageError(f"a price of {text} is below 0", where="--price", do="write 0 for free")
    return amount


def _number(text: str) -> float | str:
    return float(text) if _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _seconds(text: str, where: str, *, above_zero: bool = False) -> float:
    if not above_zero and text.strip().rstrip("s") in ("0", "0.0"):
        return 0.0
    return quantities.duration_s(text, where)
