"""Steps leave nothing behind: memory after many steps is that after a few."""

import resource
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from equivalence import SGD, share
from matrix import WIDE, Form

from argosy.journal.recorder import NULL
from argosy.optim.build import build_optimizer
from argosy.training.phases import Phases
from argosy.training.step import train_step
from programs import CPU, Split, make_program

WARM, STEPS = 20, 100
ROOM_BYTES = 4 << 20
"""One saved set of activations per step would be three times as much."""


def growth(split: Split) -> int:
    """Bytes of resident memory that steps after the first ones add."""
    form = Form(2 if split.pp == 1 else 4, fields=(*WIDE, ("layers", 4)))
    program = make_program(split, form.model, micro_batches=form.micro_batches)
    optimizer = build_optimizer(program.named_parameters(), SGD)
    batches = share(0, split.layout.data_rank(dist.get_rank()), split.layout.data_ranks, form.micro_batches)
    before = 0
    for step in range(WARM + STEPS):
        if step == WARM:
            before = _resident_bytes()
        train_step(
            program, optimizer, batches, step=step, global_loss_tokens=99, learning_rate=0.01, clip_norm=1.0,
            z_loss=0.0, device=CPU, phases=Phases(NULL),
        )  # fmt: skip
    return _resident_bytes() - before


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.dist
@pytest.mark.parametrize(
    "split", [Split(tp=2, recompute="full"), Split(pp=2, schedule="zbv"), Split(fsdp=2, zero=1)], ids=str
)
def test_memory_does_not_grow(run_ranks: Any, split: Split) -> None:
    assert max(run_ranks(split.ranks, growth, split)) < ROOM_BYTES
