"""The short measurement of a CPU gives figures that can be right, and leaves nothing behind."""

import multiprocessing

from argosy.hardware.measure import measure


def test_figures_are_possible_and_no_process_stays() -> None:
    found = measure(size=256, copied_bytes=2**22, sent_bytes=2**20)
    assert 1e8 < found.matmul_flops_per_s < 1e14
    assert 1e7 < found.memory_bytes_per_s < 1e13
    assert 1e6 < found.link_bytes_per_s < 1e12
    assert 1e-7 < found.link_latency_s < 1
    assert not [p for p in multiprocessing.active_children() if p.is_alive()]
