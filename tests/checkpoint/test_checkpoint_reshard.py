"""A checkpoint is the same bits under every layout."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from argosy.checkpoint.find import find
from argosy.checkpoint.load import load
from argosy.checkpoint.save import save
from programs import Split, make_state, manifest_of, model_table
from tiny_runs import digests_in

CHAIN = [Split(), Split(fsdp=2), Split(dp=2), Split(fsdp=3), Split(dp=2, fsdp=2), Split()]


def hop(split: Split, checkpoints: Path, step: int) -> None:
    """Load the newest checkpoint (or make the first state, by two real updates) and save it under `split`."""
    group = dist.group.WORLD if split.ranks > 1 else None
    program, optimizer, tree = make_state(split, model_table(), seed=step)  # other weights than those to be loaded
    if step == 0:
        for _ in range(2):
            for parameter in program.parameters():
                parameter.grad = torch.randn_like(parameter)
            optimizer.step()
    else:
        found = find(checkpoints, group=group)
        assert found is not None
        assert found[1].step == step - 1
        load(*found, {name: part for name, part in tree.items() if name != "rng"}, group)
    save(checkpoints, tree, manifest_of(step, split.ranks), group)


@pytest.mark.dist
def test_weights_and_moments_keep_their_bits_through_every_layout(tmp_path: Path, run_ranks: Any) -> None:
    for step, split in enumerate(CHAIN):
        run_ranks(split.ranks, hop, split, tmp_path, step)
    first = digests_in(tmp_path / "step-0")
    kinds = {name.rpartition(".")[2] for name in first}
    assert {"weight", "bias", "exp_avg", "exp_avg_sq", "step"} == kinds
    assert len(set(first.values())) > len(first) / 2, "a state of zeros would prove nothing"
    for step, split in enumerate(CHAIN[1:], start=1):
        assert digests_in(tmp_path / f"step-{step}") == first, f"changed on the way to {split}"
