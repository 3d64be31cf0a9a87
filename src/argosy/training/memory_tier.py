"""The memory tier of one rank: snapshots that outlive its process, and back from them."""

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch.distributed as dist

from argosy.checkpoint.load import restore_rng
from argosy.checkpoint.manifest import Manifest
from argosy.checkpoint.snapshot import Arrangement, Snapshots, hold, new_buffers
from argosy.checkpoint.snapshot_host import SnapshotHost, host_name
from argosy.checkpoint.state import Tree
from argosy.errors import StoppedError
from argosy.hardware.memory import free_memory_bytes
from argosy.parallel.control import sum_over_ranks
from argosy.recipe.schema import CheckpointTable
from argosy.registry.run_folder import RunFolder
from argosy.training.state import LoopState

FREE_SHARE = 0.5
"""Of the machine's free memory, what snapshots may take."""


@dataclass
class Memory:
    """Snapshots of one rank, and the host that keeps them; without a host they end with this process."""

    rank: int
    snapshots: Snapshots
    host: SnapshotHost | None

    def restore(self, tree: Tree, newest_saved: int, group: dist.ProcessGroup | None) -> LoopState | None:
        """Put back the newest state that all ranks hold, unless storage has a newer one; None when it stays there."""
        step = self.snapshots.newest_common(group)
        if step is None or step < newest_saved:
            self.snapshots.forget()
            return None
        note = self.snapshots.restore(step)
        restore_rng(tree, self.rank)
        return LoopState.from_dict(note["training"])

    def let_go(self) -> None:
        """The end is on storage, so nobody needs a snapshot any more: give the memory back, of all ranks here."""
        if self.host is not None:
            with contextlib.suppress(StoppedError):  # the host is gone, and the memory with it
                self.host.drop()
            self.host.close()


def open_memory(
    table: CheckpointTable,
    run: RunFolder,
    manifest: Manifest,
    tree: Tree,
    group: dist.ProcessGroup | None,
    say: Callable[[str], None],
) -> Memory | None:
    """Memory for the snapshots that the recipe wants, with what an earlier attempt left in it. Collective over `group`.

    `manifest` is that of the attempt that begins: a snapshot is of use to one of the same run, layout and data alone.
    None where the recipe wants no snapshots, or where a rank has not enough memory.
    """
    outlives = table.snapshot_every_steps != 0
    if not (outlives or table.background):
        return None
    rank = 0 if group is None else dist.get_rank(group)
    state = Arrangement(tree)
    host, buffers, why = None, None, ""
    free = free_memory_bytes()
    room_bytes = None if free is None else int(FREE_SHARE * free / _local_ranks(manifest.world_size))
    try:
        if sys.platform != "linux":
            raise OSError("memory that outlives a process is made with Linux's memfd_create")
        if outlives:
            host = SnapshotHost.start(host_name(run.path, run.info.id))
            for held in host.held():
                if held.rank >= manifest.world_size:  # of a larger world
                    host.drop(held.rank)
            buffers = hold(host, rank, _identity(state, rank, manifest), state.bytes, room_bytes)
        else:
            buffers = new_buffers(1, state.bytes, room_bytes)
    except (OSError, StoppedError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    lacking = sum_over_ranks([float(buffers is None)], group)[0]
    if buffers is None or lacking:
        why = why or "another rank has no memory for them"
        say(f"no snapshots ({why}): training waits while checkpoints are written")
        if host is not None:
            with contextlib.suppress(StoppedError):
                host.drop(rank)
            host.close()
        return None
    return Memory(rank, Snapshots(state, buffers, manifest.generation), host)


def _identity(state: Arrangement, rank: int, manifest: Manifest) -> str:
    return state.identity(
        rank=rank,
        world_size=manifest.world_size,
        layout=manifest.layout,
        learning_hash=manifest.learning_hash,
        data_digest=manifest.data_digest,
        code_version=manifest.code_version,
    )


def _local_ranks(world_size: int) -> int:
    """Ranks on this machine, as torchrun says it; all of them where nobody says."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
