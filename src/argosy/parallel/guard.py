"""Do all ranks of a group make the same collective? Asked before each one, in debugging and in drills.

gloo pairs the n-th call of one rank with the n-th of another, whatever they are: one that a rank skips gives wrong
numbers without an error, or blocks until the timeout. Here the ranks first tell each other what they are about to do,
over a group of its own, so a difference is an error on all of them before any number is wrong. A call that is missing
at the end of a step is found there, before the optimizer changes anything. NCCL has its flight recorder for this.
"""

import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, ProcessGroupGloo, Store

_DTYPES = {dtype: code for code, dtype in enumerate((torch.float32, torch.bfloat16, torch.float64, torch.int64))}
_END = "end of step"
_POLL_S = 0.0005
_OPERATIONS = (
    _END,
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "barrier",
)


class CollectiveMismatch(RuntimeError):
    """Ranks of one group are about to make different collectives."""

    fault_class = "desync"

    def __init__(self, text: str, guilty_rank: int | None):
        super().__init__(text)
        self.guilty_rank = guilty_rank
        """The only rank that differs from all others; None when that cannot be told."""


@dataclass
class _Channel:
    group: ProcessGroupGloo
    ranks: tuple[int, ...]
    """Of the group, in the whole world."""
    calls: int = 0
    axis: str = "control"
    """As of the last call."""


class CollectiveGuard:
    """Compares the calls of all groups that are made while it is in use."""

    def __init__(self) -> None:
        self._channels: dict[dist.ProcessGroup, _Channel] = {}

    def watch(self, group: dist.ProcessGroup, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        """Begin to compare the calls of a group; collective over it."""
        if size == 1:
            return
        store = PrefixStore("guard", store)
        store.set(f"rank-{rank}", str(dist.get_rank() if dist.is_initialized() else rank))
        ranks = tuple(int(store.get(f"rank-{peer}")) for peer in range(size))
        self._channels[group] = _Channel(ProcessGroupGloo(store, rank, size, timeout=timeout), ranks)

    def before(
        self, group: dist.ProcessGroup, axis: str, operation: str, tensor_bytes: int, dtype: torch.dtype | None
    ) -> None:
        """Compare a call of `group`; raises CollectiveMismatch on all its ranks."""
        channel = self._channels.get(group)
        if channel is None or operation not in _OPERATIONS:  # messages between two ranks carry a tag of their own
            return
        channel.calls += 1
        channel.axis = axis
        code = -1 if dtype is None else _DTYPES.get(dtype, len(_DTYPES))
        self._compare(channel, [channel.calls, _OPERATIONS.index(operation), tensor_bytes, code])

    def end_of_step(self) -> None:
        """Compare that all ranks have made all calls; raises CollectiveMismatch.

        All groups are asked at once: the rank that is missing in one of them may wait in any other.
        """
        waiting = [(channel, *_tell(channel, [channel.calls, _OPERATIONS.index(_END), 0, -1]))
                   for channel in self._channels.values()]  # fmt: skip
        while waiting:
            missing = []
            for channel, work, calls in waiting:
                if not work.is_completed():
                    missing.append((channel, work, calls))
                    continue
                work.wait()
                self._check(channel, calls)
            waiting = missing
            time.sleep(_POLL_S if waiting else 0)

    def _compare(self, channel: _Channel, call: list[int]) -> None:
        work, calls = _tell(channel, call)
        work.wait()
        self._check(channel, calls)

    def _check(self, channel: _Channel, calls: list[torch.Tensor]) -> None:
        told = [tuple(one.tolist()) for one in calls]
        counts = Counter(told)
        if len(counts) == 1:
            return
        self._channels.clear()  # which closes them: ranks that wait for this one in another group learn that it is gone
        usual, most = counts.most_common(1)[0]
        odd = [rank for rank, one in zip(channel.ranks, told, strict=True) if one != usual]
        sides = "; ".join(f"rank {rank} {_say(one)}" for rank, one in zip(channel.ranks, told, strict=True))
        guilty = odd[0] if len(odd) == 1 < most else None
        raise CollectiveMismatch(f"ranks are out of step on {channel.axis}: {sides}", guilty)


def _tell(channel: _Channel, call: list[int]) -> tuple[dist.Work, list[torch.Tensor]]:
    """Exchange calls: a handle, and where those of all ranks will be once it is done."""
    mine = torch.tensor(call)
    calls = [torch.empty_like(mine) for _ in channel.ranks]
    return channel.group.allgather([calls], [mine]), calls  # type: ignore[attr-defined]  # the stubs lack it


def _say(call: tuple[int, ...]) -> str:
    number, operation, tensor_bytes, _ = call
    if _OPERATIONS[operation] == _END:
        return f"ends the step after {number} calls"
    return f"makes call {number}, {_OPERATIONS[operation]} of {tensor_bytes} bytes"
