"""The closed list of accounts, and which account a moment belongs to.

Two questions are asked of every paid nanosecond: what was the device doing (*phys*), and what became of the work
(*fate*). The account is a function of the two, so accounts are disjoint and sum to what was paid, and so do both
margins. Names and definitions follow research/ledger.md section 2, `layer.account[.axis]`.
"""

from dataclasses import dataclass
from typing import Literal

from argosy.journal.phys import AXES, MATH, STARTUP, STEP_EXTERNAL
from argosy.journal.phys import PHYS as MEASURED

Kind = Literal["exact", "valued", "money-only"]

DIVIDED = (
    "launch_gap",
    "sync_point",
    "allocator",
    "contention",
    "padding",
    "comm.wait",
    "bubble",
    *(f"comm.transfer.{axis}" for axis in AXES),
)
"""Into what the ledger divides the phases that a rank declared: by token counts, by profiles of sampled steps, by the
kernel's accounting, and by comparing ranks."""

CONCLUDED = (
    "unattributed",
    "unmapped",
    "torn",
    "no_telemetry",
    "clock",
    "detect",
    "spare",
    "not_allocated",
    "no_process.before",
    "no_process.between",
    "no_process.held",
)
"""What no rank can write about itself; the ledger concludes it from the other files."""

PHYS = (*MEASURED, *DIVIDED, *CONCLUDED)

FATES = (
    "none",
    "kept",
    "kept_provisional",
    "lost_failure",
    "discarded_decision",
    "skipped",
    "diverged",
    "surplus",
    "late",
    "duplicate",
    "unused",
    "unknown",
)
"""What became of work; `none` where no work was attempted."""


@dataclass(frozen=True)
class Account:
    """A line of the ledger."""

    name: str
    definition: str
    phys: str
    """What devices did in it; `any` where fate alone decides."""
    fate: str
    precedence: int
    """Of two accounts that fit a moment the lower number takes it (research/ledger.md 3.3); 0: no time of its own."""
    measured: str
    kind: Kind = "exact"
    since: str | None = "0.1"
    """Version that first fills it; None: no producer yet."""


def _later(name: str, definition: str, phys: str, measured: str, precedence: int = 6, kind: Kind = "exact") -> Account:
    """An account whose producer is still to come."""
    fate = "kept" if kind == "exact" else "any"
    return Account(name, definition, phys, fate, 0 if kind != "exact" else precedence, measured, kind, None)


def _now(name: str, definition: str, phys: str, measured: str, precedence: int = 6) -> Account:
    """A division of declared phases, of work that was kept."""
    return Account(name, definition, phys, "kept", precedence, measured, since="0.2")


def _judged(name: str, definition: str, fate: str) -> Account:
    """Steps that ran well and should not have run, as a `decision` record says."""
    return Account(name, definition, "any", fate, 4, "decision records", since="0.2")


_PROFILED = "profiled steps, the others by their share"

_STARTUP_MEANING = {
    "process_start": "the launcher's start of the processes until their first line",
    "import": "modules are loaded",
    "rendezvous": "waiting for the other ranks",
    "comm_init": "process groups are built",
    "model_init": "model and optimizer are built, sharded and moved",
    "ckpt_load": "a checkpoint is read and spread",
    "data_seek": "data are prepared and the loader moves to its position",
    "calibrate": "the machine's matrix-product peak is measured",
}

