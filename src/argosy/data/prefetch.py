"""Batches of the next steps, read in the background while the model computes."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from argosy.data.batch import Batch
from argosy.data.position import Position, Ranges

Load = Callable[[Ranges], Sequence[Batch]]


class Prefetch:
    """Reads up to ``depth`` steps ahead of where the run stands; 0 reads when asked, in the caller's thread.

    What is read depends on the position alone, so any depth gives the same batches, and after a jump the batches that
    were read ahead are dropped. One thread does all reading; its memory is ``depth`` steps of batches.

    Args:
        load: reads the batches of one step at the given global indices.
        count: indices of one step.
        depth: steps ahead.
        pin: put batches into page-locked memory, for copies to a GPU.
    """

    def __init__(self, load: Load, count: int, depth: int, *, pin: bool = False):
        self._load = load
        self._count = count
        self._depth = depth
        self._pin = pin
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="data") if depth else None
        self._ahead: deque[tuple[Position, Position, Future[Sequence[Batch]]]] = deque()

    def get(self, position: Position) -> tuple[Sequence[Batch], Position]:
        """Batches of the step at ``position``, and the position after it. Raises what reading raised."""
        if self._thread is None:
            window, after = position.take(self._count)
            return self._read(window), after
        if self._ahead and self._ahead[0][0] != position:
            self._drop()
        self._read_on(position)
        _, after, future = self._ahead.popleft()
        batches = future.result()
        self._read_on(after)
        return batches, after

    def _read_on(self, position: Position) -> None:
        assert self._thread is not None
        if self._ahead:
            position = self._ahead[-1][1]
        while len(self._ahead) < self._depth:
            window, after = position.take(self._count)
            self._ahead.append((position, after, self._thread.submit(self._read, window)))
            position = after

    def _read(self, window: Ranges) -> Sequence[Batch]:
        batches = self._load(window)
        return [batch.pinned() for batch in batches] if self._pin else batches

    def _drop(self) -> None:
        while self._ahead:
            self._ahead.popleft()[2].cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading ahead."""
        self._drop()
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
