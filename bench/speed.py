"""Training speed beside the peers: the same steps, on the same weights and data, by contestants that take turns.

    python bench/peers/install.py                          # once: the peers, each in an environment of its own
    python bench/speed.py 3m-fp32 [--pairs 30] [--seconds-per-chunk 1] [--only argosy plain] [--threads 2]
    python bench/speed.py --table [--into docs/speed.md]   # the table of the documentation, from bench/results/

Each contestant is a process (with 2 ranks: two) that lives as long as the contest. In every round each takes a chunk of
the same number of steps while the others stand still, forwards in one round and backwards in the next, so that whatever
else the machine does hits all of them alike; the ratio of two contestants is taken within a round. Reported are the
median of those ratios over the rounds and its 95 % bootstrap interval.

The work is equal, and that is checked first: the losses of the first steps must agree within rounding.
Argosy is measured in its real loop, with loader, journal and steering, and the peers in their own trainers.
Exit 1: losses differ, or a ratio that was asked for is missed.
"""

import argparse
import json
import shutil
import socket
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from contest.configurations import CONFIGURATIONS, Configuration
from contest.contestant import Contestant, Failed
from contest.figures import Quiet, commit, largest_difference, ratio, version
from contest.table import table
from contest.task import SHAPES, make_task
from peers.install import interpreter, trouble

from argosy.hardware.machine import this_machine

RESULTS = Path(__file__).parent / "results"
EQUAL_STEPS = 6
"""Steps whose losses are compared; later ones drift apart, since rounding grows from step to step."""
MOST_STEPS = 3000
"""Of one contestant in one contest."""


