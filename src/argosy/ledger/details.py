"""Tables of a report's details as plain cells: the same in the terminal and on the page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from argosy.ledger.cells import NOT_KNOWN, duration, number, percent, seconds, si
from argosy.ledger.report_model import Report

SHOWN_CAUSES = 10
SHOWN_MODULES = 12
SHOWN_RANKS = 8


@dataclass(frozen=True)
class Cell:
    """What is shown, and the exact value where it was rounded."""

    shown: str
    value: object = None


@dataclass(frozen=True)
class Table:
    """A titled table; its first column is words."""

    id: str
    title: str
    note: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]


def detail_tables(report: Report) -> Iterator[Table]:
    """All tables that have something in them, in reading order."""
    for make in (_causes, _modules, _pace, _memory, _learning):
        table = make(report)
        if table.rows:
            yield table


def alerts(report: Report) -> list[str]:
    """What a reader should look at besides the verdict."""
    memory = [f"rank {row.rank} of attempt {row.attempt}: memory {row.alert}" for row in report.memory if row.alert]
    changes = [
        f"from step {change.step:,} on steps took {duration(change.after_s)} instead of {duration(change.before_s)}: "
        f"{change.phase} on rank {change.rank}"
        for attempt in report.pace
        for change in attempt.changes
    ]
    return [*report.health.alerts, *changes, *memory]


def _causes(report: Report) -> Table:
    whole = sum(cause.ns for cause in report.causes)
    rows = [
        (
            Cell(f"rank {cause.rank}" if cause.rank is not None else NOT_KNOWN),
            Cell(cause.host or NOT_KNOWN),
            Cell(cause.doing),
            Cell(seconds(cause.ns), cause.ns),
            Cell(percent(cause.ns / whole) if whole else NOT_KNOWN),
            Cell(number(cause.steps)),
        )
        for cause in report.causes[:SHOWN_CAUSES]
    ]
    rest = report.causes[SHOWN_CAUSES:]
    if rest:
        ns = sum(cause.ns for cause in rest)
        words = Cell(f"{len(rest)} smaller")
        rows.append((words, Cell(""), Cell(""), Cell(seconds(ns), ns), Cell(percent(ns / whole)), Cell("")))
    return Table(
        "causes",
        "Who made others wait, doing what",
        "Device-seconds that others waited for this rank: comm.wait_slow_rank, seen from its cause. They sum to it.",
        ("rank", "host", "doing", "device-s", "share", "steps"),
        rows,
    )


def _modules(report: Report) -> Table:
    rows = [
        (
            Cell(row.name),
            Cell(percent(row.share), row.share),
            Cell(duration(row.forward_ns / 1e9), row.forward_ns),
            Cell(duration(row.backward_ns / 1e9), row.backward_ns),
            Cell(duration(row.recompute_ns / 1e9) if row.recompute_ns else "", row.recompute_ns),
            Cell(duration(row.idle_ns / 1e9), row.idle_ns),
            Cell(si(row.flops) if row.flops is not None else NOT_KNOWN, row.flops),
            Cell(percent(row.of_peak), row.of_peak),
        )
        for row in report.modules[:SHOWN_MODULES]
    ]
    return Table(
        "modules",
        "Which module is the bottleneck",
        "Mean of the profiled steps of one rank. Idle: the host was in its forward and nothing computed.",
        ("module", "share", "forward", "backward", "again", "idle", "FLOP", "of peak"),
        rows,
    )


def _pace(report: Report) -> Table:
    rows = [
        (
            Cell(f"attempt {row.attempt}"),
            Cell(duration(row.p50_s), row.p50_s),
            Cell(duration(row.p99_s), row.p99_s),
            Cell(f"{row.p99_s / row.p50_s:.2f}" if row.p50_s else NOT_KNOWN),
            Cell(number(len(row.changes))),
        )
        for row in report.pace
    ]
    note = "Step time without evaluations and saves, on the first rank."
    return Table("pace", "Steadiness", note, ("", "p50", "p99", "p99 ÷ p50", "changes of level"), rows)


def _memory(report: Report) -> Table:
    largest = sorted(report.memory, key=lambda row: (row.alert is None, -row.peak))[:SHOWN_RANKS]

    def size(value: int | None) -> Cell:
        return Cell(f"{si(value)}B" if value is not None else NOT_KNOWN, value)

    rows = [
        (
            Cell(f"rank {row.rank}, attempt {row.attempt}"),
            *map(size, (row.peak, row.parameters, row.gradients, row.optimizer, row.other)),
            Cell(f"{si(row.growth_per_step)}B" if row.growth_per_step else NOT_KNOWN, row.growth_per_step),
        )
        for row in largest
    ]
    note = "Largest peaks first, alerts before all. Other: activations, buffers, the interpreter."
    heads = ("", "peak", "parameters", "gradients", "optimizer", "other", "growth per step")
    return Table("memory", "Memory", note, heads, rows)


def _learning(report: Report) -> Table:
    worth = report.worth
    rows = [
        (
            Cell(f"source {source.name}"),
            Cell(f"{source.tokens:,} tokens, {source.first_seen:,} seen first, {source.effective:,.0f} effective"),
        )
        for source in worth.sources
    ]
    unit = report.currency or "unit of money"
    if worth.loss_per_money is not None:
        rows.append((Cell("now"), Cell(f"{worth.loss_per_money:.4g} nats per {unit}", worth.loss_per_money)))
    if worth.loss_per_device_hour is not None:
        shown = f"{worth.loss_per_device_hour:.4g} nats per paid device-hour"
        rows.append((Cell("now"), Cell(shown, worth.loss_per_device_hour)))
    if worth.money_to_target is not None:
        shown = f"at least {worth.money_to_target:,.4g} {unit} to a loss of {worth.target_loss:g}"
        rows.append((Cell("to the target"), Cell(shown, worth.money_to_target)))
    for noise in report.noise:
        shown = (
            f"{noise.tokens:,.0f} tokens ({noise.low:,.0f} to {noise.high:,.0f}), batches of {noise.batch_tokens:,.0f}"
        )
        rows.append((Cell(f"noise scale, attempt {noise.attempt}"), Cell(shown, noise.tokens)))
    for valued in worth.valued:
        amount = f"{seconds(valued.ns)} device-seconds; " if valued.ns is not None else ""
        rows.append((Cell(valued.account), Cell(f"{amount}{valued.why}", valued.ns)))
    note = f"Valued, not in the partition above. Law of repetition: {worth.law}."
    return Table("worth", "What the useful time was worth", note, ("", ""), rows)
