"""Installs the peers of the benchmarks, each into a virtual environment of its own from its own lock file.

    python bench/peers/install.py [PEER ...]     # run it with the interpreter that has torch; default: all peers

``.venv-bench/PEER`` gets the exact versions of ``bench/peers/PEER.lock`` and no others (``--no-deps``). torch is never
installed twice: a path file in the environment adds the packages of the interpreter that runs this script *behind* the
peer's own, so that both sides of a comparison run the same build of torch and each its own version of all else.
A peer that does not install is a printed reason, and the benchmarks go on without it.
"""

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

LOCKS = Path(__file__).parent
ENVIRONMENTS = LOCKS.parents[1] / ".venv-bench"
PROBES = {
    "transformers": "import accelerate, transformers; transformers.Trainer, transformers.LlamaForCausalLM",
    "olmo-core": "import olmo_core.train, olmo_core.nn.transformer",
    "datasets": "import datasets",
    "litdata": "import litdata",
    "streaming": "import importlib.metadata as m; m.version('mosaicml-streaming')",
    "ml-goodput-measurement": "from ml_goodput_measurement.src import goodput; goodput.GoodputCalculator",
}
"""What must import for a peer to be usable."""


def interpreter(peer: str) -> Path:
    """The interpreter of `peer`, whether or not it is there."""
    return ENVIRONMENTS / peer / "bin" / "python"


def trouble(peer: str) -> str | None:
    """Why `peer` cannot take part; None when it can."""
    if not interpreter(peer).exists():
        return f"is not installed: python bench/peers/install.py {peer}"
    mark = ENVIRONMENTS / peer / "lock"
    if not mark.exists() or mark.read_bytes() != (LOCKS / f"{peer}.lock").read_bytes():
        return f"is not installed from this lock file: python bench/peers/install.py {peer}"
    return None


def install(peer: str) -> str | None:
    """Make the environment of `peer` anew; the reason when that fails, else None."""
    folder, lock = ENVIRONMENTS / peer, LOCKS / f"{peer}.lock"
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    python = str(interpreter(peer))
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    steps = (
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "-r", str(lock)],
        [python, "-c", PROBES[peer]],
    )
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True)
        if done.returncode:
            return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        (own / "torch-of-argosy.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (folder / "lock").write_bytes(lock.read_bytes())
    return None


def main() -> int:
    """0 when all peers that were asked for are there."""
    chosen = sys.argv[1:] or sorted(PROBES)
    if unknown := [peer for peer in chosen if peer not in PROBES]:
        print(f"unknown peer {', '.join(unknown)}; known are {', '.join(sorted(PROBES))}", file=sys.stderr)
        return 64
    failed = 0
    for peer in chosen:
        reason = install(peer) if trouble(peer) else None
        print(f"{peer}: {'ready' if reason is None else f'does not install: {reason}'}", flush=True)
        failed += reason is not None
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
