"""The interleave of sources: near its target everywhere, known at any index without what came before."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.data.mixture import FOREVER, Mixture, Stage, stages_of

BOUNDARY = 4096


def drawn(mixture: Mixture, count: int) -> np.ndarray:
    """[count + 1, sources] samples of each source before each index, counted from the sequence itself."""
    sources, numbers = mixture.sources_at(0, count)
    hits = np.zeros((count + 1, mixture.sources), dtype=np.int64)
    hits[np.arange(1, count + 1), sources] = 1
    for source in range(mixture.sources):
        of_source = numbers[sources == source]
        assert np.array_equal(np.sort(of_source), np.arange(len(of_source))), "each sample of a source once"
        assert np.abs(of_source - np.arange(len(of_source))).max(initial=0) < BOUNDARY
    return hits.cumsum(0)


def asked(stages: list[Stage], count: int) -> np.ndarray:
    """[count + 1, sources] what the weights ask for, worked out by adding up."""
    share = np.zeros((count + 1, len(stages[0].weights)))
    for stage in stages:
        if stage.first < count:
            share[stage.first + 1 :] = np.array(stage.weights) / sum(stage.weights)
    return share.cumsum(0)


@pytest.mark.parametrize(
    "weights",
    [
        (0.001, 0.999),
        (1.0,),
        (1, 1, 1),
        (0.6, 0.3, 0.09, 0.01),
        (1e-6, 1.0),
        tuple(np.random.default_rng(0).dirichlet([1.0] * 100)),
        tuple(np.random.default_rng(1).dirichlet([0.1] * 30)),
        tuple(0.5**k for k in range(20)),
    ],
    ids=["a thousandth", "alone", "thirds", "four", "a millionth", "a hundred", "thirty uneven", "halves"],
)
def test_the_realised_mixture_stays_at_its_target(weights: tuple[float, ...]) -> None:
    stages = [Stage(0, weights)]
    mixture = Mixture(stages, [None] * len(weights))
    count = 40 * BOUNDARY
    off = np.abs(drawn(mixture, count) - asked(stages, count))
    assert off[::BOUNDARY].max() <= 1
    assert off.max() <= mixture.bound() + 1 <= 4


@settings(max_examples=60)
@given(st.integers(2, 60), st.sampled_from([0.1, 0.3, 1.0, 10.0]), st.integers(0, 2**32))
def test_no_weights_break_the_bounds(sources: int, evenness: float, seed: int) -> None:
    weights = np.maximum(np.random.default_rng(seed).dirichlet([evenness] * sources), 1e-3)
    stages = [Stage(0, tuple(weights.tolist()))]
    mixture = Mixture(stages, [None] * sources)
    off = np.abs(drawn(mixture, 6 * BOUNDARY) - asked(stages, 6 * BOUNDARY))
    assert off[::BOUNDARY].max() <= 1 + 1e-9
    assert off.max() <= 4
    assert mixture.bound() < 1.7


@settings(max_examples=60)
@given(st.lists(st.floats(1e-12, 1), min_size=1, max_size=40))
def test_tiny_weights_too(weights: list[float]) -> None:
    stages = [Stage(0, tuple(weights))]
    mixture = Mixture(stages, [None] * len(weights))
    assert np.abs(drawn(mixture, 3 * BOUNDARY) - asked(stages, 3 * BOUNDARY)).max() <= 4
    assert mixture.bound() < 1.7


def test_samples_near_a_boundary_change_places_where_a_source_is_too_far_off() -> None:
    """Weights for which trees alone leave a source 1.18 off at a boundary: without mending this would be red."""
    weights = tuple(np.random.default_rng(3).dirichlet([0.1] * 10) + 1e-3)
    mixture = Mixture([Stage(0, weights)], [None] * 10)
    mended = [index for index in range(BOUNDARY, 300 * BOUNDARY, BOUNDARY) if mixture._mend(index) is not None]
    assert mended
    for boundary in mended:
        raw = mixture._counts_at(boundary) - mixture.targets(boundary)
        assert np.abs(raw).max() > 1
        assert np.abs(mixture.counts(boundary) - mixture.targets(boundary)).max() <= 1


@settings(max_examples=40)
@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=8), st.integers(0, 2**40), st.integers(1, 6000))
def test_any_index_is_known_without_what_came_before(weights: list[float], first: int, count: int) -> None:
    mixture = Mixture([Stage(0, tuple(weights))], [None] * len(weights))
    sources, numbers = mixture.sources_at(first, count)
    before, after = mixture.counts(first), mixture.counts(first + count)
    assert before.sum() == first
    assert np.array_equal(np.bincount(sources, minlength=len(weights)), after - before)
    whole_sources, whole_numbers = mixture.sources_at(first - first % 700, 700 + count)
    here = slice(first % 700, first % 700 + count)
    assert np.array_equal(whole_sources[here], sources)
    assert np.array_equal(whole_numbers[here], numbers)


def test_weights_that_change_keep_each_source_at_its_target() -> None:
    stages = [Stage(0, (0.2, 0.3, 0.5)), Stage(1001, (0.7, 0.0, 0.3)), Stage(5000, (0.1, 0.6, 0.3))]
    mixture = Mixture(stages, [None] * 3)
    counts = drawn(mixture, 20_000)
    assert np.abs(counts - asked(stages, 20_000)).max() <= 1.5
    assert counts[5000, 1] == counts[1001, 1], "a source without weight is not drawn"
    assert np.allclose(mixture.targets(20_000), asked(stages, 20_000)[-1])


def test_many_changes_do_not_add_up_their_rounding() -> None:
    generator = np.random.default_rng(4)
    stages = [Stage(first, tuple(generator.dirichlet([1.0] * 6))) for first in range(0, 30_000, 97)]
    mixture = Mixture(stages, [None] * 6)
    assert np.abs(drawn(mixture, 30_000) - asked(stages, 30_000)).max() <= 4


def test_what_was_drawn_does_not_depend_on_weights_to_come() -> None:
    now, later = Stage(0, (0.2, 0.3, 0.5)), Stage(1000, (0.9, 0.05, 0.05))
    alone = Mixture([now], [None] * 3).sources_at(0, 1000)
    assert np.array_equal(alone[0], Mixture([now, later], [None] * 3).sources_at(0, 1000)[0])


def test_a_source_at_its_limit_leaves_its_share_to_the_others() -> None:
    mixture = Mixture([Stage(0, (1.0, 2.0, 3.0))], [100, None, 1000])
    counts = drawn(mixture, 6000)
    assert counts[-1, 0] == 100
    assert counts[-1, 2] == 1000
    first_full = int(np.argmax(counts[:, 0] == 100))
    assert 598 <= first_full <= 602
    after = counts[first_full + 400] - counts[first_full]
    assert abs(after[1] - 160) <= 2, "2 : 3 without the first"
    assert mixture.end == FOREVER


def test_all_sources_at_their_limits_is_the_end() -> None:
    mixture = Mixture([Stage(0, (1.0, 1.0))], [10, 25])
    assert mixture.end == 35
    assert drawn(mixture, 35)[-1].tolist() == [10, 25]
    with pytest.raises(IndexError, match="hold 35 samples, 36"):
        mixture.sources_at(30, 6)


def test_schedules_of_sources_become_one() -> None:
    assert stages_of([0.7, 0.3], [{}, {100: 0.9, 300: 0.0}]) == [
        Stage(0, (0.7, 0.3)),
        Stage(100, (0.7, 0.9)),
        Stage(300, (0.7, 0.0)),
    ]


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([Stage(0, (0.0, 0.0))], "sum to 0"),
        ([Stage(0, (1.0, -1.0))], "from 0 on"),
        ([Stage(0, (1.0, float("nan")))], "from 0 on"),
        ([Stage(0, (1.0,))], "1 weights for 2 sources"),
        ([Stage(3, (1.0, 1.0))], "begins at index 0"),
        ([Stage(0, (1.0, 1.0)), Stage(0, (1.0, 1.0))], "ascend"),
        ([], "begins at index 0"),
    ],
)
def test_nonsense_is_refused(stages: list[Stage], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Mixture(stages, [None, None])
