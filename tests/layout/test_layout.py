"""A layout places every rank once, survives JSON, and says which values would do when it does not fit."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.errors import UsageError
from argosy.layout.fits import check_batch, check_model
from argosy.layout.layout import MESH_AXES, REPLICATED_STATE_BYTES, Layout
from argosy.layout.schedules import SCHEDULES
from argosy.layout.stages import schedule_of
from argosy.recipe.model_table import ModelTable
from argosy.recipe.schema import LayoutTable

sizes = st.integers(1, 3)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    pp, fsdp, dp = draw(sizes), draw(sizes), draw(sizes)
    return Layout(
        dp=dp,
        fsdp=fsdp,
        cp=draw(sizes),
        tp=draw(sizes),
        pp=pp,
        ep=draw(st.sampled_from([d for d in range(1, dp * fsdp + 1) if dp * fsdp % d == 0])),
        order=tuple(draw(st.permutations(MESH_AXES))),
        zero=draw(st.sampled_from([0, 1, 2, 3])) if fsdp > 1 else 0,
        schedule="1f1b" if pp > 1 else "none",
        stage_layers=tuple(draw(st.lists(st.integers(1, 4), min_size=pp, max_size=pp)))
        if draw(st.booleans())
        else None,
        micro_batch_sequences=draw(st.none() | sizes),
        compile=draw(st.booleans()),
    )


@given(layouts())
def test_json_round_trip(layout: Layout) -> None:
    assert Layout.from_json(layout.to_json()) == layout


@given(layouts())
def test_ranks_and_coordinates_are_one_to_one(layout: Layout) -> None:
    places = [layout.coordinates(rank) for rank in range(layout.world_size)]
    assert [layout.rank(place) for place in places] == list(range(layout.world_size))
    # row-major, as torch numbers a DeviceMesh of the sizes in `order`
    grid = itertools.product(*(range(size) for size in layout.axis_sizes.values()))
    assert [tuple(place.values()) for place in places] == list(grid)


@given(layouts(), st.sampled_from(MESH_AXES))
def test_groups_partition_the_world(layout: Layout, axis: str) -> None:
    groups = {tuple(layout.group(axis, rank)) for rank in range(layout.world_size)}  # type: ignore[arg-type]
    assert sorted(rank for group in groups for rank in group) == list(range(layout.world_size))
    assert {len(group) for group in groups} == {layout.axis_sizes[axis]}  # type: ignore[index]


@given(layouts())
def test_each_share_of_the_batch_is_read_by_equally_many_ranks(layout: Layout) -> None:
    readers = [layout.data_rank(rank) for rank in range(layout.world_size)]
    assert {readers.count(share) for share in range(layout.data_ranks)} == {layout.world_size // layout.data_ranks}


def test_auto_takes_the_ranks_that_are_left() -> None:
    assert Layout.from_recipe(LayoutTable(dp=2), 8).fsdp == 4
    one = Layout.from_recipe(LayoutTable(), 1)
    assert (one.fsdp, one.zero) == (1, 0)
    assert Layout.from_recipe(LayoutTable(), 2).zero == 3
    assert Layout.from_recipe(LayoutTable(reshard_after_forward=False), 2).zero == 2


def test_a_small_model_is_replicated_unless_the_recipe_says_otherwise() -> None:
    most = REPLICATED_STATE_BYTES // 16
    small = Layout.from_recipe(LayoutTable(), 8, most)
    assert (small.dp, small.fsdp, small.zero) == (8, 1, 0)
    assert Layout.from_recipe(LayoutTable(), 8, most + 1).fsdp == 8
    assert Layout.from_recipe(LayoutTable(tp=2), 8, 2 * most).dp == 4, "each rank of tp holds a half"
    for asked in ({"fsdp": 8}, {"dp": 2}, {"zero": 2}, {"reshard_after_forward": False}):
        assert Layout.from_recipe(LayoutTable(**asked), 8, most).fsdp > 1, asked


def test_a_recipe_table_reaches_every_field() -> None:
    table = LayoutTable(
        dp=2, fsdp=2, tp=3, pp=2, order=("tp", "pp", "dp", "fsdp", "cp"), zero=1, schedule="interleaved_1f1b",
        virtual_stages=3, stage_layers=(1, 2, 1, 1, 1, 1), micro_batch_sequences=2, recompute="selective",
        recompute_budget_bytes=100, prefetch=2, compile=True,
    )  # fmt: skip
    layout = Layout.from_recipe(table, 24)
    assert not layout.reshard_after_forward, "weights that are whole on each rank are not freed"
    for name in set(LayoutTable.model_fields) - {"reshard_after_forward"}:
        assert getattr(layout, name) == getattr(table, name), name


def test_empty_fields_take_what_the_others_need() -> None:
    pipeline = Layout.from_recipe(LayoutTable(pp=2, fsdp=1), 2)
    assert (pipeline.schedule, pipeline.virtual_stages, pipeline.zero) == ("1f1b", 1, 0)
    assert Layout.from_recipe(LayoutTable(pp=2, schedule="zbv"), 2).virtual_stages == 2
    assert Layout.from_recipe(LayoutTable(zero=1), 1).zero == 0, "a recipe for many ranks runs on one too"
    with pytest.raises(UsageError, match="zero 1 needs fsdp above 1"):
        Layout.from_recipe(LayoutTable(dp=2, fsdp=1, zero=1), 2)
    with pytest.raises(UsageError, match="zero 3 frees weights after the forward"):
        Layout.from_recipe(LayoutTable(zero=3, reshard_after_forward=False), 2)


def test_degrees_that_do_not_make_the_world_are_led_to_some_that_do() -> None:
    with pytest.raises(UsageError) as caught:
        Layout.from_recipe(LayoutTable(dp=4), 6)
    message = str(caught.value)
    assert "does not make a world size of 6" in message
    assert "dp 3 fsdp 2" in message
    with pytest.raises(UsageError, match="dp 2 fsdp 3"):
        Layout.from_recipe(LayoutTable(dp=2, fsdp=2), 6)


def test_batch_that_cannot_be_dealt_out_names_batches_and_ranks() -> None:
    check_batch(Layout(fsdp=4), 32)
    with pytest.raises(UsageError, match="use 30 or 33 sequences") as caught:
        check_batch(Layout(fsdp=3), 32)
    assert "2, 4" in str(caught.value)
    with pytest.raises(UsageError, match="share of 16 sequences is not divisible by 3 → use 1, 2, 4 or 8"):
        check_batch(Layout(fsdp=2, micro_batch_sequences=3), 32)


def test_model_that_cannot_be_split_names_degrees_that_can() -> None:
    model = ModelTable(layers=4, hidden_size=64, heads=8, kv_heads=4, ffn_size=128)
    check_model(Layout(tp=4, pp=4, schedule="1f1b"), model, 256)
    with pytest.raises(UsageError, match=r"tp 3 does not divide .* use 1, 2 or 4"):
        check_model(Layout(tp=3), model, 256)
    with pytest.raises(UsageError, match="use at most 4"):
        check_model(Layout(pp=5, schedule="1f1b"), model, 256)
    with pytest.raises(UsageError, match="sum to 3, but the model has 4 layers"):
        check_model(Layout(pp=2, schedule="1f1b", stage_layers=(1, 2)), model, 256)
    with pytest.raises(UsageError, match="not divisible by 2·cp = 6"):
        check_model(Layout(cp=3), model, 256)
    with pytest.raises(UsageError, match=r"255 is not divisible by cp·tp = 4 → use 1, 3, 5 or 15"):
        check_model(Layout(tp=4), model, 255)


def test_vocabulary_must_reach_every_rank() -> None:
    model = ModelTable(layers=2, hidden_size=64, heads=8, ffn_size=128)
    check_model(Layout(tp=8), model, 256, 57)  # 7 ranks with 8 rows, one with 1
    with pytest.raises(UsageError, match=r"56 in shares of 7|leaves ranks") as caught:
        check_model(Layout(tp=8), model, 256, 10)  # 5 ranks with 2 rows, 3 with none
    assert "use 2, 3, 4 or 5" in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "batch", "remedy"),
    [
        ({"schedule": "interleaved_1f1b", "virtual_stages": 2}, 12, "use micro-batches of 1 or 3 sequences"),
        ({"schedule": "zbv", "virtual_stages": 2, "micro_batch_sequences": 2}, 12, "micro-batches of 1 sequences"),
        ({"schedule": "interleaved_1f1b", "virtual_stages": 2}, 6, "use layout.schedule looped_bfs"),
        ({"schedule": "zbv", "virtual_stages": 2}, 4, "use layout.schedule looped_bfs"),
    ],
)
def test_too_few_micro_batches_are_led_to_enough(fields: dict[str, Any], batch: int, remedy: str) -> None:
    with pytest.raises(UsageError, match=f"schedule '{fields['schedule']}' on 4 ranks needs") as caught:
        check_batch(Layout(pp=4, **fields), batch)
    assert remedy in str(caught.value)


def test_every_number_of_micro_batches_that_is_let_through_can_be_built() -> None:
    for name, form in SCHEDULES.items():
        for ranks in (2, 3, 4):
            for micro_batches in range(1, 14):
                layout = Layout(pp=ranks, schedule=name, virtual_stages=form.least_virtual_stages)
                if form.accepts(ranks, micro_batches):
                    assert schedule_of(layout, micro_batches).micro_batches == micro_batches
                else:
                    with pytest.raises(UsageError, match="needs"):
                        schedule_of(layout, micro_batches)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"dp": 0}, "dp is 0"),
        ({"order": ("dp", "dp", "fsdp", "cp", "tp")}, "must name each of"),
        ({"dp": 4, "ep": 3}, "ep 3 does not divide dp·fsdp 4; it may be 1, 2 or 4"),
        ({"pp": 2}, "schedule 'none' does not go with pp 2"),
        ({"schedule": "gpipe"}, "does not go with pp 1"),
        ({"virtual_stages": 2}, "needs pp above 1"),
        ({"pp": 2, "schedule": "1f1b", "virtual_stages": 2}, "has 1 stage per rank"),
        ({"stage_layers": (1, 2)}, "each of 1 stages"),
        ({"zero": 3}, "needs fsdp above 1"),
        ({"micro_batch_sequences": 0}, "must be at least 1"),
        ({"pp": 2, "schedule": "zvb"}, "'zvb' is unknown; it may be gpipe, 1f1b"),
        ({"pp": 2, "schedule": "interleaved_1f1b"}, "needs at least 2 stages per rank"),
        ({"recompute_budget_bytes": 9}, "needs recompute"),
    ],
)
def test_contradictions_are_named(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(UsageError, match="layout: ") as caught:
        Layout(**fields)  # type: ignore[arg-type]
    assert reason in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "3", '{"dq": 1}', '{"dp": "two"}', '{"order": 3}'])
def test_what_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="layout: "):
        Layout.from_json(text)


def test_rank_outside_the_world_is_our_mistake() -> None:
    with pytest.raises(ValueError, match="outside a world of 4"):
        Layout(dp=4).coordinates(4)
    with pytest.raises(ValueError, match="outside an axis of 4"):
        Layout(dp=4).rank({"dp": 4})
