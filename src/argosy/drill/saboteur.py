"""A rank that breaks when it is told to: the real worker with one more observer.

The drill writes an order into a folder that only this observer knows; the run, its supervisor and its detectors learn
nothing of it. Each order is carried out by one rank, `times` times.
"""

import ctypes
import json
import math
import mmap
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from argosy.data.batch import Batch
from argosy.drill.saboteur_order import ALL, FOLDER, Order
from argosy.launch import rank as door
from argosy.launch.rank import preload  # noqa: F401  the warm server calls it
from argosy.training.observers import Observer, Ready


class Saboteur(Observer):
    """Carries out the order of its rank."""

    def __init__(self, folder: Path, rank: int):
        self._folder, self._rank = folder, rank
        self._done = folder / f"done-{rank}"
        self._order: Order | None = None
        self._read = False
        self._ready: Ready | None = None

    # -- moments -------------------------------------------------------------------------------------

    def on_ready(self, ready: Ready) -> None:
        self._ready = ready

    def on_phase(self, name: str, step: int) -> None:
        self._moment(name, step)

    def on_batch(self, step: int, batches: Sequence[Batch]) -> None:
        self._moment("batch", step, batches=batches)

    def on_local_grads(self, step: int, parameters: Iterable[nn.Parameter]) -> None:
        self._moment("gradients", step, parameters=list(parameters))

    def on_update(self, step: int, applied: bool) -> None:
        self._moment("update", step)

    def on_step_end(self, step: int, loss: float) -> None:
        self._moment("end", step)

    def _moment(self, phase: str, step: int, **have: Any) -> None:
        order = self._my_order()
        if order is None or order.phase != phase or step < order.step:
            return
        if order.every and (step - order.step) % order.every:
            return
        if self._count() >= order.times:
            return
        with self._done.open("a") as file:
            file.write(f"{time.monotonic_ns()} {step} {os.getpid()}\n")
        getattr(self, f"_{order.act}")(order, **have)

    def _my_order(self) -> Order | None:
        if not self._read:
            try:
                order = Order(**json.loads((self._folder / "order.json").read_text()))
            except FileNotFoundError:
                return None
            self._read = True
            self._order = order if order.rank in (self._rank, ALL) else None
        return self._order

    def _count(self) -> int:
        try:
            return len(self._done.read_text().splitlines())
        except FileNotFoundError:
            return 0

    # -- acts ----------------------------------------------------------------------------------------

    def _hold_lock(self, order: Order, **_: Any) -> None:
        """Native code that keeps the interpreter's lock."""
        ctypes.PyDLL(None).usleep(int(min(order.seconds, 2_000) * 1_000_000))

    def _loop(self, order: Order, **_: Any) -> None:
        give_up = time.monotonic() + order.seconds
        while time.monotonic() < give_up:
            pass

    def _sleep(self, order: Order, **_: Any) -> None:
        time.sleep(order.seconds)

    def _slow_disk(self, order: Order, **_: Any) -> None:
        """The next sync of a file takes long: inside a save, which is a declared phase."""
        sync = os.fsync

        def slow_sync(descriptor: Any) -> None:
            os.fsync = sync
            time.sleep(order.seconds)
            sync(descriptor)

        os.fsync = slow_sync  # type: ignore[assignment]

    def _slow(self, order: Order, **_: Any) -> None:
        """A little slower at each step: `seconds` are busy ones."""
        self._loop(order)

    def _raise(self, order: Order, **_: Any) -> None:
        time.sleep(order.log_delay_s)
        raise ValueError("the drill's own error")

    def _leave(self, order: Order, **_: Any) -> None:
        sys.exit(0)

    def _exit(self, order: Order, **_: Any) -> None:
        os._exit(0)

    def _segfault(self, order: Order, **_: Any) -> None:
        os.kill(os.getpid(), signal.SIGSEGV) if order.seconds < 0 else ctypes.string_at(0)

    def _abort(self, order: Order, **_: Any) -> None:
        os.abort()

    def _bus(self, order: Order, **_: Any) -> None:
        """A mapped file that becomes shorter."""
        with tempfile.TemporaryFile() as file:
            file.truncate(mmap.PAGESIZE)
            mapped = mmap.mmap(file.fileno(), mmap.PAGESIZE)
            file.truncate(0)
            mapped[0]

    def _die(self, order: Order, **_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _eat_memory(self, order: Order, **_: Any) -> None:
        hoard = []
        while True:
            hoard.append(bytearray(os.urandom(1 << 20) * 8))

    def _extra_collective(self, order: Order, **_: Any) -> None:
        """One collective that the others do not make: from here on each of theirs meets the one before it."""
        assert self._ready is not None
        dist.all_reduce(torch.zeros(3), group=self._ready.group)

    def _bad_gradient(self, order: Order, parameters: Sequence[nn.Parameter] = (), **_: Any) -> None:
        self._put(parameters, math.nan)

    def _infinite_gradient(self, order: Order, parameters: Sequence[nn.Parameter] = (), **_: Any) -> None:
        self._put(parameters, math.inf)

    def _wrong_gradient(self, order: Order, parameters: Sequence[nn.Parameter] = (), **_: Any) -> None:
        """Finite and wrong: nothing can tell it from a right one."""
        self._put(parameters, 1e-3)

    def _put(self, parameters: Sequence[nn.Parameter], value: float) -> None:
        gradient = parameters[-1].grad
        assert gradient is not None
        local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        with torch.no_grad():
            local.view(-1)[-1] = value

    def _flip_parameter(self, order: Order, **_: Any) -> None:
        self._flip("model")

    def _flip_moment(self, order: Order, **_: Any) -> None:
        self._flip("optimizer")

    def _flip(self, part: str) -> None:
        """One bit of one element of this rank's copy."""
        assert self._ready is not None
        tensor = max(self._ready.tree[part].values(), key=lambda tensor: tensor.numel())
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        with torch.no_grad():
            local.view(-1)[0].view(torch.int32).bitwise_xor_(1 << 10)

    def _poison(self, order: Order, batches: Sequence[Batch] = (), **_: Any) -> None:
        """Targets that have nothing to do with the text."""
        for batch in batches:
            batch.targets.copy_((batch.targets * 31 + 17) % 251)


def main(arguments: Sequence[str]) -> int:
    """What the warm server calls in a worker of a drill."""
    folder = os.environ.get(FOLDER)
    more = [Saboteur(Path(folder), int(os.environ["RANK"]))] if folder else []
    return door.main(arguments, more=more)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
