"""The launcher of a drill, in a process tree of its own: ``python -m argosy.drill.agent RECIPE RUN NPROC [SET…]``.

It is the real launcher; only its ranks can be told to break.
"""

import sys
from pathlib import Path

from argosy.launch.live import LiveLine
from argosy.launch.local import train

ENTRY = "argosy.drill.saboteur:main"


def main() -> int:
    recipe, run, nproc, *sets = sys.argv[1:]
    live = LiveLine(sys.stdout)
    outcome = train(Path(recipe), sets, int(nproc), Path(run), live=live, entry=ENTRY)
    for line in outcome.said:
        live.say(line)
    return outcome.exit


if __name__ == "__main__":
    sys.exit(main())
