"""The answer of a simulation in a terminal."""

import math

from rich.console import Console
from rich.table import Table
from rich.text import Text

from argosy.ledger.cells import NOT_KNOWN, bar
from argosy.simulator.answer import Answer
from argosy.simulator.replicate import Interval
from argosy.simulator.search import Setting
from argosy.simulator.validate import Verdict

SHOWN_ROWS = 12


def render(answer: Answer, console: Console) -> None:
    """Print the answer."""
    scenario, sample = answer.scenario, answer.sample
    job, failures = scenario.job, scenario.failures
    rate = failures.per_s(job.nodes)
    head = Table.grid(padding=(0, 2))
    head.add_column(style="dim", no_wrap=True)
    head.add_column()
    groups = f" in {job.replica_groups} replica groups" if job.replica_groups > 1 else ""
    spot = "" if job.spot is None else f", taken back {job.spot.preemptions_per_day:g} times a day"
    head.add_row("job", f"{job.gpus:,} GPUs{groups}, {job.spares} spare nodes, steps of {job.step_time_s:g} s{spot}")
    every = f", one every {time_of(1 / rate)}" if rate else ""
    source = f" ({failures.source})" if failures.source else ""
    head.add_row("failures", f"{failures.title}{every}{source}")
    head.add_row("saves", "; ".join(_save(answer, i) for i in range(len(scenario.policies.saves))))
    useful, effective = Interval.of(sample.useful_share), Interval.of(sample.effective_share)
    head.add_row("useful", f"{_percent(useful)} of what is paid; {_percent(effective)} of the job's own time")
    head.add_row("by formula", f"{answer.closed_form:.1%} for whole restarts at the best interval (Daly, exact)")
    wall = Interval.of(sample.wall_s / 86_400)
    done = "" if job.steps is None else f"; all {job.steps:,} steps done in {sample.finished:.0%} of replications"
    head.add_row("time", f"{wall.mean:,.1f} days{done}")
    head.add_row("restarts", f"{sample.restarts.mean():,.0f}: {_counts(sample.faults)}")
    if sample.actions:
        head.add_row("decided", _counts(sample.actions))
    for note, count in sample.notes.items():
        head.add_row("note", f"{note} {count:,.1f} times" if count >= 0.05 else f"{note} once in {1 / count:,.0f} jobs")
    if sample.money is not None:
        cost = Interval.of(sample.cost_of_work(answer.question.value_per_day))
        text = f"{amount(float(sample.money.mean()))} {job.currency}; undisturbed work of this time costs "
        head.add_row("money", f"{text}{money(cost)} {job.currency}")
    head.add_row("from", f"{len(sample)} replications, 95 % intervals")
    console.print(head)
    console.print()
    console.print(_waterfall(answer))
    if answer.found:
        console.print()
        console.print(_found(answer))
    if answer.swings:
        console.print()
        console.print(_tornado(answer))
    if answer.worth:
        console.print()
        console.print(_worth(answer))


def _save(answer: Answer, index: int) -> str:
    policy = answer.scenario.policies.saves[index]
    if policy.every_steps is not None:
        return f"{policy.tier} every {policy.every_steps} steps"
    interval_s = policy.interval_s(answer.scenario.first_view)
    if interval_s < answer.scenario.job.step_time_s:
        return f"{policy.tier} after each step"
    return f"{policy.tier} {'never before the end' if math.isinf(interval_s) else f'every {time_of(interval_s)}'}"


