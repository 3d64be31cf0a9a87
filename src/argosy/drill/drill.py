"""`argosy drill`: make faults in a real run on this machine, and say what came of each."""

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from argosy.drill.faults import NAMES, NOT_COVERED, Variant
from argosy.drill.oracles import MEANING, Judgement, judge
from argosy.drill.scene import Stage, play, undisturbed
from argosy.drill.wilson import wilson
from argosy.errors import Exit, UsageError

MARK = ".argosy-drill"
"""A file that says that a folder belongs to drills and may be emptied."""


@dataclass
class Result:
    """All trials of a drill."""

    judgements: list[Judgement] = field(default_factory=list)
    seed: int = 0

    @property
    def exit(self) -> Exit:
        return Exit.DONE if all(one.passed for one in self.judgements) else Exit.CHECK_SAYS_NO

    def tally(self) -> dict[str, tuple[int, int]]:
        """By oracle: (yes, asked)."""
        answers = {name: [one.oracles.get(name) for one in self.judgements] for name in MEANING}
        return {name: (found.count(True), len(found) - found.count(None)) for name, found in answers.items()}

    def to_json_object(self) -> dict[str, Any]:
        """Stable keys for `--json`."""
        return {
            "schema": "argosy.drill/1",
            "seed": self.seed,
            "exit": int(self.exit),
            "oracles": {
                name: {"yes": yes, "asked": asked, "low": wilson(yes, asked)[0], "high": wilson(yes, asked)[1]}
                for name, (yes, asked) in self.tally().items()
            },
            "catalogue": len(NAMES) + len(NOT_COVERED),
            "not_covered": NOT_COVERED,
            "trials": [
                {
                    "variant": one.variant,
                    "passed": one.passed,
                    "oracles": one.oracles,
                    "why": one.why,
                    "verdict_s": one.verdict_s,
                    "recovery_s": one.recovery_s,
                    "skipped": one.skipped,
                }
                for one in self.judgements
            ],
        }


def prepare_folder(folder: Path, *, consent: bool) -> None:
    """Raises UsageError for a folder that holds something else than drills, unless the user consents."""
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists() and not consent:
        what = "somebody's run" if (folder / "run.json").exists() else "something else"
        raise UsageError(
            f"holds {what}; a drill breaks what it runs",
            where=str(folder),
            do="name another --into, or say --yes-break-it",
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()


def drill(
    stage: Stage, chosen: Sequence[Variant], *, seed: int, keep: bool = False, say: Callable[[str], None] = print
) -> Result:
    """One trial of each of `chosen`, one after the other. `seed` draws guilty ranks and steps."""
    result = Result(seed=seed)
    for number, variant in enumerate(chosen, start=1):
        judgement = trial(stage, variant, random.Random(f"{seed} {variant.id}"), keep=keep)
        result.judgements.append(judgement)
        say(f"{number}/{len(chosen)}  {one_line(judgement)}")
    return result


def trial(stage: Stage, variant: Variant, chance: random.Random, *, keep: bool = False) -> Judgement:
    """One fault in one run, judged against its undisturbed twin."""
    twin = undisturbed(stage, variant)
    run = stage.folder / variant.id.replace(" ", "-").replace("(", "").replace(")", "")
    seen = play(stage, variant, run, chance)
    judgement = judge(variant, seen, twin, stage.nproc)
    if judgement.passed and not keep:
        for left in (run, run.with_suffix(".orders")):
            shutil.rmtree(left, ignore_errors=True)
        run.with_suffix(".log").unlink(missing_ok=True)
    return judgement


def one_line(one: Judgement) -> str:
    """For people."""
    if one.skipped:
        return f"{one.variant}: not made here: {one.skipped}"
    times = [
        f"{name} {value * 1000:.0f} ms" if value < 1 else f"{name} {value:.1f} s"
        for name, value in (("verdict", one.verdict_s), ("next step", one.recovery_s))
        if value is not None
    ]
    said = "; ".join(f"{name}: {text}" for name, text in one.why.items())
    return (
        f"{'ok   ' if one.passed else 'FAILS'} {one.variant}"
        + (f"  {', '.join(times)}" if times else "")
        + (f"  {said}" if said else "")
    )


def table(result: Result) -> list[str]:
    """n of m by oracle with the interval at 95 %, and what is not covered."""
    lines = []
    for name, (yes, asked) in result.tally().items():
        low, high = wilson(yes, asked)
        lines.append(f"{name:<4}{yes:>4} of {asked:<4} [{low:5.1%}, {high:6.1%}]  {MEANING[name]}")
    faults = {one.variant.split()[0] for one in result.judgements if one.skipped is None}
    lines.append(f"faults of the catalogue: {len(faults)} of {len(NAMES) + len(NOT_COVERED)} made here")
    lines.append("not covered here: " + ", ".join(f"{name} ({why})" for name, why in NOT_COVERED.items()))
    lines.append("not covered by any detector: a one-off finite flip inside a computation")
    return lines