ACCOUNTS = (
    Account(
        "useful.model_math",
        "forward, backward and update, once, in a step that the kept model contains",
        "forward, backward, optimizer",
        "kept",
        7,
        "declared phases",
    ),
    Account(
        "useful.provisional",
        "the same, held by no durable checkpoint yet",
        "forward, backward, optimizer",
        "kept_provisional",
        7,
        "declared phases",
    ),
    Account("compute.data_wait", "waiting for the next batch", "data_wait", "kept", 6, "phase"),
    Account("compute.h2d_copy", "exposed copy of a batch to the device", "h2d_copy", "kept", 6, "phase"),
    Account("compute.compile", "tracing and compiling outside start-up", "compile", "kept", 5, "phase"),
    Account("compute.gc", "Python's cyclic garbage collector", "gc", "kept", 6, "gc.callbacks"),
    Account("compute.telemetry", "journal, logging and profiler", "telemetry", "kept", 5, "the recorder's own clock"),
    Account("compute.eval", "validation and sampling during the run", "eval", "none", 5, "span"),
    _now("compute.recompute", "forward repeated for activation checkpointing", "recompute", "profiled steps", 7),
    _now("compute.padding", "math on positions that are padding", "padding", "token counts", 7),
    _now("compute.launch_gap", "no work for the device: dispatch, or the host stood still", "launch_gap", _PROFILED),
    _now("compute.sync_point", "the device's queue drained while the host waited for it", "sync_point", _PROFILED),
    _now("compute.allocator", "the host waited for device memory", "allocator", _PROFILED),
    _now("compute.contention", "math without a processor: others had it", "contention", "the kernel's queue time"),
    _later("compute.moe_slack", "capacity padding and dropped tokens inside a rank", "moe_slack", "router counts"),
    _later("compute.kernel_inefficiency", "busy time beyond FLOPs ÷ peak", "busy", "FLOPs, peak", kind="valued"),
    _later("compute.throttle", "slower by clocks", "busy", "clock counters", kind="valued"),
    *(
        Account(
            f"comm.exposed.{axis}",
            f"compute stood still for communication on axis {axis}: transfer and waiting, not told apart",
            f"comm.exposed.{axis}",
            "kept",
            6,
            "stamps around each wait",
        )
        for axis in AXES
    ),
    Account("comm.control", "barriers, flags, logging reductions", "comm.control", "kept", 6, "stamps around calls"),
    *(
        _now(f"comm.transfer.{axis}", f"bytes moving on axis {axis}", f"comm.transfer.{axis}", "join of stamps")
        for axis in AXES
    ),
    _now("comm.wait_slow_rank", "waiting for the last participant", "comm.wait", "join of stamps"),
    _now("comm.bubble", "a pipeline stage waits for its neighbours", "bubble", "join of stamps on axis pp"),
    _now("comm.outer_sync", "outer step of loosely coupled replicas", "comm.outer_sync", "span"),
    _later("comm.lazy_init", "first use of a communicator outside of warm-up", "comm.lazy_init", "first call"),
    _later("comm.degraded", "transfer above its baseline", "comm.transfer", "fit over calls", kind="valued"),
    _later("comm.interference", "compute slower under communication", "busy", "matched medians", kind="valued"),
    *(
        Account(f"stability.{name.removeprefix('startup.')}", meaning, name, "none", 3, "span")
        for name, meaning in ((name, _STARTUP_MEANING[name.removeprefix("startup.")]) for name in STARTUP)
    ),
    Account("stability.warmup", "excess of an attempt's first steps over settled ones", "warmup", "any", 3, "see docs"),
    Account("stability.detect", "last sign of life to the verdict that it is dead", "detect", "none", 3, "heartbeat"),
    Account("stability.teardown", "last record to the release of the devices", "teardown", "none", 3, "close record"),
    Account("stability.provision", "paid before the first attempt", "no_process.before", "none", 2, "paid set"),
    Account("stability.reschedule", "paid between attempts", "no_process.between", "none", 2, "paid set"),
    Account("stability.spare", "paid for, held ready, in no attempt", "spare", "none", 2, "paid set"),
    Account("stability.lost_work", "steps that a failure undid", "any", "lost_failure", 4, "restore records"),
    Account("stability.skipped_step", "steps computed and thrown away", "any", "skipped", 4, "step records"),
    Account("stability.ckpt_block", "training stands still for a save", "ckpt_block", "none", 5, "span"),
    Account(
        "stability.terminate", "verdict to all processes gone", "terminate", "none", 3, "agent's span", since="0.2"
    ),
    Account("stability.health_check", "burn-in and corruption probes", "health_check", "none", 5, "span", since="0.2"),
    _later("stability.ckpt_interference", "steps slower while a save runs", "busy", "matched medians", kind="valued"),
    Account("decision.rollback", "steps undone on purpose", "any", "discarded_decision", 4, "restore records"),
    Account("decision.idle_reservation", "paid, and nobody meant to run", "no_process.held", "none", 2, "paid set"),
    _judged("decision.beyond_target", "steps after the target was met", "surplus"),
    _judged("decision.diverged", "from the last kept state to the stop of a run that diverged", "diverged"),
    _judged("decision.late_kill", "beyond the step at which the stop rule would have ended it", "late"),
    _judged("decision.duplicate_run", "the same recipe, data and seed again", "duplicate"),
    _judged("decision.unused_result", "a run that nothing refers to", "unused"),
    Account("decision.unallocated", "paid, in no allocation", "not_allocated", "none", 2, "bill", since="0.2"),
    _later("decision.oversize", "device time per token against the best layout", "any", "planner", kind="valued"),
    _later("decision.repeated_data", "value lost by repeating data", "any", "first-seen counts", kind="valued"),
    _later("decision.beyond_optimal", "compute beyond the optimal split", "any", "scaling law", kind="valued"),
    _later("decision.batch_too_large", "tokens beyond the noise scale", "any", "noise scale", kind="valued"),
    _later("decision.eval_excess", "evaluation beyond plan", "eval", "plan", kind="valued"),
    _later("decision.ckpt_interval", "distance from the best save interval", "ckpt_block", "Daly", kind="valued"),
    _later("decision.price_regret", "the price that was available", "any", "price list", kind="money-only"),
    Account("unattributed.residual", "paid, in an attempt, in no span", "unattributed", "any", 8, "what is left"),
    Account("unattributed.no_telemetry", "a rank without a journal", "no_telemetry", "any", 1, "files of an attempt"),
    Account("unattributed.torn", "the journal is damaged there", "torn", "any", 1, "numbers of records"),
    Account("unattributed.clock", "within the error of aligned clocks", "clock", "any", 1, "anchors", since=None),
    Account("unattributed.unmapped", "a name that this version does not know", "unmapped", "any", 8, "journal"),
)

