"""Scenarios with a known truth, told to the ledger and to ml-goodput-measurement: who finds it, and whose parts sum.

    python bench/ledger_truth.py [--json]

The peer is installed by `python bench/peers/install.py ml-goodput-measurement`; without it its columns are empty. Both
are told the same story, each by its own records. *Sum* is productive time and all parts of what is not, of the total.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "ledger"))
from written import S, WrittenRun

from argosy.ledger.books import keep_books

PEER = Path(__file__).parents[1] / ".venv-bench" / "ml-goodput-measurement" / "bin" / "python"


@dataclass
class Scenario:
    name: str
    total_s: float
    useful_s: float
    run: WrittenRun
    events: list[list[Any]]


def steps(first: int, last: int, at: float, length: float = 10.0) -> list[list[Any]]:
    return [["step_start_time", at + (n - first) * length, n] for n in range(first, last)]


def clean() -> Scenario:
    run = WrittenRun()
    rank = run.rank(1, 0)
    rank.steps(0, 20, 0, 10 * S)
    rank.ckpt(20, 200 * S).close(200 * S)
    run.agent(1, 0).end(200 * S)
    run.paid(0, 200 * S)
    return Scenario("clean run", 200, 200, run, [["job_start_time", 0], *steps(0, 20, 0), ["job_end_time", 200]])


def restart(lost: int) -> Scenario:
    run = WrittenRun()
    first = run.rank(1, 0)
    first.steps(0, 10, 0, 10 * S)
    first.ckpt(10 - lost, (10 - lost) * 10 * S).beat(100 * S, 10)
    run.agent(1, 0).end(100 * S, exit=70, signal=9)
    second = run.rank(2, 1100 * S)
    second.restore(10 - lost, 1100 * S)
    end = second.steps(10 - lost, 20, 1100 * S, 10 * S)
    second.ckpt(20, end).close(end)
    run.agent(2, 1100 * S).end(end)
    run.paid(0, end)
    events = [["job_start_time", 0], *steps(0, 10, 0), ["job_start_time", 1100], *steps(10 - lost, 20, 1100)]
    name = f"outage of 1000 s, {lost} steps repeated"
    return Scenario(name, end / S, 200, run, [*events, ["job_end_time", end / S]])


def nested() -> Scenario:
    run = WrittenRun()
    rank = run.rank(1, 0)
    rank.steps(0, 4, 0, 10 * S)
    rank.span("eval", 40 * S, 48 * S).span("ckpt_block", 41 * S, 47 * S, d=1)
    rank.steps(4, 5, 48 * S, 10 * S)
    rank.ckpt(5, 58 * S).close(58 * S)
    run.agent(1, 0).end(58 * S)
    run.paid(0, 58 * S)
    custom = "custom_badput_event"
    events: list[list[Any]] = [["job_start_time", 0], *steps(0, 4, 0), [f"{custom}_start_time", 40, "eval"]]
    events += [
        [f"{custom}_start_time", 41, "save"],
        [f"{custom}_end_time", 47, "save"],
        [f"{custom}_end_time", 48, "eval"],
    ]
    return Scenario(
        "save of 6 s in an evaluation of 8 s", 58, 50, run, [*events, *steps(4, 5, 48), ["job_end_time", 58]]
    )


def loader() -> Scenario:
    run = WrittenRun()
    rank = run.rank(1, 0)
    end = rank.steps(0, 10, 0, 10 * S, data_wait=8 * S, forward=S, backward=S)
    rank.ckpt(10, end).close(end)
    run.agent(1, 0).end(end)
    run.paid(0, end)
    events: list[list[Any]] = [["job_start_time", 0]]
    for n in range(10):
        events += [["data_loading_start_time", n * 10], ["data_loading_end_time", n * 10 + 8]]
        events += [["step_start_time", n * 10 + 8, n]]
    return Scenario("loader blocks 8 s of every 10", 100, 20, run, [*events, ["job_end_time", 100]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    stories = [clean(), restart(0), restart(5), nested(), loader()]
    theirs: list[dict[str, Any]] = [{"error": "not installed"}] * len(stories)
    if PEER.exists():
        script = Path(__file__).parent / "peers" / "ml_goodput_events.py"
        told = json.dumps([story.events for story in stories])
        done = subprocess.run([str(PEER), str(script)], input=told, capture_output=True, text=True, check=True)
        theirs = json.loads(done.stdout.splitlines()[-1])
    rows = []
    for story, their in zip(stories, theirs, strict=True):
        books = keep_books(story.run.journal())
        row: dict[str, Any] = {"scenario": story.name, "truth_share": round(story.useful_s / story.total_s, 4)}
        row |= {"argosy_share": round(books.accounts["useful.model_math"] / books.paid_ns, 4)}
        row |= {"argosy_sum_share": sum(books.accounts.values()) / books.paid_ns}
        if "error" in their:
            row |= {"peer_share": None, "peer_sum_share": None, "peer_error": their["error"][:60]}
        else:
            share = their["productive_share"]
            row |= {"peer_share": round(share, 4)}
            row |= {"peer_sum_share": round(share + sum(their["unproductive"].values()), 4)}
        rows.append(row)
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{'scenario':38}{'truth':>8}{'Argosy':>8}{'sum':>8}{'peer':>9}{'sum':>8}")
    for row in rows:
        peer = [("n/a" if row[key] is None else f"{row[key]:.1%}") for key in ("peer_share", "peer_sum_share")]
        own = [f"{row[key]:.1%}" for key in ("truth_share", "argosy_share", "argosy_sum_share")]
        name, why = row["scenario"], row.get("peer_error", "")
        print(f"{name:38}{own[0]:>8}{own[1]:>8}{own[2]:>8}{peer[0]:>9}{peer[1]:>8}  {why}")


if __name__ == "__main__":
    main()
