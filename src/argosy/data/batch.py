"""What a rank trains or evaluates on in one forward."""

from dataclasses import dataclass

from torch import Tensor

NO_LOSS = -100
"""Target of a position that carries no loss; the default of torch's cross-entropy."""


@dataclass(frozen=True)
class Batch:
    """Sequences and what each position should predict.

    Attributes:
        tokens: [b, S] int64.
        targets: [b, S] int64, the next token; ``NO_LOSS`` where there is no loss.
        sample_ids: [b] int64, sample or window; -1 for padding.
        loss_tokens, context_tokens, pad_tokens: positions with loss, positions that only give context,
            positions that hold nothing; they sum to b·S.
        text_bytes: bytes of text that the predicted tokens stand for; None where nobody asked.
    """

    tokens: Tensor
    targets: Tensor
    sample_ids: Tensor
    loss_tokens: int
    context_tokens: int = 0
    pad_tokens: int = 0
    text_bytes: int | None = None
