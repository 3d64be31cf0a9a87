"""Save in the background: ranks order their files, go on training, and agree later that all are there.

What the ranks must agree on travels in a sum that a training step makes anyway (:attr:`BackgroundSave.report`), so
the step path is kept waiting only while orders are sent.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch.distributed as dist

from argosy.checkpoint.manifest import Manifest
from argosy.checkpoint.orders import Abandon, Commit, Desk, Order, WriteFile
from argosy.checkpoint.plan import Plan
from argosy.checkpoint.snapshot import Snapshots
from argosy.checkpoint.write import rank_file_name
from argosy.checkpoint.writer_process import WriterProcess

LOOK_EVERY_S = 1.0
"""A writer that has answered says so in shared memory; one that has died does not, and is looked for less often."""


@dataclass(frozen=True)
class Saved:
    """How a save ended: the same on all ranks."""

    step: int
    error: Exception | None = None
    """The first real cause of a failure."""


class BackgroundSave:
    """One save at a time, from a snapshot to a committed checkpoint; one object on each rank.

    All ranks call :meth:`begin` at the same step, sum their :attr:`report` at every step, and hand the sum to
    :meth:`advance`.
    """

    def __init__(
        self, snapshots: Snapshots, plan: Plan, checkpoints: Path, generation: int, group: dist.ProcessGroup | None
    ):
        self._group = group
        self._rank = 0 if group is None else dist.get_rank(group)
        self._ranks = 1 if group is None else dist.get_world_size(group)
        self._snapshots = snapshots
        desk = Desk(
            checkpoints,
            generation,
            plan.file,
            # an empty chunk lies nowhere, and any place will do
            [(shard.chunk, snapshots.places.get(shard.chunk, 0)) for shard in plan.shards],
            [rank_file_name(rank) for rank in range(self._ranks)] if self._rank == 0 else [],
            plan.dcp_metadata or b"",
        )
        self.writer = WriterProcess(desk, snapshots.buffers.fd)
        self._stage: Literal["idle", "writing", "committing"] = "idle"
        self._manifest: Manifest | None = None
        self._ticket: int | None = None
        """Of the order that this rank waits for; None when it has nothing (more) to wait for."""
        self._error: Exception | None = None
        self._looked_s = float("-inf")

    @property
    def step(self) -> int | None:
        """Of the save under way; None when there is none."""
        return None if self._manifest is None else self._manifest.step

    def begin(self, manifest: Manifest, index: int) -> None:
        """Save what is in buffer `index`; it stays as it is until its content is written."""
        assert self._manifest is None, "one save at a time"
        self._snapshots.pin(index)
        self._manifest, self._stage = manifest, "writing"
        self._order(WriteFile(manifest.step, index))

    @property
    def report(self) -> tuple[float, float]:
        """For the sum over ranks: whether this rank is done with its part of the save, and whether it failed."""
        if self._ticket is not None and self._worth_a_look():
            self._look(0.0)
        return float(self._manifest is not None and self._ticket is None), float(self._error is not None)

    def wait(self) -> None:
        """Wait until this rank is done with its part."""
        self._look(None)

    def advance(self, done: float, failed: float) -> Saved | None:
        """Go on when all ranks are done; how the save ended, if it did. `done` and `failed` are sums over ranks."""
        if self._manifest is None or done < self._ranks:
            return None
        step = self._manifest.step
        if failed:
            saved = Saved(step, self._first_error())
            if self._rank == 0:
                self.writer.order(Abandon(step))
        elif self._stage == "writing":
            self._stage = "committing"
            self._snapshots.unpin()
            if self._rank == 0:
                self._order(Commit(self._manifest))
            return None
        else:
            saved = Saved(step)
        self._snapshots.unpin()
        self._stage, self._manifest, self._error = "idle", None, None
        return saved

    def close(self) -> None:
        """Let the writer end; what it does now, it finishes."""
        self.writer.close()

    def _order(self, order: Order) -> None:
        self._ticket, self._error = self.writer.order(order), None

    def _worth_a_look(self) -> bool:
        if self._snapshots.buffers.answered == self._ticket:
            return True
        if (now_s := time.monotonic()) < self._looked_s + LOOK_EVERY_S:
            return False
        self._looked_s = now_s
        return True

    def _look(self, timeout_s: float | None) -> None:
        if self._ticket is not None and (answer := self.writer.answer(self._ticket, timeout_s)) is not None:
            self._ticket, self._error = None, answer.error

    def _first_error(self) -> Exception:
        errors = [self._error]
        if self._group is not None:
            errors = [None] * self._ranks
            dist.all_gather_object(errors, self._error, group=self._group)
        return next(error for error in errors if error is not None)
