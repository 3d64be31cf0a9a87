"""This machine as a cluster of CPU ranks, from a short measurement: what `--cluster local:2` means."""

import os

from argosy.errors import UsageError
from argosy.hardware.cluster import Cluster
from argosy.hardware.machine import this_machine
from argosy.hardware.measure import Measured, measure
from argosy.hardware.parts import Part


def local_cluster(ranks: int, measured: Measured | None = None) -> Cluster:
    """`ranks` processes that share this machine's cores and memory evenly. Measures unless `measured` is given.

    A process on a share of the cores reaches about that share of the rates that one process on all of them had.
    """
    if ranks < 1:
        raise UsageError("a cluster needs at least 1 rank", where="--cluster")
    found = measured or measure()
    share = 1.0 / ranks
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    flops = found.matmul_flops_per_s * share
    part = Part(
        id=f"CPU ({this_machine().cpu})",
        aliases=(),
        die="cpu",
        # bf16 is emulated or converted on most CPUs: no faster than fp32
        peak_flops_per_s={"fp32": flops, "bf16": flops},
        matmul_flops_per_s={"fp32": flops},
        sustained_share=0.95,  # the peak is a measured product already
        memory_bytes=int(memory_bytes * share),
        memory_bytes_per_s=found.memory_bytes_per_s * share,
        processors=1,
        link_bytes_per_s=found.link_bytes_per_s,
        domain=ranks,
        per_node=ranks,
        nic_bytes_per_s=found.link_bytes_per_s,
        price_usd_per_h=None,
        price_source="",
        source="measured here",
        date="",
    )
    return Cluster(
        name=f"local:{ranks}",
        part=part,
        count=ranks,
        per_node=ranks,
        domain=ranks,
        link_bytes_per_s=part.link_bytes_per_s,
        nic_bytes_per_s=part.nic_bytes_per_s,
    )
