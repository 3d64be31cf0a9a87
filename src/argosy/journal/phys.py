"""What a device can be doing: the closed list of `phys` names that a journal may use.

Hot names come first, so that the array of times of a step record, whose trailing zeros are cut, stays short.
A file's header repeats the list it was written with; readers map by name and treat names they do not know as
not measured. Names that only the ledger can conclude (no process, dead, torn) are in `ledger/accounts.py`.
"""

AXES = ("fsdp", "dp", "tp", "pp", "cp", "ep")

STARTUP = tuple(
    f"startup.{phase}"
    for phase in (
        "process_start",
        "import",
        "rendezvous",
        "comm_init",
        "model_init",
        "ckpt_load",
        "data_seek",
        "calibrate",
    )
)

PHYS = (
    "data_wait",
    "forward",
    "backward",
    "optimizer",
    "telemetry",
    "comm.control",
    *(f"comm.exposed.{axis}" for axis in AXES),
    "gc",
    "h2d_copy",
    "compile",
    "warmup",
    "ckpt_block",
    "eval",
    "teardown",
    *STARTUP,
    "recompute",
    "health_check",
    "terminate",
    "comm.outer_sync",
)

MATH = ("forward", "backward", "optimizer")
"""Phases in which a device computes."""

INDEX = {name: index for index, name in enumerate(PHYS)}

STEP_EXTERNAL = frozenset((*STARTUP, "ckpt_block", "eval", "teardown", "health_check", "terminate"))
"""No part of a step's work, even when they interrupt one: they share no fate with it."""


def comm(axis: str) -> str:
    """The name of exposed communication on a mesh axis; `control` is traffic that moves no model state."""
    return "comm.control" if axis == "control" else f"comm.exposed.{axis}"
