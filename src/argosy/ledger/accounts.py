"""The closed list of accounts, and which account a moment belongs to.

Two questions are asked of every paid nanosecond: what was the device doing (*phys*), and what became of the work
(*fate*). The account is a function of the two, so accounts are disjoint and sum to what was paid, and so do both
margins. Names and definitions follow research/ledger.md section 2, `layer.account[.axis]`.
"""

from dataclasses import dataclass
from typing import Literal

from argosy.journal.phys import AXES, STARTUP, STEP_EXTERNAL
from argosy.journal.phys import PHYS as MEASURED

Kind = Literal["exact", "valued", "money-only"]

CONCLUDED = (
    "unattributed",
    "unmapped",
    "torn",
    "no_telemetry",
    "clock",
    "detect",
    "spare",
    "no_process.before",
    "no_process.between",
    "no_process.held",
)
"""What no rank can write about itself; the ledger concludes it from the other files."""

PHYS = (*MEASURED, *CONCLUDED)

FATES = (
    "none",
    "kept",
    "kept_provisional",
    "lost_failure",
    "discarded_decision",
    "skipped",
    "surplus",
    "unknown",
)
"""What became of work; `none` where no work was attempted."""

MATH = ("forward", "backward", "optimizer")


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
    _later("compute.recompute", "forward repeated for activation checkpointing", "recompute", "hooks", 7),
    _later("compute.padding", "work on positions that are padding", "padding", "token counts", 7),
    _later("compute.moe_slack", "capacity padding and dropped tokens inside a rank", "moe_slack", "router counts"),
    _later("compute.launch_gap", "device queue empty, host busy", "launch_gap", "profiler on sampled steps"),
    _later("compute.sync_point", "queue drained after a blocking read", "sync_point", "profiler on sampled steps"),
    _later("compute.allocator", "device memory calls and retries", "allocator", "allocator counters", kind="valued"),
    _later("compute.kernel_inefficiency", "busy time beyond FLOPs ÷ peak", "busy", "FLOPs, peak", kind="valued"),
    _later("compute.throttle", "slower by clocks", "busy", "clock counters", kind="valued"),
    _later("compute.contention", "slower by other tenants", "busy", "pressure counters", kind="valued"),
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
        _later(f"comm.transfer.{axis}", f"bytes moving on axis {axis}", "comm.transfer", "join of stamps")
        for axis in AXES
    ),
    _later("comm.wait_slow_rank", "waiting for the last participant", "comm.wait", "join of stamps"),
    _later("comm.bubble", "idle of a pipeline stage inside a step", "bubble", "schedule and stamps"),
    _later("comm.lazy_init", "first use of a communicator", "comm.lazy_init", "first call less median"),
    _later("comm.outer_sync", "outer step of loosely coupled replicas", "comm.outer_sync", "span"),
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
    _later("stability.terminate", "verdict to all processes gone", "terminate", "agent stamps", 3),
    _later("stability.health_check", "burn-in and corruption probes", "health_check", "span", 5),
    _later("stability.ckpt_interference", "steps slower while a save runs", "busy", "matched medians", kind="valued"),
    Account("decision.rollback", "steps undone on purpose", "any", "discarded_decision", 4, "restore records"),
    Account("decision.idle_reservation", "paid, and nobody meant to run", "no_process.held", "none", 2, "paid set"),
    Account("decision.beyond_target", "steps after the target was met", "any", "surplus", 4, "decision records"),
    _later("decision.unallocated", "paid devices in no allocation", "not_allocated", "bill", 2),
    _later("decision.diverged", "from the last kept state to the stop", "any", "postings", 4),
    _later("decision.late_kill", "beyond the point at which the stop rule would have ended it", "any", "lab", 4),
    _later("decision.duplicate_run", "the same recipe, data and seed again", "any", "registry", 4),
    _later("decision.unused_result", "a run that nothing refers to", "any", "registry", 4),
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
    "detect": "stability.detect",
    "teardown": "stability.teardown",
    "warmup": "stability.warmup",
    **{name: f"stability.{name.removeprefix('startup.')}" for name in STARTUP},
}
_UNDONE = {
    "lost_failure": "stability.lost_work",
    "skipped": "stability.skipped_step",
    "discarded_decision": "decision.rollback",
    "surplus": "decision.beyond_target",
}
_ALIVE = {
    "ckpt_block": "stability.ckpt_block",
    "unattributed": "unattributed.residual",
    **{name: f"compute.{name}" for name in ("eval", "telemetry", "compile", "data_wait", "gc", "h2d_copy")},
    **{name: name for name in ("comm.control", *(f"comm.exposed.{axis}" for axis in AXES))},
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
