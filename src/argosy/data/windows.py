"""Held-out text as windows in which every token is predicted exactly once."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from argosy.data.batch import NO_LOSS, Batch
from argosy.data.shards import TokenShards
from argosy.data.sources import JoinedShards


class EvaluationWindows:
    """Windows over a held-out stream, the same for any number of ranks.

    An end-of-text token stands before the stream, so the first token is predicted too. Window 0 predicts
    its S tokens; each later one repeats ``S - new`` tokens as context and predicts the next ``new``. Empty windows
    fill up the last batches, so that all ranks make the same number of forwards and their collectives match.

    Args:
        shards: the held-out stream.
        sequence_length: S, tokens of a window.
        stride_share: ``new / S``; below 1 every token sees at least ``S - new`` tokens of context.
        token_bytes: [vocab_size] bytes per token (:attr:`Tokenizer.token_bytes`), for bits per byte.
        tokens: use about this many tokens, in windows evenly spread over the stream; None uses all.
    """

    def __init__(
        self,
        shards: TokenShards | JoinedShards,
        sequence_length: int,
        *,
        stride_share: float = 1.0,
        token_bytes: NDArray[np.int64] | None = None,
        tokens: int | None = None,
    ):
        self.shards = shards
        self.sequence_length = sequence_length
        self.token_bytes = token_bytes
        self.new = min(sequence_length, max(1, round(stride_share * sequence_length)))
        available = 1 + max(0, -(-(shards.tokens - sequence_length) // self.new))
        used = available if tokens is None else min(available, max(1, tokens // self.new))
        self.full = used == available
        self._windows = np.arange(used) * available // used

    def __len__(self) -> int:
        """Windows over all ranks, without padding."""
        return len(self._windows)

    def batches(self, batch_sequences: int, data_rank: int = 0, data_ranks: int = 1) -> Iterator[Batch]:
        """This rank's batches of ``batch_sequences`` windows; their number is the same on every rank."""
        per_round = batch_sequences * data_ranks
        for first in range(data_rank * batch_sequences, -(-len(self) // per_round) * per_round, per_round):
            chosen = self._windows[first : first + batch_sequences]
            yield self._batch(chosen, batch_sequences)

    def _batch(self, chosen: NDArray[np.int64], rows: int) -> Batch:
        length, end_of_text = self.sequence_length, self.shards.end_of_text
        tokens = np.full((rows, length), end_of_text, dtype=np.int64)
        targets = np.full((rows, length), NO_LOSS, dtype=np.int64)
        held = loss_tokens = text_bytes = 0
        for row, window in enumerate(chosen.tolist()):
            start = window * self.new
            stop = min(start + length, self.shards.tokens)
            text = self.shards.read(start, stop)
            if window:
                tokens[row, 0] = self.shards.read(start - 1, start)[0]
            tokens[row, 1 : text.size] = text[:-1]
            context = length - self.new if window else 0
            carries = self.shards.read_loss(start + context, stop)
            predicted = text[context:][carries]
            targets[row, context : text.size][carries] = predicted
            held += text.size
            loss_tokens += predicted.size
            if self.token_bytes is not None:
                text_bytes += int(self.token_bytes[predicted].sum())
        ids = np.full(rows, -1, dtype=np.int64)
        ids[: len(chosen)] = chosen
        return Batch(
            tokens=torch.from_numpy(tokens),
            targets=torch.from_numpy(targets),
            sample_ids=torch.from_numpy(ids),
            loss_tokens=loss_tokens,
            context_tokens=held - loss_tokens,
            pad_tokens=rows * length - held,
            text_bytes=None if self.token_bytes is None else text_bytes,
        )