def _waterfall(answer: Answer) -> Table:
    sample = answer.sample
    paid_s = float(sample.paid_s.mean())
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("where the paid time goes")
    for name in ("%", "GPU-hours", answer.currency or "money"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for name, seconds in sorted(sample.accounts.items(), key=lambda item: -item[1]):
        cost = NOT_KNOWN if sample.money is None else amount(float(sample.money.mean()) * seconds / paid_s)
        share = seconds / paid_s
        table.add_row(name, f"{100 * share:.2f}", f"{seconds / 3600:,.0f}", cost, bar(0, round(1000 * share), 1000, 24))
    return table


def _found(answer: Answer) -> Table:
    assert answer.found is not None
    unit = answer.currency or "device-s"
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("policy", "useful %", f"cost of the work ({unit})", "above the best", ""):
        table.add_column(name, justify="left" if name in ("policy", "") else "right")
    for row in answer.found.rows[:SHOWN_ROWS]:
        above = "best" if not row.more_than_best.mean and row.ties else money(row.more_than_best)
        tie = "cannot be told from the best" if row.ties and above != "best" else ""
        table.add_row(setting(row.setting), f"{100 * row.useful.mean:.2f}", amount(row.cost.mean), above, tie)
    for knobs, why in answer.found.refused[:SHOWN_ROWS]:
        table.add_row(setting(knobs), "", "", "", Text(why, style="dim"))
    return table


def _tornado(answer: Answer) -> Table:
    unit = answer.currency or "device-s"
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("assumption", f"cost at half ({unit})", "at twice", "useful % at half", "at twice"):
        table.add_column(name, justify="left" if name == "assumption" else "right")
    for swing in answer.swings:
        costs = [amount(cost) for cost in swing.cost]
        table.add_row(swing.name, *costs, *(f"{100 * share:.1f}" for share in swing.useful))
    return table


def worth_rows(answer: Answer) -> list[tuple[str, str]]:
    """What things are worth, in words."""
    found = answer.worth
    assert found is not None
    unit = answer.currency or "device-s"
    delay = found.delay
    price = f", at {amount(found.day_of_delay)} {unit} a day" if found.day_of_delay else ""
    rows = [
        ("a minute less to restart", f"saves {money(found.restart_minute_per_month)} {unit} a month"),
        ("delay", f"{delay.mean:,.2f} ± {delay.half:,.2f} days by failures and saves{price}"),
    ]
    if found.spare_break_even is not None:
        rows.append(("one more spare node", f"pays up to {found.spare_break_even:,.1f} × the price of a working one"))
    if found.spot_break_even is not None:
        rows.append(("spot capacity", f"pays below {found.spot_break_even:.0%} of the price of reserved"))
    for row in found.rates:
        many = "" if row.experiments is None else f"; the budget pays {row.experiments:,.1f} such jobs"
        large = f"half is still useful at {row.largest_gpus:,} GPUs" if row.largest_gpus else "less than half is useful"
        rows.append(
            (
                f"failures × {row.factor:g}",
                f"useful {row.useful:.1%}, work costs {amount(row.cost)} {unit}{many}; {large}",
            )
        )
    return rows


def _worth(answer: Answer) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, text in worth_rows(answer):
        table.add_row(name, text)
    return table


def render_verdicts(verdicts: list[Verdict], console: Console) -> None:
    """Print what the simulator says where the answer is known."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("", "known", "simulated", "holds", "assumed"):
        table.add_column(name)
    for verdict in verdicts:
        case = verdict.case
        known = f"{case.low:.2f} to {case.high:.2f}" if case.expected is None else f"{case.expected:.4f}"
        said = f"{verdict.useful.mean:.4f} ± {verdict.useful.half:.4f}"
        table.add_row(f"{case.name} ({case.source})", known, said, "yes" if verdict.holds else "no", case.assumed)
    console.print(table)


def setting(knobs: Setting) -> str:
    """Knobs and their values in one line."""
    parts = (f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in knobs.items())
    return ", ".join(parts) or "as usual"


def _counts(counts: dict[str, float]) -> str:
    return ", ".join(f"{count:,.0f} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))


def _percent(interval: Interval) -> str:
    width = f" ± {100 * interval.half:.2f}" if math.isfinite(interval.half) else ""
    return f"{100 * interval.mean:.2f}{width} %"


def money(interval: Interval) -> str:
    """A mean and half the width of its interval."""
    width = f" ± {amount(interval.half)}" if math.isfinite(interval.half) else ""
    return f"{amount(interval.mean)}{width}"


def amount(value: float) -> str:
    """A sum at a precision that suits its size."""
    if not math.isfinite(value):
        return "no end"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"


def time_of(seconds: float) -> str:
    """A duration in the unit that suits it."""
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
