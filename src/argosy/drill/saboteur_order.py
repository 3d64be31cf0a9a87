"""What a rank is told to do, as a file that only the drill and its saboteur know. No torch here."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = "ARGOSY_DRILL"
"""Environment variable with the folder of the order; every process of the trial inherits it."""
ALL = -1
"""In place of a rank."""


@dataclass(frozen=True)
class Order:
    """What to do, on which rank, and when: at the first moment called `phase` in or after `step`."""

    act: str
    rank: int
    step: int
    phase: str = "forward"
    times: int = 1
    every: int = 0
    """Steps between repetitions; 0: in every step while `times` lasts."""
    seconds: float = 60.0
    log_delay_s: float = 0.0
    """An exception is raised, and its text written, only after this long."""

    def write(self, folder: Path) -> None:
        (folder / "order.tmp").write_text(json.dumps(asdict(self)))
        (folder / "order.tmp").replace(folder / "order.json")
