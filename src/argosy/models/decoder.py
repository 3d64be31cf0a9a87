"""The language model: embedding, blocks of attention and MLP, head."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from argosy.models.attention import Attention
from argosy.models.linear import Linear
from argosy.models.loss import LossSums, linear_cross_entropy
from argosy.models.mlp import make_mlp
from argosy.models.norm import make_norm
from argosy.models.rope import rotation_table
from argosy.recipe.schema import ModelTable


class Block(nn.Module):
    """Pre-norm residual block; the unit of sharding, recomputation and compilation."""

    def __init__(self, config: ModelTable):
        super().__init__()
        self.attention_norm = make_norm(config)
        self.attention = Attention(config)
        self.mlp_norm = make_norm(config)
        self.mlp = make_mlp(config)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotation)  # [B, S, hidden]
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    """A causal language model of the shape that the recipe's model table describes.

    Parameters are fp32. Every one is used in the compute dtype, and statistics (norms, softmax, loss)
    are fp32, so the numbers are the same whether FSDP2 has cast the parameters before or not.
    """

    def __init__(self, config: ModelTable, vocab_size: int, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.dtype = dtype
        self.embedding = nn.Embedding(vocab_size, config.hidden_size)
        self.positions = (
            nn.Embedding(config.max_positions, config.hidden_size) if config.positions == "learned" else None
        )
        self.blocks = nn.ModuleDict({str(layer): Block(config) for layer in range(config.layers)})
        self.norm = make_norm(config)
        self.head = None if config.tied_embeddings else Linear(config.hidden_size, vocab_size, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor | None = None, *, z_loss: float = 0.0) -> Tensor | LossSums:
        """Logits without targets, sums of the loss with them.

        tokens: int64 [B, S]; targets: int64 [B, S], -100 where no loss is wanted;
        z_loss: weight of the squared log-partition, see :func:`linear_cross_entropy`.
        Returns fp32 logits [B, S, vocab_size], or :class:`LossSums` over the batch.
        """
        length = tokens.size(1)
        table = self.embedding.weight.to(self.dtype)
        x = _rows(table, tokens)  # [B, S, hidden]
        rotation = None
        if self.positions is None:
            rotation = rotation_table(self.config, length, self.dtype, tokens.device)
        else:
            x = x + self.positions.weight[:length].to(self.dtype)
        for block in self.blocks.values():
            x = block(x, rotation)
        x = self.norm(x)
        head = table if self.head is None else self.head.weight.to(self.dtype)
        if targets is None:
            return F.linear(x, head).float()
        return linear_cross_entropy(x.flatten(0, 1), head, targets.flatten(), z_loss)


def _rows(table: Tensor, tokens: Tensor) -> Tensor:
    """Rows of the embedding table, [..., hidden] in its dtype.

    A CPU adds the gradients of equal tokens in the table's dtype, where bf16 would lose the small ones
    of a frequent token; in fp32 it does not. A GPU adds in fp32 by itself.
    """
    if table.device.type == "cpu":
        wide = table.to(torch.promote_types(table.dtype, torch.float32))
        return F.embedding(tokens, wide).to(table.dtype)
    return F.embedding(tokens, table)
