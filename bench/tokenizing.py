"""Making token shards from text, beside the bare `tokenizers` library on the same cores.

Run: python bench/tokenizing.py [--json] [--cores 1 2] [--copies 2]

The text is the source of the Python standard library, in memory for the bare library; the tokenizer is a BPE of 4,096.
*Bare* is `encode_batch_fast` on batches of 1 MB and nothing else: no arrays, no files. *Argosy* reads a JSONL file,
parses, decides what is held out, encodes, and writes shards with digests, flushed to the disk. Alternating rounds, each
in a process of its own with as many cores as said; medians.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 3

PROGRAM = """
import json, os, sys, time
from pathlib import Path
side, folder, cores = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
os.environ["RAYON_NUM_THREADS"] = str(cores)
os.environ["TOKENIZERS_PARALLELISM"] = "true" if side == "bare" else "false"
import tokenizers
from argosy.data import encode as module

from argosy.data.encode import encode
from argosy.data.scan import scan, split
from argosy.data.shard_writer import ShardWriter
from argosy.data.textfiles import TextFiles
from argosy.data.tokenizer import Tokenizer
file = folder / "tokenizer.json"
corpus = TextFiles(folder / "text.jsonl")
if side == "bare":
    texts = [one.text for one in corpus]
    inner = tokenizers.Tokenizer.from_file(str(file))
    batches, size = [[]], 0
    for text in texts:
        batches[-1].append(text)
        size += len(text)
        if size >= module.BATCH_BYTES:
            batches, size = [*batches, []], 0
    inner.encode_batch_fast(texts[:50])
    began = time.perf_counter()
    tokens = sum(len(one) for batch in batches for one in inner.encode_batch_fast(batch))
else:
    tokenizer = Tokenizer.load(file, "bpe")
    tokenizer.encode_batch(["warm"])
    found = scan(corpus, 0.001, folder / "rejected", 0)
    began = time.perf_counter()
    tokens = 0
    with ShardWriter(folder / sys.argv[4], tokenizer.vocab_size, tokenizer.end_of_text, 1 << 22) as writer:
        for one in encode(split(corpus, found, "train"), tokenizer, file, "bpe", cores):
            writer.add(one.ids, one.learned_bytes)
            tokens += one.ids.size
print(tokens / (time.perf_counter() - began))
"""


def rate(side: str, folder: Path, cores: int, number: int) -> float:
    command = [sys.executable, "-c", PROGRAM, side, str(folder), str(cores), f"out-{cores}-{number}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.strip().splitlines()[-1])


def main() -> None:
    from argosy.data.stdlib import StandardLibrary
    from argosy.data.tokenizer import Tokenizer

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cores", type=int, nargs="+", default=[1, len(os.sched_getaffinity(0))])
    parser.add_argument("--copies", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        texts = [document.text for document in StandardLibrary.of_this_python()]
        Tokenizer.train(texts[::3], 4096).save(folder / "tokenizer.json")
        with (folder / "text.jsonl").open("w") as file:
            for copy in range(arguments.copies):
                for text in texts:
                    file.write(json.dumps({"text": f"# {copy}\n{text}"}) + "\n")
        for cores in arguments.cores:
            pairs = [
                (rate("argosy", folder, cores, number), rate("bare", folder, cores, number))
                for number in range(arguments.rounds)
            ]
            rows.append(
                {
                    "cores": cores,
                    "argosy_tokens_per_s": statistics.median(mine for mine, _ in pairs),
                    "bare_tokens_per_s": statistics.median(other for _, other in pairs),
                    "ratio": statistics.median(mine / other for mine, other in pairs),
                    "ratios": [mine / other for mine, other in pairs],
                }
            )
    if arguments.json:
        print(json.dumps({"schema": 1, "tokenizing": rows}))
        return
    for row in rows:
        low, high = min(row["ratios"]), max(row["ratios"])
        print(
            f"{row['cores']} cores: Argosy {row['argosy_tokens_per_s'] / 1e6:.2f} M tokens/s, bare library "
            f"{row['bare_tokens_per_s'] / 1e6:.2f}, ratio {row['ratio']:.2f} ({low:.2f} to {high:.2f})"
        )


if __name__ == "__main__":
    main()
