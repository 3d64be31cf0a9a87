"""The matrix-product peak of one rank while all ranks multiply: the denominator of MFU on this machine."""

import contextlib
import time
from datetime import UTC, datetime

import torch
import torch.distributed as dist

from argosy.errors import InputError
from argosy.hardware.machine import this_machine
from argosy.hardware.peaks import Peak, PeakCache, PeakKey
from argosy.models.cpu import product
from argosy.parallel.control import sum_over_ranks

_SIZE = {"cpu": 1024, "cuda": 8192}
_REPEATS = 6


def matmul_peak(
    dtype_name: str, dtype: torch.dtype, device: torch.device, group: dist.ProcessGroup | None, cache: PeakCache
) -> Peak:
    """Measure the peak (a tenth of a second) and return the best that this machine has shown; the same on all ranks.

    Best of several repeats of a square product per rank, mean over ranks. Each start measures anew, since a busy
    machine shows too little: the cache keeps the highest.
    """
    rank, ranks = (dist.get_rank(group), dist.get_world_size(group)) if group is not None else (0, 1)
    today = datetime.now(UTC).date()
    key = PeakKey(
        machine=str(this_machine()),
        dtype=dtype_name,
        ranks=ranks,
        threads=torch.get_num_threads(),
        torch=torch.__version__,
    )
    flops = 2 * _SIZE[device.type] ** 3
    mean = sum_over_ranks([flops / _best_product_s(dtype, device)], group)[0] / ranks
    best = Peak(key, mean, _REPEATS, today.isoformat())
    if rank == 0:
        # Without the cache only the memory of earlier measurements is missing: no reason not to train.
        with contextlib.suppress(InputError):
            best = cache.put(best, today)
    return Peak(key, sum_over_ranks([best.flops_per_s if rank == 0 else 0.0], group)[0], _REPEATS, best.measured_on)


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
