"""What must hold after a trial, O1 to O10, each judged from outside: True, False, or None where it does not apply."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from argosy.checkpoint.folders import saved_steps
from argosy.drill.faults import Variant
from argosy.drill.reader import losses, newest_step, state_digests
from argosy.drill.scene import Seen, read_report
from argosy.errors import ArgosyError, Exit
from argosy.resilience.incident import Incident

MEANING = {
    "O1": "the result equals the undisturbed twin's, bit for bit",
    "O2": "every step was committed exactly once, at the twin's data position",
    "O3": "one line of attempts, one writer at a time",
    "O4": "every checkpoint is whole, and foreign files are untouched",
    "O5": "seen and mended within the budget",
    "O6": "right class, right rank",
    "O7": "no process and no temporary file is left",
    "O8": "no alarm besides the fault's own",
    "O9": "right exit code",
    "O10": "the books add up to what was paid, and to the wall clock",
}
RECOVERY_S = 10.0
"""From the verdict to the next completed step, on a shared machine; bench/recovery.py measures it on a quiet one."""
WALL_TOLERANCE = 0.01
WALL_TOLERANCE_S = 0.5
"""The launcher's interpreter starts before, and ends after, what is paid."""
FOREIGN = "step-7.backup"


@dataclass
class Judgement:
    """One trial's answers."""

    variant: str
    oracles: dict[str, bool | None] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    """Of those that say no."""
    verdict_s: float | None = None
    """From the fault to the verdict."""
    recovery_s: float | None = None
    skipped: str | None = None

    @property
    def passed(self) -> bool:
        return False not in self.oracles.values()


def judge(variant: Variant, seen: Seen, twin: Path, nproc: int) -> Judgement:
    """Ask every oracle; one that fails to answer says no."""
    found = Judgement(variant.id, skipped=seen.skipped)
    if seen.skipped is not None:
        return found
    incidents = seen.incidents
    first = incidents[0] if incidents else None
    if first is not None and seen.fault_ns is not None:
        found.verdict_s = max(0.0, (first.verdict_ns - seen.fault_ns) / 1e9)
        found.recovery_s = sum(first.phases.values()) if "first_step" in first.phases else None
    ended_well = bool(seen.exits) and seen.exits[-1] == Exit.DONE
    questions: dict[str, Callable[[], str | bool | None]] = {
        "O1": lambda: _same_result(variant, seen, twin) if ended_well else None,
        "O2": lambda: _each_step_once(variant, seen, twin) if ended_well else None,
        "O3": lambda: _one_line(seen),
        "O4": lambda: _whole_checkpoints(seen),
        "O5": lambda: _in_time(variant, found, first),
        "O6": lambda: _blame(variant, seen, first),
        "O7": lambda: ", ".join([*seen.left_processes, *seen.left_files]) or True,
        "O8": lambda: _quiet(variant, seen, incidents),
        "O9": lambda: _exits(variant, seen),
        "O10": lambda: _books(variant, seen, nproc),
    }
    for name, question in questions.items():
        try:
            answer = question()
        except (ArgosyError, OSError, ValueError, KeyError) as error:
            answer = f"{type(error).__name__}: {error}"
        found.oracles[name] = answer if answer is True or answer is None else False
        if found.oracles[name] is False:
            found.why[name] = str(answer)
    return found


def _same_result(variant: Variant, seen: Seen, twin: Path) -> str | bool | None:
    if not variant.equals_twin:
        return None
    last, twins = newest_step(seen.run), newest_step(twin)
    if last is None or twins is None or last != twins:
        return f"ended at step {last}, the twin at {twins}"
    mine, theirs = state_digests(seen.run, last), state_digests(twin, twins)
    differ = sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))
    if differ:
        return f"{len(differ)} of {len(theirs)} differ, the first is {differ[0]}"
    was, now = losses(twin), losses(seen.run)
    return True if was == now else "the losses of steps differ"


