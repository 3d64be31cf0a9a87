"""Every collective is stamped in the journal, on its axis, once, and is no part of the compute around it."""

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed.tensor import Shard, distribute_tensor

from argosy.checkpoint.load import load
from argosy.checkpoint.manifest import read_manifest
from argosy.checkpoint.save import save
from argosy.journal.collectives import calls
from argosy.journal.phys import PHYS
from argosy.journal.reader import read_file
from argosy.journal.recorder import Recorder
from argosy.journal.schema import Header
from argosy.layout.layout import Layout
from argosy.parallel.groups import StampedGroup, control_group, use_stamped_groups
from argosy.parallel.mesh import build_mesh
from argosy.parallel.rendezvous import meet
from argosy.registry.run_folder import RunFolder
from argosy.training.observers import Observer
from programs import manifest_of
from tiny_runs import SMALL, leave_default_group, make_run, records, train

BLOCKS = 2
CONTROL = {("control", "all_reduce"): 2}
"""Token counts with wishes, and the loss with the vote on the update."""
KNOWN = {
    # Gathered once: the root, which is kept, and each block in forward and again in backward.
    "fsdp": CONTROL
    | {("fsdp", "all_gather"): 1 + 2 * BLOCKS, ("fsdp", "reduce_scatter"): 1 + BLOCKS, ("fsdp", "all_reduce"): 1},
    # Kept from forward to backward, gathered again for the second micro-batch; gradients are reduced once.
    "fsdp, kept, two micro-batches": CONTROL
    | {("fsdp", "all_gather"): 2 * (1 + BLOCKS), ("fsdp", "reduce_scatter"): 1 + BLOCKS, ("fsdp", "all_reduce"): 1},
    # The norm needs no collective: each rank has all summed gradients.
    "replicas, two micro-batches": CONTROL | {("dp", "all_reduce"): 1},
}
SETS = {
    "fsdp": ("layout.fsdp=2",),
    "fsdp, kept, two micro-batches": (
        "layout.fsdp=2",
        "layout.reshard_after_forward=false",
        "layout.micro_batch_sequences=3",
    ),
    "replicas, two micro-batches": ("layout.dp=2", "layout.micro_batch_sequences=3"),
}
SLOW_STEP, SLEEP_S = 3, 0.4


class SlowRank(Observer):
    """Rank 1 comes late to the forward pass of one step; the sleep is outside every phase."""

    def on_phase(self, name: str, step: int) -> None:
        if dist.get_rank() == 1 and name == "forward" and step == SLOW_STEP:
            time.sleep(SLEEP_S)


def collectives(run: RunFolder, rank: int) -> list[dict[str, Any]]:
    """The calls of a rank's sampled steps, in order."""
    file = read_file(run.rank_file(1, rank))
    assert file is not None
    keys = {"s": "step", "ax": "axis", "op": "operation", "g": "group", "n": "number", "b": "nbytes"}
    keys |= {"t0": "issued_ns", "x": "waited_ns", "t1": "done_ns"}
    return [{key: getattr(call, name) for key, name in keys.items()} for call in calls(file.events)]


@pytest.mark.dist
@pytest.mark.parametrize("form", KNOWN)
def test_a_step_has_the_collectives_that_its_layout_needs(tmp_path: Path, run_ranks: Any, form: str) -> None:
    run = make_run(tmp_path / "run", *SMALL, "journal.sample_every=2", *SETS[form])
    train(run_ranks, run, 2, [SlowRank()])
    ours, theirs = (collectives(run, rank) for rank in (0, 1))
    assert {coll["s"] for coll in ours} == {0, 2, 4}, "sampled are the steps that seed and interval say, and no other"
    same = ("s", "ax", "op", "g", "n", "b")
    assert [[coll[key] for key in same] for coll in ours] == [[coll[key] for key in same] for coll in theirs]
    for step in (2, 4):  # the first step also carries what happens once, at the start
        assert Counter((coll["ax"], coll["op"]) for coll in ours if coll["s"] == step) == KNOWN[form]
    for coll in ours:
        assert coll["t0"] <= coll["x"] <= coll["t1"], "issued, waited for, done"
    groups = {coll["ax"]: coll["g"] for coll in ours}
    assert groups["control"] not in {group for axis, group in groups.items() if axis != "control"}

    slow = dict(zip(PHYS, records(run, 1, "step", rank=0)[SLOW_STEP]["a"], strict=False))
    axis = "dp" if "dp" in groups else "fsdp"
    assert slow[f"comm.exposed.{axis}"] > 0.9 * SLEEP_S * 1e9, "waiting for the slow rank is communication"
    assert slow["forward"] + slow["backward"] < 0.5 * SLEEP_S * 1e9, "and no compute"


def other_users(folder: Path) -> tuple[list[tuple[str, str]], list[str]]:
    """What else of torch goes through a stamped group: the collectives that were recorded, and the groups' names."""
    rank = dist.get_rank()
    leave_default_group()
    header = Header.of_this_process("r", 1, rank, 2, f"cpu:{rank}", sample_every=1)
    recorder = Recorder(folder / f"rank-{rank}.jsonl", header)
    stamped = use_stamped_groups(recorder)
    store = meet(folder / "store", rank, 2, 30)
    dist.init_process_group(stamped, store=store, rank=rank, world_size=2)
    control = control_group()
    mesh = build_mesh(Layout(fsdp=2), "cpu")
    group = mesh.group("fsdp")
    assert isinstance(group, StampedGroup)
    assert isinstance(control, StampedGroup)

    done = functional.wait_tensor(functional.all_reduce(torch.full((3,), float(rank)), "sum", group))
    assert done.tolist() == [1.0, 1.0, 1.0]
    work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
    assert work is not None
    work.wait()
    values = torch.arange(6.0).view(3, 2)
    shards = distribute_tensor(values, mesh.sub("fsdp"), [Shard(0)], src_data_rank=None)
    assert torch.equal(shards.full_tensor(), values)
    copy = distribute_tensor(torch.zeros(3, 2), mesh.sub("fsdp"), [Shard(0)], src_data_rank=None)
    save(folder, {"model": {"w": shards}}, manifest_of(1, 2), control)
    load(folder / "step-1", read_manifest(folder / "step-1"), {"model": {"w": copy}}, control)
    assert torch.equal(copy.full_tensor(), values)

    elsewhere = threading.Thread(target=dist.all_reduce, args=(torch.ones(1),), kwargs={"group": group})
    elsewhere.start()
    elsewhere.join()
    recorder.end_step(0, loss_tokens=1)
    dist.destroy_process_group()
    recorder.close()
    journal = read_file(folder / f"rank-{rank}.jsonl")
    assert journal is not None
    return [(call.axis, call.operation) for call in calls(journal.events)], [group.group_name, control.group_name]


@pytest.mark.dist
def test_dtensor_functional_collectives_and_dcp_are_stamped_too(tmp_path: Path, run_ranks: Any) -> None:
    (ours, names), (theirs, _) = run_ranks(2, other_users, tmp_path)
    assert ours == theirs
    assert names[0] != names[1]
    fsdp = [op for axis, op in ours if axis == "fsdp"]
    assert fsdp == ["all_reduce", "all_reduce", "all_gather", "all_gather"], "that of another thread blocks no step"
    assert [op for axis, op in ours if axis == "control"], "a save goes over the control group"
    assert {axis for axis, _ in ours} == {"fsdp", "control"}