BY_NAME = {row.name: row for row in ACCOUNTS}

_DEAD = {
    "torn": "unattributed.torn",
    "no_telemetry": "unattributed.no_telemetry",
    "clock": "unattributed.clock",
    "no_process.before": "stability.provision",
    "no_process.between": "stability.reschedule",
    "no_process.held": "decision.idle_reservation",
    "spare": "stability.spare",
    "not_allocated": "decision.unallocated",
    "terminate": "stability.terminate",
    "detect": "stability.detect",
    "teardown": "stability.teardown",
    "warmup": "stability.warmup",
    **{name: f"stability.{name.removeprefix('startup.')}" for name in STARTUP},
}
_UNDONE = {
    "lost_failure": "stability.lost_work",
    "skipped": "stability.skipped_step",
    "discarded_decision": "decision.rollback",
    "diverged": "decision.diverged",
    "surplus": "decision.beyond_target",
    "late": "decision.late_kill",
    "duplicate": "decision.duplicate_run",
    "unused": "decision.unused_result",
}
_COMPUTE = ("eval", "telemetry", "compile", "data_wait", "gc", "h2d_copy")
_ALIVE = {
    "ckpt_block": "stability.ckpt_block",
    "unattributed": "unattributed.residual",
    "health_check": "stability.health_check",
    "comm.wait": "comm.wait_slow_rank",
    "bubble": "comm.bubble",
    **{name: f"compute.{name}" for name in (*_COMPUTE, *DIVIDED[:5], "recompute")},
    **{name: name for name in ("comm.control", "comm.outer_sync")},
    **{name: name for axis in AXES for name in (f"comm.exposed.{axis}", f"comm.transfer.{axis}")},
}
_MATH = {"kept": "useful.model_math", "kept_provisional": "useful.provisional"}


def account(phys: str, fate: str) -> str:
    """The account of a moment in which a device did `phys` in work that came to `fate`.

    The order is the precedence of research/ledger.md 3.3. Undone comes before stalls on purpose: a data wait in a
    lost step is lost work, because a faster loader would not have saved that second twice.
    """
    if phys in _DEAD:
        return _DEAD[phys]
    if fate in _UNDONE and phys not in STEP_EXTERNAL:
        return _UNDONE[fate]
    if phys in MATH:
        return _MATH.get(fate, "unattributed.unmapped")
    return _ALIVE.get(phys, "unattributed.unmapped")