def _each_step_once(variant: Variant, seen: Seen, twin: Path) -> str | bool:
    done = losses(seen.run)
    missing = sorted(set(range(len(losses(twin)))) - set(done))
    if missing:
        return f"steps {missing[:5]} were never done"
    if not variant.equals_twin:
        return True
    place = [_position(run) for run in (seen.run, twin)]
    return True if place[0] == place[1] else f"data position {place[0]}, the twin's {place[1]}"


def _position(run: Path) -> object:
    step = newest_step(run)
    return json.loads((run / "checkpoints" / f"step-{step}" / "manifest.json").read_text())["training"].get("position")


def _one_line(seen: Seen) -> str | bool:
    """An attempt's first step comes after the last of the one before."""
    end = 0
    for folder in sorted(seen.run.glob("events/attempt-*"), key=lambda folder: int(folder.name[8:])):
        times = []
        for file in folder.glob("rank-*.jsonl"):
            steps = []
            for line in file.read_bytes().splitlines():
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                if record.get("k") == "step":
                    steps.append(record["s"])
                    times += [record["t0"], record["t1"]]
            if steps != sorted(steps):
                return f"steps in {file.name} of {folder.name} do not rise"
        if times and min(times) < end:
            return f"{folder.name} trained while the one before still did"
        end = max(times, default=end)
    return True


def _whole_checkpoints(seen: Seen) -> str | bool:
    """Each tensor of each checkpoint can be read, and its manifest's own digests hold."""
    from argosy.checkpoint.find import find

    checkpoints = seen.run / "checkpoints"
    for step in saved_steps(checkpoints):
        said: list[str] = []
        if find(checkpoints, step, said.append) is None or said:
            return f"step {step}: {'; '.join(said) or 'not found'}"
    return True


def _in_time(variant: Variant, found: Judgement, first: Incident | None) -> str | bool | None:
    if variant.expects is None or found.verdict_s is None:
        return None
    if found.verdict_s > variant.budget_s:
        return f"verdict after {found.verdict_s:.2f} s, budget {variant.budget_s:g} s"
    if found.recovery_s is not None and found.recovery_s > RECOVERY_S:
        return f"next step after {found.recovery_s:.2f} s"
    return True


def _blame(variant: Variant, seen: Seen, first: Incident | None) -> str | bool | None:
    if variant.expects is None:
        return None
    if first is None:
        return f"no incident, {variant.expects} was expected"
    if first.kind not in (variant.expects, *variant.unnamed):
        return f"{first.kind} instead of {variant.expects}: {first.cause}"
    if variant.names_rank and first.rank != seen.guilty:
        return f"rank {first.rank} was blamed, it was {seen.guilty}: {first.cause}"
    return True


def _quiet(variant: Variant, seen: Seen, incidents: list[Incident]) -> str | bool:
    allowed = 0 if variant.expects is None else variant.times if variant.act else 1
    allowed += variant.again_in is not None
    others = incidents[allowed:] if allowed < len(incidents) else []
    return "; ".join(one.cause for one in others) or True


def _exits(variant: Variant, seen: Seen) -> str | bool:
    expected = [int(code) for code in variant.exits]
    # a launcher that is killed has no code of its own
    got = [int(Exit.INTERRUPTED) if code < 0 else code for code in seen.exits]
    return True if got == expected else f"{got}, expected {expected}"


def _books(variant: Variant, seen: Seen, nproc: int) -> str | bool:
    report = read_report(seen.run)
    total = sum(account["ns"] for account in report["accounts"].values())
    if total != report["paid_ns"]:
        return f"accounts sum to {total}, paid was {report['paid_ns']}"
    if Exit.INTERRUPTED in variant.exits:  # nobody wrote when the killed launcher ended
        return True
    wall_ns = seen.wall_s * 1e9 * nproc
    allowed_ns = WALL_TOLERANCE * wall_ns + WALL_TOLERANCE_S * 1e9 * nproc * len(seen.exits)
    off_ns = abs(total - wall_ns)
    return True if off_ns <= allowed_ns else f"books and wall clock differ by {off_ns / wall_ns:.1%}"
