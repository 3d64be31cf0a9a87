"""Process groups whose every collective is stamped in the journal.

torch offers no completion times for gloo (work durations are unsupported and flight-recorder entries
stay "scheduled"), so a :class:`StampedGroup` stamps the host side: the call that issues a collective and
the wait for its result. On a CPU both block the rank, so their self time *is* the exposed communication.
On CUDA the host only enqueues; there a stock NCCL group is used and exposed time comes from the profiler.

The group derives from ``torch.distributed.ProcessGroup``, so FSDP2, DTensor, DCP and functional
collectives use it without knowing.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, FakeProcessGroup
from torch.distributed import ProcessGroup, ProcessGroupGloo, Store

from argosy.journal.phys import comm
from argosy.journal.recorder import Recording
from argosy.parallel.guard import CollectiveGuard

BACKEND = "argosy-gloo"

# Method of ProcessGroup -> operation. Both spellings of torch 2.11 to 2.14 are listed; absent ones are skipped.
_OPERATIONS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_single_coalesced": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_single_coalesced": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "alltoall_base": "all_to_all",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "send": "send",
    "recv": "recv",
}


class StampedWork(dist.Work):
    """The handle of an issued collective; `stamp` books the wait for it."""

    def __init__(self, work: dist.Work, stamp: AbstractContextManager):
        super().__init__()
        self._work = work
        self._stamp = stamp

    def wait(self, timeout: timedelta | None = None) -> bool:
        with self._stamp:
            return self._work.wait() if timeout is None else self._work.wait(timeout)

    def get_future(self) -> torch.futures.Future:
        return self._work.get_future()

    def is_completed(self) -> bool:
        return self._work.is_completed()

    def is_success(self) -> bool:
        return self._work.is_success()

    def exception(self) -> Any:
        return self._work.exception()


class StampedGroup(ProcessGroup):
    """A group of any CPU backend that reports calls and waits to a :class:`Recorder`.

    `axis` names the mesh axis that the group serves; ``control`` until the mesh is built, and for all but its groups.
    Collectives from other threads than the one that made the group run unstamped: they do not block the step.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        backend: Backend,
        kind: Any,
        recorder: Recording,
        guard: CollectiveGuard | None = None,
    ):
        # Only this constructor makes an instance whose Python methods C++ callers (DTensor) see too.
        super().__init__(rank, size)  # type: ignore[call-arg]  # the stubs lack it
        self._inner = ProcessGroup(store, rank, size)
        for group in (self, self._inner):
            group._register_backend(torch.device("cpu"), kind, backend)
            group._set_default_backend(kind)
        self._recorder = recorder
        self._guard = guard
        self._thread = threading.get_ident()
        self.axis = "control"

    def getBackendName(self) -> str:
        return BACKEND

    def stamped_call(self, method: str, operation: str, args: tuple, kwargs: dict) -> dist.Work:
        call = getattr(self._inner, method)
        if threading.get_ident() != self._thread:
            return call(*args, **kwargs)
        if self._guard is not None:
            self._guard.before(self, self.axis, operation, _bytes(args), _dtype(args))
        ends = _ends(operation, self.rank(), args)
        wait = self._recorder.collective(self.axis, operation, self.group_name, _bytes(args), ends)
        with self._recorder.phase(comm(self.axis)):
            work = call(*args, **kwargs)
        return StampedWork(work, wait)


def _stamped(method: str, operation: str) -> Callable[..., dist.Work]:
    def issue(self: StampedGroup, *args: Any, **kwargs: Any) -> dist.Work:
        return self.stamped_call(method, operation, args, kwargs)

    issue.__name__ = method
    return issue


for _method, _operation in _OPERATIONS.items():
    if hasattr(ProcessGroup, _method):
        setattr(StampedGroup, _method, _stamped(_method, _operation))


def _bytes(args: tuple) -> int:
    """Bytes of the largest tensor argument: the whole message of a collective."""
    sizes = [0]
    for arg in args:
        tensors = arg if isinstance(arg, (list, tuple)) else [arg]
        sizes.append(sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor)))
    return max(sizes)


def _dtype(args: tuple) -> torch.dtype | None:
    """Of the first tensor argument."""
    for arg in args:
        for tensor in arg if isinstance(arg, (list, tuple)) else [arg]:
            if isinstance(tensor, torch.Tensor):
                return tensor.dtype
    return None


def _ends(operation: str, rank: int, args: tuple) -> tuple[int, int | None] | None:
    """Who sends and who receives, as ranks in the group; (root, None) of a collective with a root."""
    if operation == "send":
        return rank, args[1]
    if operation == "recv":
        return args[1], rank
    roots = [arg.rootRank for arg in args if hasattr(arg, "rootRank")]
    return (roots[0], None) if roots else None


def use_stamped_groups(recorder: Recording, *, fake: bool = False, guard: CollectiveGuard | None = None) -> str:
    """Let groups that this process makes from now on report to `recorder`; returns the backend name for torch.

    They talk over gloo, or if `fake` to nobody: each collective is over at once and gives no result, so that one
    process can run the program of any rank of any world on fake tensors. A `guard` compares every call first.
    """

    def create(store: Store, rank: int, size: int, timeout: timedelta) -> StampedGroup:
        if fake:
            nobody = FakeProcessGroup._create_internal(rank, size)
            return StampedGroup(store, rank, size, nobody, ProcessGroup.BackendType.CUSTOM, recorder)
        gloo = ProcessGroupGloo(store, rank, size, timeout=timeout)
        group = StampedGroup(store, rank, size, gloo, ProcessGroup.BackendType.GLOO, recorder, guard)
        if guard is not None:
            guard.watch(group, store, rank, size, timeout)
        return group

    if BACKEND.upper() in dist.Backend._plugins:
        dist.Backend._plugins.pop(BACKEND.upper())  # a warm process that trains again brings a new recorder
    dist.Backend.register_backend(BACKEND, create, devices=["cpu"])
    return BACKEND


def control_group() -> ProcessGroup:
    """A gloo group over all ranks for counts, wishes and objects, apart from the groups that move model state."""
    return dist.new_group(backend=BACKEND)
