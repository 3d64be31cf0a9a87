"""The short measurement of a CPU gives figures that can be right, and leaves nothing behind."""

import multiprocessing

from argosy.hardware.cluster_file import load_cluster
from argosy.hardware.local import local_cluster
from argosy.hardware.measure import Measured, measure
from argosy.planner.question import from_preset
from argosy.planner.search import search


def test_figures_are_possible_and_no_process_stays() -> None:
    found = measure(size=256, copied_bytes=2**22, sent_bytes=2**20)
    assert 1e8 < found.matmul_flops_per_s < 1e14
    assert 1e7 < found.memory_bytes_per_s < 1e13
    assert 1e6 < found.link_bytes_per_s < 1e12
    assert 1e-7 < found.link_latency_s < 1
    assert not [p for p in multiprocessing.active_children() if p.is_alive()]


def test_this_machine_is_a_cluster_whose_ranks_share_it() -> None:
    one, two = (local_cluster(ranks, Measured(2e11, 2e10, 2e9, 2e-5)) for ranks in (1, 2))
    assert two.part.peak_flops_per_s["fp32"] == one.part.peak_flops_per_s["fp32"] / 2 == 1e11
    assert two.part.memory_bytes == one.part.memory_bytes // 2
    assert load_cluster("local:2").name == "local:2"
    q = from_preset("gpt2", accelerators=2, sequence_length=256, batch_tokens=2048, dtype="fp32", tokens=None)
    found = search(q, two)
    # 2048 tokens of 124M parameters are 6 FLOP each, at 2e11 FLOP/s of both ranks together
    least_s = 6 * 1.2e8 * 2048 / 2e11
    assert least_s < found.prediction.step_time_s[found.best] < 3 * least_s
