"""The real worker, whose rank 0 stands still inside a backward pass once, so that a test can kill it there."""

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from torch import Tensor, nn

from argosy.launch import rank
from argosy.training.observers import Observer

STEP = 3


class StallInBackward(Observer):
    """Writes `mark` and waits when the gradient of the first parameter arrives: backward is nearly through."""

    def __init__(self, mark: Path):
        self.mark = mark

    def on_local_grads(self, step: int, parameters: Iterable[nn.Parameter]) -> None:
        if step == STEP - 1:
            next(iter(parameters)).register_hook(self._stall)

    def _stall(self, gradient: Tensor) -> None:
        if not self.mark.exists():
            self.mark.write_text(str(os.getpid()))
            time.sleep(60)


if __name__ == "__main__":
    observers = [StallInBackward(Path(os.environ["STALL_MARK"]))] if os.environ["RANK"] == "0" else []
    code = rank.main(sys.argv[1:], more=observers)
    sys.stdout.flush()
    os._exit(code)
