"""The faults that a drill can make on one machine, each with what must come of it; ids as in the fault catalogue.

A *variant* says what is done, to whom, when, and the right outcome: the class and the rank that the incident must name,
the exit codes of the launcher's starts, and whether the result must equal the undisturbed twin's to the last bit.
"""

from dataclasses import dataclass, field
from typing import Literal

from argosy.errors import Exit
from argosy.resilience.incident import Class

Outside = Literal["kill", "freeze", "freeze_and_wake", "kill_agent", "term_agent", "term_rank", "memory_limit"]

STORM = 9
"""More repetitions than restarts are allowed."""


@dataclass(frozen=True)
class Variant:
    """One way to make a fault."""

    fault: str
    name: str
    expects: Class | None
    """Class of the first incident; None: there must be none."""
    outside: Outside | None = None
    act: str | None = None
    """What the rank itself is told to do; see :mod:`argosy.drill.saboteur`."""
    phase: str = "forward"
    """Declared phase of the rank in which it happens."""
    times: int = 1
    every: int = 0
    seconds: float = 60.0
    exits: tuple[Exit, ...] = (Exit.DONE,)
    """Of the launcher's starts, in order; all but the last are followed by another start."""
    sets: tuple[str, ...] = ()
    steps: int = 0
    """Steps that a trial needs at least."""
    budget_s: float = 1.0
    """From the fault to the verdict."""
    names_rank: bool = True
    equals_twin: bool = True
    again_in: str | None = None
    """A second kill follows as soon as a rank of the next attempt is in this span."""
    unnamed: tuple[str, ...] = field(default_factory=tuple)
    """Other classes that are right too, when chance decides which is seen first."""

    @property
    def id(self) -> str:
        return f"{self.fault} {self.name}"


NAMES = {
    "F01": "worker killed",
    "F02": "worker frozen",
    "F03": "live but stuck",
    "F04": "exception on one rank",
    "F05": "native crash",
    "F06": "memory kill",
    "F07": "rank leaves early with exit code 0",
    "F08": "ranks fall out of step",
    "F09": "slow phase that was declared, and one that was not",
    "F10": "launcher killed",
    "F16": "slow rank",
    "F20": "crash inside a save",
    "F23": "bit flip on one replica",
    "F24": "gradient flip on one rank",
    "F26": "poisoned batch",
    "F28": "termination signal",
    "F30": "second fault during recovery, and a fault that repeats",
}
NOT_COVERED = {
    "F11": "coordinator: several machines only",
    "F12": "flaky store: several machines only",
    "F13": "partition: several machines only",
    "F14": "lossy link: several machines only",
    "F15": "slow link: several machines only",
    "F17": "slow disk: tests/checkpoint",
    "F18": "disk full: tests/checkpoint",
    "F19": "I/O error: tests/checkpoint",
    "F21": "damage at rest: tests/checkpoint",
    "F22": "retention races: tests/checkpoint",
    "F25": "damage in transit: several machines only",
    "F27": "change of world size: part 2",
    "F29": "clock jump: needs libfaketime; no decision here reads a wall clock",
}
REPLICAS = ("layout.dp={nproc}", "layout.fsdp=1")

_NO_ROLL_BACK = ("resilience.roll_back_on_spike=false",)
_LATE = (Exit.START_AGAIN, Exit.DONE)

