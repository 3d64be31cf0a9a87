"""How long does a full search take? The goal: a 405B model on 16,384 accelerators in 2 s, 2.5 s with CLI start.

python bench/planner_search.py [--json]
"""

import argparse
import json
import subprocess
import sys
import time

from argosy.hardware.cluster_file import load_cluster
from argosy.planner.question import from_preset
from argosy.planner.search import search


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for model, count in (("llama3-8b", 64), ("llama3-70b", 1024), ("llama3.1-405b", 16384)):
        cluster = load_cluster(f"{count}xH100")
        question = from_preset(
            model, accelerators=count, sequence_length=None, batch_tokens=None, dtype="bf16", tokens=None
        )
        started = time.perf_counter()
        found = search(question, cluster)
        inside_s = time.perf_counter() - started
        started = time.perf_counter()
        words = ["plan", "--model", model, "--cluster", f"{count}xH100", "--tokens", "1T", "--json"]
        program = "from argosy.cli.main import main; main()"
        subprocess.run([sys.executable, "-c", program, *words], check=True, capture_output=True)
        rows.append(
            {"model": model, "accelerators": count, "considered": found.space.considered, "search_s": inside_s,
             "with_cli_s": time.perf_counter() - started}
        )  # fmt: skip
        print(f"{model:16} {count:6} {found.space.considered:7,} layouts {inside_s:6.2f} s, with CLI "
              f"{rows[-1]['with_cli_s']:6.2f} s", flush=True)  # fmt: skip
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
