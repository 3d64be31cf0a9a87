"""Search against brute force, and what it promises about its answers."""

import numpy as np
import pytest

from argosy.errors import UsageError
from argosy.hardware.cluster_file import load_cluster
from argosy.layout.fits import check_batch, check_model
from argosy.planner.constants import fitted_constants
from argosy.planner.predict import predict
from argosy.planner.question import Question, from_preset
from argosy.planner.search import calibrated, found_for, played_step_s, search
from argosy.planner.space import build_space


def ask(model: str, count: int, batch: int = 2**21) -> Question:
    return from_preset(model, accelerators=count, sequence_length=None, batch_tokens=batch, dtype="bf16", tokens=None)


@pytest.mark.parametrize(
    ("model", "cluster"), [("llama3-8b", "16xA100-40GB"), ("llama3-70b", "64xH100"), ("gpt2-xl", "4x4090")]
)
def test_pruning_loses_nothing(model: str, cluster: str) -> None:
    c = load_cluster(cluster)
    q = ask(model, c.count)
    pruned, full = search(q, c), search(q, c, prune=False)

    def answers(found: object) -> list[tuple[float, float]]:
        p = found.prediction  # type: ignore[attr-defined]
        return sorted((float(p.step_time_s[i]), float(p.peak_memory_bytes[i])) for i in found.order)  # type: ignore[attr-defined]

    assert answers(pruned) == answers(full)
    assert len(pruned.space) < len(full.space) or len(full.order) == len(full.space)


def test_every_layout_that_is_offered_is_one_the_engine_accepts() -> None:
    c = load_cluster("64xH100")
    q = ask("llama3-8b", 64)
    found = search(q, c)
    for i in found.order[:: max(1, len(found.order) // 200)]:
        layout = found.layout(int(i))  # building one checks it
        assert layout.world_size == 64
        check_model(layout, q.model, q.sequence_length)
        check_batch(layout, q.batch_sequences)


def test_the_front_is_not_dominated_and_the_best_is_on_time() -> None:
    found = search(ask("llama3-8b", 32), load_cluster("32xH100"))
    time, memory = found.prediction.step_time_s, found.prediction.peak_memory_bytes
    front = found.pareto()
    for i in front:
        assert not np.any((time[found.order] < time[i]) & (memory[found.order] < memory[i] * (1 - 1e-6)))
    assert time[found.best] <= 1.011 * time[found.order].min()
    assert found.regret[found.robust] == min(found.regret.values())


def test_memory_bound_is_a_bound() -> None:
    # What is pruned relies on it: memory grows with the micro-batch and without recomputation
    q = ask("llama3-70b", 64)
    space = build_space(q, load_cluster("64xH100"), prune=False)
    w = space.workload
    least = predict(w.replace(micro_batch=1.0, recompute_layers=1.0)).peak_memory_bytes
    assert np.all(predict(w).peak_memory_bytes >= least * (1 - 1e-9))


def test_one_layout_costs_the_same_alone_as_in_the_search() -> None:
    c = load_cluster("64xH100")
    q = ask("llama3-70b", 64)
    found = search(q, c)
    for i in found.order[:5]:
        alone = found_for(q, c, found.layout(int(i)))
        assert alone.prediction.step_time_s[0] == pytest.approx(found.prediction.step_time_s[i], rel=1e-6)


def test_the_closed_form_and_the_played_schedule_agree() -> None:
    c = load_cluster("64xH100")
    q = ask("llama3-70b", 64)
    found = search(q, c)
    piped = [int(i) for i in found.order if found.layout(int(i)).pp in (2, 4)][:4]
    assert piped
    for i in piped:
        assert played_step_s(found, i) == pytest.approx(found.prediction.step_time_s[i], rel=0.15)


def test_faster_links_are_not_slower_and_calibration_names_its_classes() -> None:
    base = fitted_constants()
    c = load_cluster("64xH100")
    q = ask("llama3-70b", 64)
    found = search(q, c)
    w = found.space.workload
    from argosy.planner.step_time import step_time

    slow, fast = (step_time(w, base.scaled(nic=f).values(w)).total for f in (0.8, 1.2))
    assert np.all(slow >= fast - 1e-12)
    with pytest.raises(UsageError, match="unknown classes in measured: gem"):
        calibrated(base, type(c)(**{**c.__dict__, "measured": {"gem": 1.0}}))


def test_too_large_a_model_says_what_fills_the_memory_and_how_many_would_do() -> None:
    with pytest.raises(
        UsageError, match=r"does not fit on 8 .* smallest layout needs .* use 16 accelerators; optimizer"
    ):
        search(ask("llama3-70b", 8), load_cluster("8xH100"))


def test_a_batch_that_cannot_be_dealt_out_names_the_nearest_count() -> None:
    q = Question("m", ask("llama3-8b", 8).model, 128_256, 8192, 3)
    with pytest.raises(UsageError, match=r"no layout puts 3 sequences .* use \d+ accelerators"):
        search(q, load_cluster("1021xH100"))


def test_a_precision_the_part_lacks_is_refused() -> None:
    q = from_preset("llama3-8b", accelerators=8, sequence_length=None, batch_tokens=None, dtype="fp8", tokens=None)
    with pytest.raises(UsageError, match="A100-SXM4-80GB has no fp8"):
        search(q, load_cluster("8xA100"))
