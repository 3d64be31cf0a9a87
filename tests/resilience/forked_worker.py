"""What workers do in test_forkserver.py, by their first argument."""

import os
import signal
import subprocess
import sys
import time


def preload() -> None:
    """Nothing more than torch, which the server loads anyway."""


def main(arguments: list[str]) -> int:
    (word,) = arguments
    if word == "end":
        torch = sys.modules["torch"]
        threads = "one thread" if torch.get_num_threads() == 1 else "many threads"
        print(f"rank {os.environ['RANK']} says {word}, torch is loaded, {threads}")
        return 7
    if word == "raise":
        raise ValueError("asked to")
    if word == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "child":
        print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
    time.sleep(600)
    return 0