def contest(name: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Hold the contest `name`; everything of the JSON. Raises Failed when fewer than two contestants are there."""
    configuration = CONFIGURATIONS[name]
    shape = SHAPES[configuration.shape]
    threads = max(1, (options.threads or this_machine().cores) // shape.ranks)
    entries = {n: e for n, e in configuration.entries.items() if not options.only or n in options.only}
    absent = {n: why for n, e in entries.items() if e.peer and (why := trouble(e.peer))}
    layouts = {n: e.layout for n, e in entries.items() if e.layout is not None}
    make_task(
        folder, shape, configuration.precision, steps=MOST_STEPS, threads=threads, layouts=layouts or {"data": {}}
    )
    with ExitStack() as stack:
        started = {
            n: stack.enter_context(closing(Contestant(n, e, folder, shape.ranks, threads, _free_port())))
            for n, e in entries.items()
            if n not in absent
        }
        there, losses = _equal_steps(started, absent)
        for n, why in absent.items():
            print(f"{n}: does not take part: {why}", file=sys.stderr)
        if len(there) < 2:
            raise Failed("a contest needs two contestants")
        own = lambda: sum(each.cpu_seconds() for each in there.values())  # noqa: E731
        slowest_s = max(each.steps(2)[0] for each in there.values()) / 2
        steps = max(1, round(options.seconds_per_chunk / slowest_s))
        steps = min(steps, (MOST_STEPS - 100) // options.pairs)
        quiet = Quiet(own())
        seconds: dict[str, list[float]] = {n: [] for n in there}
        for number in range(options.pairs):
            for n in sorted(there, reverse=number % 2 == 1):
                seconds[n].append(there[n].steps(steps)[0])
        others = quiet.others_share(own())
    return {
        "schema": "bench.speed.1",
        "configuration": name,
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "machine": asdict(this_machine()) | {"others_share": others, "ranks": shape.ranks, "threads": threads},
        "versions": _versions(),
        "shape": asdict(shape) | {"model": dict(shape.model), "precision": configuration.precision},
        "pairs": options.pairs,
        "steps_per_chunk": steps,
        "contestants": {
            n: {
                "tokens_per_s": steps * shape.sequences * shape.length * len(s) / sum(s),
                "first_losses": losses[n],
                "chunk_seconds": s,
            }
            for n, s in seconds.items()
        },
        "absent": absent,
        "loss_difference": largest_difference(losses[n] for n in there),
        "loss_tolerance": configuration.loss_tolerance,
        "ratios": _ratios(configuration, seconds),
    }


def _equal_steps(
    started: dict[str, Contestant], absent: dict[str, str]
) -> tuple[dict[str, Contestant], dict[str, list[float]]]:
    """The contestants that begin, and their first losses; those that do not join `absent`."""
    there, losses = {}, {}
    for name, contestant in started.items():
        try:
            contestant.ready()
            losses[name] = contestant.steps(EQUAL_STEPS)[1]
            there[name] = contestant
        except Failed as failure:
            absent[name] = str(failure)
    return there, losses


def _ratios(configuration: Configuration, seconds: dict[str, list[float]]) -> list[dict[str, Any]]:
    rows = []
    for asked in configuration.asked:
        if asked.ours in seconds and asked.theirs in seconds:
            found = ratio(seconds[asked.theirs], seconds[asked.ours])
            met = None if asked.at_least is None else found.median >= asked.at_least
            rows.append(
                {"ours": asked.ours, "theirs": asked.theirs} | asdict(found) | {"asked": asked.at_least, "met": met}
            )
    return rows


def _versions() -> dict[str, str]:
    peers = (("transformers", "transformers"), ("transformers", "accelerate"), ("olmo-core", "ai2-olmo-core"))
    return {
        "python": sys.version.split()[0],
        "torch": version(sys.executable, "torch"),
        "argosy": commit(RESULTS),
        **{package: version(interpreter(peer), package) for peer, package in peers if not trouble(peer)},
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configuration", nargs="?", choices=list(CONFIGURATIONS))
    parser.add_argument("--only", nargs="*", metavar="CONTESTANT", help="default: all of the configuration")
    parser.add_argument("--pairs", type=int, default=30, help="rounds (30)")
    parser.add_argument("--seconds-per-chunk", type=float, default=1.0, help="of the slowest contestant (1)")
    parser.add_argument("--threads", type=int, help="over all ranks; default: one a core")
    parser.add_argument("--json", type=Path, metavar="FILE", help="default: bench/results/CONFIGURATION.json")
    parser.add_argument("--table", nargs="*", type=Path, metavar="FILE", help="print the table of results and end")
    parser.add_argument("--into", type=Path, metavar="FILE", help="put the table between the marks of this page")
    options = parser.parse_args()
    if options.table is not None:
        files = options.table or [RESULTS / f"{name}.json" for name in CONFIGURATIONS]
        text = table(json.loads(file.read_text()) for file in files if file.exists())
        print(text)
        if options.into is not None:
            before, rest = options.into.read_text().split("<!-- table -->")
            after = rest.split("<!-- end of table -->")[1]
            options.into.write_text(f"{before}<!-- table -->\n{text}\n<!-- end of table -->{after}")
        return 0
    if options.configuration is None:
        parser.error("name a configuration")
    known = CONFIGURATIONS[options.configuration].entries
    if unknown := set(options.only or ()) - known.keys():
        parser.error(f"unknown contestant {', '.join(unknown)}; here are {', '.join(known)}")
    folder = Path(tempfile.mkdtemp(prefix="argosy-contest-"))
    try:
        result = contest(options.configuration, options, folder / "task")
    except Failed as failure:
        print(f"no contest: {failure}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder)
    file = options.json or RESULTS / f"{options.configuration}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=1) + "\n")
    print(table([result]))
    equal = result["loss_difference"] <= result["loss_tolerance"]
    print(f"losses of {EQUAL_STEPS} steps differ by {result['loss_difference']:.1e}", "" if equal else "— TOO MUCH")
    return 0 if equal and all(row["met"] is not False for row in result["ratios"]) else 1


if __name__ == "__main__":
    sys.exit(main())
