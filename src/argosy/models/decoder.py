"""The language model: embedding, blocks of attention and MLP, head."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from argosy.models.attention import Attention
from argosy.models.embedding import Embedding, OutputLayer, VocabularyShard, whole_vocabulary
from argosy.models.loss import LossSums, linear_cross_entropy
from argosy.models.mlp import make_mlp
from argosy.models.norm import make_norm
from argosy.models.rope import rotation_table
from argosy.models.split import local
from argosy.recipe.model_table import ModelTable


class Block(nn.Module):
    """Pre-norm residual block; the unit of sharding, recomputation and compilation."""

    def __init__(self, config: ModelTable):
        super().__init__()
        self.attention_norm = make_norm(config)
        self.attention = Attention(config)
        self.mlp_norm = make_norm(config)
        self.mlp = make_mlp(config)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor] | None, segments: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotation, segments)  # [B, S, hidden]
        return x + self.mlp(self.mlp_norm(x))


@dataclass(frozen=True)
class Part:
    """What one pipeline stage has of a decoder."""

    blocks: range
    first: bool
    """Takes tokens, not hidden states."""
    last: bool
    """Ends in logits or a loss, not in hidden states."""


class Decoder(nn.Module):
    """A causal language model of the shape that the recipe's model table describes, or a `part` of it.

    Parameters are fp32. Every one is used in the compute dtype, and statistics (norms, softmax, loss)
    are fp32, so the numbers are the same whether FSDP2 has cast the parameters before or not.
    A parameter has the same name in every part. With tied embeddings the first and the last part have a copy each.
    """

    vocabulary_shard: VocabularyShard | None = None
    """Set where tensor parallelism divides the vocabulary."""
    sequence_share: tuple[int, int] = (0, 1)
    """(i, n): between the blocks this rank has the i-th of n equal pieces of each sequence."""

    def __init__(
        self, config: ModelTable, vocab_size: int, dtype: torch.dtype = torch.float32, part: Part | None = None
    ):
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.dtype = dtype
        self.part = part or Part(range(config.layers), first=True, last=True)
        first, last, tied = self.part.first, self.part.last, config.tied_embeddings
        learned = config.positions == "learned"
        self.embedding = Embedding(vocab_size, config.hidden_size) if first or (last and tied) else None
        self.positions = nn.Embedding(config.max_positions, config.hidden_size) if first and learned else None
        self.blocks = nn.ModuleDict({str(layer): Block(config) for layer in self.part.blocks})
        self.norm = make_norm(config) if last else None
        self.head = OutputLayer(config.hidden_size, vocab_size, bias=False) if last and not tied else None

    def forward(
        self,
        x: Tensor,
        targets: Tensor | None = None,
        *,
        z_loss: float = 0.0,
        documents: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor | LossSums:
        """Logits without targets, sums of the loss with them; a part that is not the last gives hidden states.

        x: int64 tokens [B, S], or for a part that is not the first hidden states [B, S, hidden];
        targets: int64 [B, S], -100 where no loss is wanted;
        z_loss: weight of the squared log-partition, see :func:`linear_cross_entropy`;
        documents: segments and positions, both integers [B, S]: attention stays inside a segment, and a position is
        the place inside it. None: each sequence is one document.
        Returns fp32 logits [B, S, vocab_size], or :class:`LossSums` over the batch.
        """
        if self.part.first:
            x = self._embed(x, documents)
        rotation = None
        if self.config.positions == "rope":
            length = x.size(1) * self.sequence_share[1]
            rotation = rotation_table(self.config, length, self.dtype, x.device)
            if documents is not None:
                rotation = rotation[0][documents[1]], rotation[1][documents[1]]  # [B, S, head_dim]
        segments = None if documents is None else documents[0]
        for block in self.blocks.values():
            x = block(x, rotation, segments)
        if self.norm is None:
            return x
        x = self.norm(x)
        owner = self.head or self.embedding
        assert owner is not None
        weight = local(owner.weight).to(self.dtype)
        if targets is not None:
            return linear_cross_entropy(x.flatten(0, 1), weight, targets.flatten(), z_loss, self.vocabulary_shard)
        logits = F.linear(x, weight).float()
        return logits if self.vocabulary_shard is None else whole_vocabulary(logits, self.vocabulary_shard)

    def _embed(self, tokens: Tensor, documents: tuple[Tensor, Tensor] | None) -> Tensor:
        assert self.embedding is not None
        x = self.embedding(tokens, self.dtype)  # [B, S, hidden]
        if self.positions is None:
            return x
        start = x.size(1) * self.sequence_share[0]
        here = slice(start, start + x.size(1))
        table = local(self.positions.weight)
        return x + (table[here] if documents is None else table[documents[1][:, here]]).to(self.dtype)
