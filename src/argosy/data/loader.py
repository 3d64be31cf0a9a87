"""Training batches as a pure function of the step: nothing to save, nothing to replay."""

import numpy as np
import torch

from argosy.data.batch import NO_LOSS, Batch
from argosy.data.samples import SampleOrder
from argosy.data.shards import TokenShards
from argosy.errors import InputError


class Loader:
    """Global batches of a token stream, any rank's share of them at any step.

    Sample ``i`` covers tokens ``i·S … i·S + S`` of the stream: S inputs and, one further, S targets, so that every
    token but the first is a target in exactly one sample; what is left at the end and fills no sample is not
    used. Batch ``t`` holds the global indices ``t·B … (t+1)·B - 1`` of :class:`SampleOrder`, and the ranks' shares are
    consecutive slices of it: their concatenation in rank order is the same batch for any number of ranks.

    Args:
        shards: the training stream.
        sequence_length: S, in tokens.
        batch_sequences: B, sequences of one global batch.
        seed: the recipe's ``run.seed``.

    Raises:
        InputError: the stream is shorter than one batch.
    """

    def __init__(self, shards: TokenShards, sequence_length: int, batch_sequences: int, seed: int):
        self.shards = shards
        self.sequence_length = sequence_length
        self.batch_sequences = batch_sequences
        self.samples = (shards.tokens - 1) // sequence_length
        if self.samples < batch_sequences:
            raise InputError(
                f"{shards.tokens} tokens make {self.samples} samples of {sequence_length}, "
                f"less than one batch of {batch_sequences}",
                where=str(shards.folder),
                do="use more text, a smaller batch.tokens or a shorter data.sequence_length",
            )
        self.order = SampleOrder(seed, self.samples)

    def batch(self, step: int, data_rank: int = 0, data_ranks: int = 1, micro: slice = slice(None)) -> Batch:
        """A rank's share of the batch of ``step`` (steps count from 0).

        Args:
            micro: sequences of the share, e.g. ``slice(0, 4)`` for the first micro-batch of four.
        """
        assert self.batch_sequences % data_ranks == 0, "the layout checks that ranks divide the batch"
        share = self.batch_sequences // data_ranks
        first = step * self.batch_sequences + data_rank * share
        ids = self.order.ids(first, share)[micro]
        length = self.sequence_length
        # Gathered as stored and widened once: int64 everywhere would move four times the bytes.
        windows = np.empty((len(ids), length + 1), dtype=self.shards.dtype)
        for row, sample in zip(windows, ids.tolist(), strict=True):
            self.shards.read(sample * length, sample * length + length + 1, out=row)
        targets = windows[:, 1:].astype(np.int64)
        context_tokens = 0
        if self.shards.masked:
            for row, sample in zip(targets, ids.tolist(), strict=True):
                row[~self.shards.read_loss(sample * length + 1, sample * length + length + 1)] = NO_LOSS
            context_tokens = int((targets == NO_LOSS).sum())
        return Batch(
            tokens=torch.from_numpy(windows[:, :-1].astype(np.int64)),
            targets=torch.from_numpy(targets),
            sample_ids=torch.from_numpy(ids.copy()),
            loss_tokens=targets.size - context_tokens,
            context_tokens=context_tokens,
        )

    def epoch(self, step: int) -> float:
        """Passes over the data before ``step``."""
        return step * self.batch_sequences / self.samples