VARIANTS: tuple[Variant, ...] = (
    *(
        Variant("F01", f"in {phase}", "killed", outside="kill", phase=phase)
        for phase in ("forward", "backward", "comm.control", "optimizer", "data_wait")
    ),
    Variant("F02", "in forward", "frozen", outside="freeze", budget_s=6),
    Variant("F02", "in a collective", "frozen", outside="freeze", phase="comm.control", budget_s=6),
    Variant("F02", "and woken after the verdict", "frozen", outside="freeze_and_wake", budget_s=6),
    Variant("F03", "interpreter lock held", "held", act="hold_lock", budget_s=10, unnamed=("stuck",)),
    Variant("F03", "endless loop", "stuck", act="loop", budget_s=10),
    Variant("F03", "waits for ever", "stuck", act="sleep", phase="backward", budget_s=10),
    Variant("F04", "in a step", "exception", act="raise", budget_s=2),
    Variant("F04", "in the data loader", "exception", act="raise", phase="data_wait", budget_s=2),
    Variant("F04", "before a save", "exception", act="raise", phase="ckpt_block", budget_s=2),
    Variant("F05", "segmentation fault", "native_crash", act="segfault"),
    Variant("F05", "abort", "native_crash", act="abort"),
    Variant("F05", "bus error", "native_crash", act="bus"),
    Variant("F06", "limit of a control group", "out_of_memory", outside="memory_limit", act="eat_memory", budget_s=20),
    Variant("F07", "sys.exit(0)", "left_early", act="leave", budget_s=2, unnamed=("exception",)),
    Variant("F07", "_exit(0)", "left_early", act="exit", budget_s=2),
    Variant(
        "F08",
        "one collective too many",
        "desync",
        act="extra_collective",
        phase="batch",  # the next collective of the same group, the count of tokens, has another shape
        budget_s=2,
        sets=("resilience.check_collectives=true",),
    ),
    Variant("F09", "declared", None, act="slow_disk", phase="ckpt_block", seconds=8.0),
    Variant("F09", "not declared", "stuck", act="sleep", phase="update", seconds=20.0, budget_s=10),
    Variant("F10", "in steady state", None, outside="kill_agent", exits=(Exit.INTERRUPTED, Exit.DONE)),
    Variant(
        "F16",
        "slower in each step",
        "straggler",
        act="slow",
        phase="forward",
        times=10**6,
        seconds=0.02,
        steps=80,
        budget_s=60,
    ),
    *(
        Variant("F20", f"in {phase}", "killed", outside="kill", phase=phase)
        for phase in ("ckpt_block", "ckpt_block later")
    ),
    Variant("F23", "parameter", "corrupted_state", act="flip_parameter", phase="update", sets=REPLICAS, budget_s=20),
    Variant("F23", "moment", "corrupted_state", act="flip_moment", phase="update", sets=REPLICAS, budget_s=20),
    Variant("F24", "NaN", "non_finite", act="bad_gradient", phase="gradients", sets=REPLICAS, equals_twin=False),
    Variant("F24", "Inf", "non_finite", act="infinite_gradient", phase="gradients", sets=REPLICAS, equals_twin=False),
    Variant(
        "F26",
        "wild labels",
        "loss_spike",
        act="poison",
        phase="batch",
        steps=80,
        times=3,
        names_rank=False,
        equals_twin=False,
        budget_s=10,
    ),
    Variant("F28", "to the launcher", None, outside="term_agent", exits=_LATE),
    Variant("F28", "to one rank", None, outside="term_rank", exits=_LATE),
    Variant("F28", "in a save", None, outside="term_agent", phase="ckpt_block", exits=_LATE),
    Variant("F30", "killed again while restoring", "killed", outside="kill", again_in="startup.ckpt_load"),
    Variant(
        "F30",
        "the same crash for ever",
        "exception",
        act="raise",
        times=STORM,
        exits=(Exit.NEEDS_PERSON,),
        budget_s=2,
        equals_twin=False,
    ),
)


def variants(fault: str | None) -> list[Variant]:
    """Those of one fault, or all. Raises UsageError for a name that is none."""
    from argosy.errors import UsageError

    if fault is None:
        return list(VARIANTS)
    found = [variant for variant in VARIANTS if variant.fault == fault.upper()]
    if not found:
        why = NOT_COVERED.get(fault.upper())
        raise UsageError(
            f"fault {fault} is not covered here ({why})" if why else f"there is no fault {fault!r}",
            where="--fault",
            do=f"use one of {', '.join(NAMES)}",
        )
    return found
