"""A checkpoint is the same bits under every layout."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

from argosy.checkpoint.compare import compare
from argosy.checkpoint.find import find
from argosy.checkpoint.load import fill, load
from argosy.checkpoint.manifest import read_manifest
from argosy.checkpoint.pieces import pieces
from argosy.checkpoint.save import save
from programs import Split, make_state, manifest_of, model_table
from tiny_runs import digests_in

TABLE = model_table(
    layers=2, heads=4, kv_heads=4, hidden_size=20, head_dim=6, ffn_size=28, tied_embeddings=True
)  # so that 3 and 4 divide little, and each layout has its blocks and heads
LAYOUTS = [
    Split(),
    Split(fsdp=2),
    Split(fsdp=3),
    Split(fsdp=4),
    Split(dp=2),
    Split(dp=2, fsdp=2),
    Split(tp=2),
    Split(tp=4),
    Split(fsdp=2, tp=2),
    Split(dp=2, tp=2),
    Split(pp=2),
    Split(pp=2, tp=2),
]


def make_truth(checkpoints: Path) -> None:
    """A state after two real updates, saved by one process as step 0."""
    program, optimizer, tree = make_state(Split(), TABLE)
    for _ in range(2):
        for parameter in program.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
    save(checkpoints, tree, manifest_of(0), None)


def pass_on(split: Split, ways: list[tuple[Path, Path]]) -> None:
    """Load each first and save it as the second, under `split`."""
    group = dist.group.WORLD if split.ranks > 1 else None
    _, _, tree = make_state(split, TABLE, seed=99)  # other weights than those to be loaded
    learned = {name: part for name, part in tree.items() if name != "rng"}
    for source, target in ways:
        found = find(source, group=group)
        assert found is not None
        for part in learned.values():
            for tensor in part.values():
                tensor.fill_(-1)
        load(*found, learned, group)
        save(target, learned, manifest_of(0, split.ranks), group)


def assert_equal(one: Path, other: Path, what: str) -> None:
    folders = [checkpoints / "step-0" for checkpoints in (one, other)]
    found = compare(*((folder, read_manifest(folder)) for folder in folders))
    differing = [each for each in found.tensors if not each.name.startswith("rng.")]
    assert differing == [], what
    assert found.same > 50


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("truth")
    make_truth(folder)
    return folder


@pytest.fixture(scope="module")
def by_layout(truth: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Split, Path]:
    """The truth as each layout writes it."""
    from ranks import run_ranks

    made = {}
    for split in LAYOUTS:
        made[split] = tmp_path_factory.mktemp("layout")
        run_ranks(split.ranks, pass_on, split, [(truth, made[split])])
    return made


@pytest.mark.dist
@pytest.mark.parametrize("split", LAYOUTS, ids=str)
def test_other_tools_read_from_every_layout_what_one_process_wrote(
    truth: Path, by_layout: dict[Split, Path], split: Split
) -> None:
    first = digests_in(truth / "step-0")
    assert {name.rpartition(".")[2] for name in first} == {"weight", "bias", "exp_avg", "exp_avg_sq", "step"}
    assert len(set(first.values())) > len(first) / 2, "a state of zeros would prove nothing"
    assert digests_in(by_layout[split] / "step-0") == first


def check_ways(
    run_ranks: Any, truth: Path, by_layout: dict[Split, Path], target: Split, sources: list[Split], folder: Path
) -> None:
    ways = {source: folder / str(number) for number, source in enumerate(sources)}
    run_ranks(target.ranks, pass_on, target, [(by_layout[source], new) for source, new in ways.items()])
    for source, new in ways.items():
        assert_equal(truth, new, f"changed on the way from {source} to {target}")


@pytest.mark.dist
@pytest.mark.parametrize("number", range(len(LAYOUTS)), ids=lambda number: str(LAYOUTS[number]))
def test_a_state_keeps_its_bits_from_layout_to_layout(
    tmp_path: Path, run_ranks: Any, truth: Path, by_layout: dict[Split, Path], number: int
) -> None:
    """A sixth of the matrix: each layout takes over from two others, and two take over from it."""
    sources = [LAYOUTS[(number + by) % len(LAYOUTS)] for by in (1, 5)]
    check_ways(run_ranks, truth, by_layout, LAYOUTS[number], sources, tmp_path)


@pytest.mark.slow
@pytest.mark.dist
@pytest.mark.parametrize("target", LAYOUTS, ids=str)
def test_the_whole_matrix(
    tmp_path: Path, run_ranks: Any, truth: Path, by_layout: dict[Split, Path], target: Split
) -> None:
    check_ways(run_ranks, truth, by_layout, target, LAYOUTS, tmp_path)


ON_FOUR: list[tuple[Placement, ...]] = list(product([Replicate(), Shard(0), Shard(1)], repeat=2))
ON_TWO: list[tuple[Placement, ...]] = [(Shard(0),), (_StridedShard(0, split_factor=3),), (_StridedShard(1, sf=2),)]
SHAPES = [(7, 5), (8, 6), (1, 4), (12, 1)]


def through_placements(checkpoints: Path, mesh_shape: tuple[int, ...], kinds: list[tuple[Placement, ...]]) -> int:
    """Save tensors under each kind of placement, and load each under the next; how many kinds."""
    mesh = init_device_mesh("cpu", mesh_shape)
    group = dist.group.WORLD
    shapes = SHAPES if len(mesh_shape) > 1 else [(12, 8), (6, 4)]
    whole = {f"t{n}": torch.arange(float(a * b)).reshape(a, b) for n, (a, b) in enumerate(shapes)}
    for step, (kind, after) in enumerate(zip(kinds, kinds[1:] + kinds[:1], strict=True), start=1):
        split = {name: distribute_tensor(tensor, mesh, kind) for name, tensor in whole.items()}
        save(checkpoints, {"model": split}, manifest_of(step, mesh.size()), group)
        found = find(checkpoints, step, group=group)
        assert found is not None
        plain = {f"model.{name}": torch.full_like(tensor, -1) for name, tensor in whole.items()}
        fill(*found, plain)
        new = {name: distribute_tensor(torch.full_like(tensor, -1), mesh, after) for name, tensor in whole.items()}
        load(*found, {"model": new}, group)
        for name, tensor in whole.items():
            assert torch.equal(plain[f"model.{name}"], tensor), f"{name} saved as {kind}"
            wanted = distribute_tensor(tensor, mesh, after)
            assert torch.equal(new[name].to_local(), wanted.to_local()), f"{name} from {kind} to {after}"
    return len(kinds)


@pytest.mark.dist
def test_any_mix_of_shards_and_replicas_also_uneven_and_empty_ones(tmp_path: Path, run_ranks: Any) -> None:
    assert run_ranks(4, through_placements, tmp_path, (2, 2), ON_FOUR) == [9] * 4


@pytest.mark.dist
def test_shards_in_stripes(tmp_path: Path, run_ranks: Any) -> None:
    assert run_ranks(2, through_placements, tmp_path, (2,), ON_TWO) == [3] * 2


def pieces_of_stripes() -> list[tuple[int, ...]]:
    """Where the chunks of a rank begin, and how long they are, when it holds every other stripe of a tensor."""
    mesh = init_device_mesh("cpu", (2,))
    stripes = distribute_tensor(torch.arange(12.0), mesh, [_StridedShard(0, split_factor=3)])
    return [chunk.offsets + chunk.sizes for chunk, _ in pieces("t", stripes)]


@pytest.mark.dist
def test_stripes_are_several_chunks(run_ranks: Any) -> None:
    assert run_ranks(2, pieces_of_stripes) == [[(0, 2), (4, 2), (8, 2)], [(2, 2), (6, 2), (10, 2)]]
