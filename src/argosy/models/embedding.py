"""The vectors of the vocabulary: looked up at the input, and with tied embeddings the output layer too."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from argosy.models.collectives import all_gather
from argosy.models.linear import Linear
from argosy.models.split import Split, local


@dataclass(frozen=True)
class VocabularyShard:
    """The rows of embedding and output layer that one of several tensor-parallel ranks holds."""

    group: dist.ProcessGroup
    first: int
    """Token id of the first row."""
    most: int
    """Rows of the largest shard: of all but the last ones."""
    vocabulary: int
    """Rows of all shards."""


class Embedding(nn.Embedding):
    """Rows of a table [vocabulary, hidden]; of a shard of it, zeros for tokens that other ranks hold."""

    tensor_split: ClassVar = {"": Split.ROWS}
    shard: VocabularyShard | None = None

    def forward(self, tokens: Tensor, dtype: torch.dtype) -> Tensor:  # type: ignore[override]
        """int64 [B, S] to [B, S, hidden] in `dtype`."""
        table = local(self.weight).to(dtype)
        if self.shard is None:
            return _rows(table, tokens)
        row = tokens - self.shard.first
        mine = (row >= 0) & (row < len(table))
        return _rows(table, row.where(mine, 0)) * mine[..., None].to(dtype)


class OutputLayer(Linear):
    """One row per token of the vocabulary, divided like the embedding; used through its weight alone."""

    tensor_split: ClassVar = {"": Split.ROWS}


def whole_vocabulary(logits: Tensor, shard: VocabularyShard) -> Tensor:
    """Logits of all shards side by side: [..., rows of this shard] to [..., vocabulary]. Without gradient."""
    padded = F.pad(logits, (0, shard.most - logits.size(-1)))
    parts = all_gather(padded, shard.group)
    return torch.cat(list(parts), dim=-1)[..., : shard.vocabulary]


def _rows(table: Tensor, tokens: Tensor) -> Tensor:
    """Rows of the embedding table, [..., hidden] in its dtype.

    A CPU adds the gradients of equal tokens in the table's dtype, where bf16 would lose the small ones
    of a frequent token; in fp32 it does not. A GPU adds in fp32 by itself.
    """
    if table.device.type == "cpu":
        wide = table.to(torch.promote_types(table.dtype, torch.float32))
        return F.embedding(tokens, wide).to(table.dtype)
    return F.embedding(tokens, table)
