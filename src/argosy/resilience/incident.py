"""One record of each fault: what it was, who caused it, how it was seen, what was done, and what it cost."""

import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from argosy.errors import InputError

SCHEMA = "argosy.incident/1"

Class = Literal[
    "killed",
    "native_crash",
    "out_of_memory",
    "exception",
    "left_early",
    "frozen",
    "held",
    "stuck",
    "collective",
    "desync",
    "corrupted_state",
    "non_finite",
    "loss_spike",
    "straggler",
]

MEANING: dict[str, str] = {
    "killed": "a signal from outside ended the process",
    "native_crash": "native code ended the process (segmentation fault, abort, bus error)",
    "out_of_memory": "the kernel, or an allocation that failed, ended the process for its memory",
    "exception": "an exception of one rank",
    "left_early": "a rank ended well before the target was reached",
    "frozen": "a rank's process was stopped",
    "held": "a rank's interpreter was held by native code",
    "stuck": "a rank ran and made no progress",
    "collective": "all ranks waited in a collective",
    "desync": "a rank called another collective than the others",
    "corrupted_state": "replicas that must be equal differ",
    "non_finite": "gradients were not finite",
    "loss_spike": "the loss left its band",
    "straggler": "a rank needs longer than the others for the same work",
}


@dataclass(frozen=True)
class Incident:
    """Times are seconds; `phases` are disjoint and in order. Unknown is None."""

    run: str
    attempt: int
    kind: Class
    rank: int | None
    """The guilty rank; None when nobody can be told from the others."""
    cause: str
    """The first cause, one line."""
    host: str
    step: int | None
    """The step under way on the guilty rank."""
    phase: str | None
    """What it was doing."""
    detected_by: str
    """exit, heartbeat, progress, collective guard, digests, local gradient, loss, own time."""
    verdict_ns: int
    """Monotonic clock."""
    verdict_wall_ns: int
    silent_s: float | None
    """From the guilty rank's last sign of life to the verdict."""
    rung: str = "none"
    """What was done: the name of the policy's action."""
    phases: dict[str, float] = field(default_factory=dict)
    lost_steps: int | None = None
    lost_device_s: float | None = None
    """Device time of the steps that are done again, plus all devices from the verdict to the next completed step."""
    lost_money: str | None = None
    """Exact, in the run's currency; None without a price."""
    consequences: tuple[str, ...] = ()
    """What other ranks reported because of it."""
    ranks: dict[str, Any] = field(default_factory=dict)
    """Each rank's last sign: step, phase, collectives, age of its beat."""
    stacks: dict[str, str] = field(default_factory=dict)
    """Of ranks that hung, by rank."""
    trace: str | None = None
    sample_ids: tuple[int, ...] = ()
    """Samples that were stepped over."""
    number: int = 0
    """In the run, from 1."""
    schema: str = SCHEMA

    def to_json_object(self) -> dict[str, Any]:
        return asdict(self)

    def with_phase(self, name: str, seconds: float) -> "Incident":
        return replace(self, phases=self.phases | {name: round(seconds, 4)})


def new_incident(folder: Path, incident: Incident) -> Incident:
    """Write `incident` as the next of the run; it is returned with its number.

    The supervisor and a rank may do so at once: each gets a number of its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    number = max((int(file.stem[9:]) for file in _files(folder)), default=0)
    while True:
        number += 1
        try:
            (folder / f"incident-{number}.json").open("x").close()
        except FileExistsError:
            continue
        numbered = replace(incident, number=number)
        write_incident(folder, numbered)
        return numbered


def write_incident(folder: Path, incident: Incident) -> Path:
    """Write or replace the record; a reader sees the old one or the new one."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"incident-{incident.number}.json"
    partial = folder / f".{file.name}.{os.getpid()}.tmp"
    partial.write_text(json.dumps(incident.to_json_object(), indent=1) + "\n", encoding="utf-8")
    partial.replace(file)
    return file


def read_incidents(folder: Path) -> list[Incident]:
    """All incidents of a run, oldest first. Raises InputError for a record that cannot be read."""
    files = sorted(_files(folder), key=lambda file: int(file.stem[9:]))
    return [_read(file) for file in files if file.stat().st_size]  # an empty one is being written


def _read(file: Path) -> Incident:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        known = {key: value for key, value in values.items() if key in Incident.__dataclass_fields__}
        for key in ("consequences", "sample_ids"):
            known[key] = tuple(known.get(key, ()))
        return Incident(**known)
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"is damaged: {error}", where=str(file)) from None


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.glob("incident-*.json") if file.stem[9:].isdecimal()]
