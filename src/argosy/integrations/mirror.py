"""Mirrors one attempt's journal to one tracker: ``python -m argosy.integrations.mirror RUN ATTEMPT TRACKER``.

It is a process of its own that reads what the ranks wrote anyway. When it hangs, dies or has no network, training does
not notice. Steps that a restart repeats are in the tracker already and are left out: what was sent is noted before it
is sent, so that nothing is there twice.
"""

import argparse
import json
import math
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from argosy.errors import ArgosyError
from argosy.integrations.trackers import Tracker, check, open_tracker, opening
from argosy.ledger.tail import Tail
from argosy.registry.run_folder import RunFolder

LOOK_S = 2.0

Row = dict[str, Any]


class Sent:
    """What a tracker has been told, in `RUN/trackers/TRACKER.json`."""

    def __init__(self, file: Path):
        self._file = file
        content: Row = {}
        if file.exists():
            content = json.loads(file.read_text(encoding="utf-8"))
        self.steps: dict[str, int] = content.get("steps", {})
        """Kind of record → updates of the last one that was sent."""
        self.kept: dict[str, str] = content.get("kept", {})

    def save(self) -> None:
        self._file.parent.mkdir(exist_ok=True)
        temporary = self._file.with_suffix(".tmp")
        temporary.write_text(json.dumps({"steps": self.steps, "kept": self.kept}), encoding="utf-8")
        temporary.replace(self._file)


def figures(record: Row) -> tuple[str, int, dict[str, float]] | None:
    """Kind, number of updates and named figures of a record; None for one that no tracker shows."""
    kind = record.get("k")
    if kind == "step":
        time_s = (record["t1"] - record["t0"]) / 1e9
        found = {
            "train/loss": record.get("l"),
            "train/grad_norm": record.get("g"),
            "train/learning_rate": record.get("r"),
            "train/tokens_per_s": sum(record.get("n", ())) / time_s if time_s else None,
        }
        updates = record["s"] + 1
    elif kind == "eval":
        found = {"eval/loss": record.get("loss"), "eval/bits_per_byte": record.get("bpb")}
        updates = record["s"]
    else:
        return None
    known = {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}
    return (kind, updates, known) if known else None


def news(records: Iterable[Row], sent: Sent) -> Iterator[tuple[int, dict[str, float]]]:
    """What of `records` is new to the tracker, noted as sent."""
    for record in records:
        found = figures(record)
        if found is None:
            continue
        kind, updates, known = found
        if updates > sent.steps.get(kind, -1):
            sent.steps[kind] = updates
            yield updates, known


def accounts(run: RunFolder) -> dict[str, float]:
    """Share of each account and what was paid, from the books as they stand."""
    from argosy.ledger.report import build_report

    try:
        report = build_report(run.path, tolerant=True)
    except ArgosyError:
        return {}
    found = {f"ledger/{name.replace('.', '/', 1)}_share": line.share for name, line in report.accounts.items()}
    found |= {"ledger/paid_device_s": report.paid_ns / 1e9}
    return found | ({"ledger/money": float(report.money)} if report.money is not None else {})


def mirror(run: RunFolder, attempt: int, tracker: Tracker, sent: Sent, ended: "Ended") -> None:
    """Follow the attempt until it has ended; then send the books once."""
    tail = Tail(run.rank_file(attempt, 0))
    while True:
        last = ended()  # before reading, so that nothing written until then is missed
        fresh = list(news(tail.records(), sent))
        sent.save()
        for updates, known in fresh:
            tracker.log(updates, known)
        if last:
            break
        time.sleep(LOOK_S)
    updates = max(sent.steps.values(), default=0)
    if (books := accounts(run)) and updates:
        tracker.log(updates, books)
    tracker.close()


class Ended:
    """Whether the attempt is over: the launcher says so in its journal, or is gone."""

    def __init__(self, run: RunFolder, attempt: int):
        self._tails = [Tail(file) for file in run.attempt_folder(attempt).glob("agent-*.jsonl")]
        self._launcher = os.getppid()
        self._said = False

    def __call__(self) -> bool:
        for tail in self._tails:
            self._said |= any(row.get("k") == "attempt" and row.get("ph") == "end" for row in tail.records())
        return self._said or os.getppid() != self._launcher


def main(words: list[str] | None = None) -> None:
    """The process's main function."""
    parser = argparse.ArgumentParser(prog="argosy.integrations.mirror")
    parser.add_argument("run", type=Path)
    parser.add_argument("attempt", type=int)
    parser.add_argument("tracker")
    options = parser.parse_args(words)
    os.nice(10)  # training comes first
    check([options.tracker])
    run = RunFolder.open(options.run)
    sent = Sent(run.path / "trackers" / f"{options.tracker}.json")
    given = opening(run, options.tracker, sent.kept)
    tracker = open_tracker(options.tracker, given)
    sent.save()
    mirror(run, options.attempt, tracker, sent, Ended(run, options.attempt))


if __name__ == "__main__":
    main()
