"""A worker without torch for tests of the launcher: a real process that does as its first argument says.

obey      wait for control/stop, record the reason as rank 0 does, end with 75
done      end with 0
fail R    rank R prints and ends with 1, the others wait
kill R    rank R kills itself, the others wait and ignore SIGTERM
env       print the environment that the launcher sets, and end with 0
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

mode, *rest = sys.argv[1:]
options = dict(zip(sys.argv[-8::2], sys.argv[-7::2], strict=True))
run, attempt = Path(options["--run-dir"]), options["--attempt"]
rank = os.environ["RANK"]
journal = run / "events" / f"attempt-{attempt}" / f"rank-{rank}.jsonl"


def stop(reason: str, code: int) -> None:
    journal.write_text(json.dumps({"k": "decision", "q": 0, "t": 0, "what": "stop", "reason": reason}) + "\n")
    sys.exit(code)


if mode == "done":
    stop("horizon", 0)
elif mode == "env":
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "OMP_NUM_THREADS")
    print(json.dumps({name: os.environ[name] for name in names} | options), flush=True)
    stop("asked for the environment only", 0)
elif mode == "obey":
    (run / f"ready-{rank}").write_text(str(os.getpid()))
    while not (run / "control" / "stop").exists():
        time.sleep(0.005)
    time.sleep(0.5)  # saving takes a while
    stop(f"asked to stop: {(run / 'control' / 'stop').read_text().strip()}", 75)
elif mode == "refuse":
    sys.exit(66)
elif mode == "ignore":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (run / f"ready-{rank}").write_text(str(os.getpid()))
    time.sleep(600)
elif rank == rest[0]:
    print(f"rank {rank} saw something bad", flush=True)
    if mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(1)
else:
    if mode == "kill":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
