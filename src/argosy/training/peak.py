"""The matrix-product peak of one rank while all ranks multiply: the denominator of MFU on this machine."""

import time
from datetime import UTC, datetime

import torch
import torch.distributed as dist

from argosy.hardware.machine import this_machine
from argosy.hardware.peaks import Peak, PeakCache, PeakKey
from argosy.models.cpu import product
from argosy.parallel.control import sum_over_ranks

_SIZE = {"cpu": 1024, "cuda": 8192}
_REPEATS = 12


def matmul_peak(
    dtype_name: str, dtype: torch.dtype, device: torch.device, group: dist.ProcessGroup | None, cache: PeakCache
) -> Peak:
    """The cached peak of this machine, or one measured now (about a second); the same on all ranks.

    Best of several repeats of a square product per rank, mean over ranks. Raises InputError when the cache file is
    damaged.
    """
    rank, ranks = (dist.get_rank(group), dist.get_world_size(group)) if group is not None else (0, 1)
    key = PeakKey(
        machine=str(this_machine()),
        dtype=dtype_name,
        ranks=ranks,
        threads=torch.get_num_threads(),
        torch=torch.__version__,
    )
    today = datetime.now(UTC).date()
    cached = cache.get(key, today) if rank == 0 else None
    known = sum_over_ranks([cached.flops_per_s if cached else 0.0], group)[0]
    if known:
        return cached or Peak(key, known, _REPEATS, today.isoformat())
    best_s = _best_product_s(dtype, device)
    mean = sum_over_ranks([2 * _SIZE[device.type] ** 3 / best_s], group)[0] / ranks
    peak = Peak(key, mean, _REPEATS, today.isoformat())
    return cache.put(peak, today) if rank == 0 else peak


def _best_product_s(dtype: torch.dtype, device: torch.device) -> float:
    size = _SIZE[device.type]
    left = torch.ones(size, size, dtype=dtype, device=device)
    right = torch.ones(size, size, dtype=dtype, device=device)
    best_s = float("inf")
    for _ in range(_REPEATS):
        start = time.perf_counter()
        product(left, right)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best_s = min(best_s, time.perf_counter() - start)
    return best_s
