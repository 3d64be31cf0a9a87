"""Evaluation on held-out text: nats per token and bits per byte."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist

from argosy.data.windows import EvaluationWindows
from argosy.errors import UsageError
from argosy.parallel.control import sum_over_ranks
from argosy.parallel.program import Program


@dataclass(frozen=True)
class Evaluation:
    loss: float
    """Mean cross-entropy in nats per token."""
    bits_per_byte: float
    """Total cross-entropy in bits ÷ bytes of the predicted text: comparable over tokenizers and compressors."""
    tokens: int
    text_bytes: int
    full: bool
    """Whether all held-out text was used."""


def evaluate(
    program: Program,
    windows: EvaluationWindows,
    *,
    batch_sequences: int,
    data_rank: int,
    data_ranks: int,
    group: dist.ProcessGroup | None,
    device: torch.device,
    must_end: Callable[[], bool] = lambda: False,
) -> Evaluation | None:
    """Evaluate on all ranks together; the same result on each.

    None when any rank's `must_end` says so on the way: a preemption does not wait for an evaluation.

    Raises UsageError when no token of the windows carries loss, which fine-tuning data makes possible.
    """
    nats, tokens, text_bytes = 0.0, 0, 0
    for batch in windows.batches(batch_sequences, data_rank, data_ranks):
        nats += program.loss_sum(replace(batch, tokens=batch.tokens.to(device), targets=batch.targets.to(device)))
        if program.reports:
            tokens += batch.loss_tokens
            text_bytes += batch.text_bytes or 0
        if sum_over_ranks([float(must_end())], group)[0]:
            return None
    nats, all_tokens, all_bytes = sum_over_ranks([nats, tokens, text_bytes], group)
    if not all_bytes:
        raise UsageError("the held-out windows show no answer", where="eval.tokens", do="evaluate on more tokens")
    return Evaluation(
        loss=nats / all_tokens,
        bits_per_byte=nats / math.log(2) / all_bytes,
        tokens=int(all_tokens),
        text_bytes=int(all_bytes),
        full=windows.full,
    )
