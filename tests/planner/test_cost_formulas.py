"""The formulas of the cost model against hand-worked cases and published closed forms."""

import numpy as np
import pytest
from shared_data import ROW

from argosy.planner.cases import cases_from
from argosy.planner.collectives import all_reduce_s, group, pass_s
from argosy.planner.constants import fitted_constants
from argosy.planner.kernels import TILE, gemm_s
from argosy.planner.memory import memory, saved_bytes, settle_recompute
from argosy.planner.step_time import layer_parameters, model_flops, step_time
from argosy.planner.workload import Workload


def workload(**cells: object) -> Workload:
    return cases_from([ROW | {name: str(value) for name, value in cells.items()}]).workload()


def test_a_ring_moves_n_minus_1_over_n_of_the_tensor() -> None:
    w, size = workload(), 2.0**30
    c = fitted_constants().values(w)
    g = group(w, c, np.array([8.0]), np.array([1.0]))
    wire = 7 / 8 * size / (300e9 * c.link)  # eight ranks of a DGX A100 over NVLink
    assert pass_s(g, np.array([size]))[0] == pytest.approx(wire + c.alpha + 7 * c.alpha_link)
    assert all_reduce_s(g, np.array([size]))[0] == pytest.approx(2 * wire, rel=0.01)
    assert pass_s(group(w, c, np.array([1.0]), np.array([1.0])), np.array([size]))[0] == 0


def test_a_group_between_nodes_has_as_many_cards_as_members_per_node() -> None:
    w = workload()
    c = fitted_constants().values(w)
    # 16 data-parallel ranks that are 4 apart: 2 of them in each node of 8, so 2 cards of 25 GB/s
    g = group(w, c, np.array([16.0]), np.array([4.0]))
    assert g.local[0] == 2
    assert g.bytes_per_s[0] == pytest.approx(2 * 25e9 * c.nic / (1 + c.congestion * 3))


def test_a_large_product_runs_at_the_rate_of_the_die_and_a_small_one_below() -> None:
    w = workload()
    c = fitted_constants().values(w)
    rate = w.peak_flops_per_s * c.gemm
    n = np.array([65536.0])
    assert gemm_s(w, c, rate, 1.0, n, n, n)[0] == pytest.approx(2 * 65536**3 / rate[0], rel=0.01)
    m, k = np.array([128.0]), np.array([4096.0])
    small = 2 * (128 * 128 + c.wave * 108 * TILE) * (4096 + c.fill) / rate[0]
    assert gemm_s(w, c, rate, 1.0, m, m, k)[0] == pytest.approx(small, rel=0.05)


def test_activations_follow_korthikanti() -> None:
    # s·b·h·34 + 5·a·s²·b bytes per layer of a GPT with dropout; two masks of one byte less without it
    w = workload(framework="Megatron-LM", year=2021, tp=1, dp=64, recompute="none")
    s, b, h, a = 2048, 4, 4096, 32
    kept, again = saved_bytes(w)
    assert kept[0] == pytest.approx(s * b * h * 32 + 5 * a * s * s * b, rel=0.01)
    assert again[0] == 2 * s * b * h


def test_recomputing_all_layers_costs_a_forward_and_frees_the_rest() -> None:
    none, full = workload(recompute="none"), workload(recompute="full")
    c = fitted_constants().values(none)
    extra = step_time(full, c).compute / step_time(none, c).compute
    assert 1.28 < extra[0] < 4 / 3
    assert memory(full).activations[0] < 0.2 * memory(none).activations[0]


def test_the_bubble_is_p_minus_1_of_a_micro_batch_over_the_virtual_stages() -> None:
    c = fitted_constants()
    plain = workload(tp=1, pp=4, dp=16, layers=32)
    t = step_time(plain, c.values(plain))
    m = plain.micro_batches[0]
    inside = t.compute + t.tp_comm + t.host
    even = 3 / m * inside[0]
    assert t.bubble[0] >= even * 0.95  # and more where the output layer makes the last stage longer
    virtual = workload(tp=1, pp=4, dp=16, layers=32, vpp=4)
    less = step_time(virtual, c.values(virtual)).bubble[0]
    assert t.bubble[0] - less == pytest.approx(even * 3 / 4, rel=0.2)


def test_flops_and_parameters_of_a_layer_by_hand() -> None:
    w = workload()
    dense, expert = layer_parameters(w)
    assert dense[0] == 12 * 4096**2 + 2 * 4096
    assert expert[0] == 0
    per_token = 6 * (32 * 12 * 4096**2 + 50304 * 4096) + 12 * 32 * 2048 * 4096
    assert model_flops(w)[0] == per_token * 512 * 2048


def test_zero_divides_what_it_says() -> None:
    by_stage = {z: memory(workload(sharding=z, tp=1, dp=64)) for z in ("none", "zero1", "zero2", "fsdp")}
    whole = by_stage["none"]
    assert by_stage["zero1"].optimizer[0] == pytest.approx(whole.optimizer[0] / 64)
    assert by_stage["zero1"].weights[0] == whole.weights[0]
    assert by_stage["zero2"].gradients[0] == pytest.approx(whole.gradients[0] / 64)
    # FSDP keeps fp32 weights, 4 + 4 + 8 bytes per parameter and rank, and gathers two layers
    sharded = by_stage["fsdp"]
    state = sharded.weights[0] + sharded.optimizer[0]
    assert state == pytest.approx(12 / 14 * (whole.weights[0] + whole.optimizer[0]) / 64, rel=0.01)
    assert sharded.buffers[0] > whole.buffers[0]


def test_unstated_recompute_is_the_least_that_fits() -> None:
    roomy, full = (
        workload(recompute="", micro_batch=1, dp=64, tp=1),
        workload(recompute="", micro_batch=8, dp=16, tp=1, gpus=16),
    )
    assert settle_recompute(roomy).recompute_layers[0] < settle_recompute(full).recompute_layers[0] <= 1


def test_a_prediction_says_what_binds_and_how_sure_it_is() -> None:
    from argosy.planner.predict import predict

    p = predict(
        workload(dp=64, tp=1, global_batch_sequences=64, micro_batch=1, interconnect_if_stated="10 Gb/s per node")
    )
    assert p.binding(0) in ("gradient and parameter transfers", "memory")
    low, high = p.interval_s
    assert low[0] < p.step_time_s[0] < high[0]
