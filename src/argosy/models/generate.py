"""Text from a model, one token at a time."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from argosy.models.decoder import Decoder

NextLogits = Callable[[Tensor], Tensor]
"""Token ids int64 [S] to fp32 logits [vocabulary] of the token that follows them."""


def next_logits_of(model: Decoder) -> NextLogits:
    """Of a whole model on one device."""
    device = next(model.parameters()).device

    @torch.no_grad()
    def next_logits(tokens: Tensor) -> Tensor:
        return model(tokens[None].to(device))[0, -1]

    return next_logits


def generate(
    next_logits: NextLogits,
    prompt: Sequence[int],
    tokens: int,
    *,
    context: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
    end: int | None = None,
) -> Iterator[int]:
    """Yield up to `tokens` ids that continue `prompt`; stops after `end`.

    Each step looks at the last `context` tokens, the length that the model was trained on. `temperature` 0 takes the
    most likely token; above it, one is drawn from the `top_k` most likely (None: from all). The same seed gives the
    same text.
    """
    generator = torch.Generator().manual_seed(seed)
    ids = list(prompt)
    for _ in range(tokens):
        logits = next_logits(torch.tensor(ids[-context:])).cpu()
        ids.append(_choose(logits, temperature, top_k, generator))
        yield ids[-1]
        if ids[-1] == end:
            return


def _choose(logits: torch.Tensor, temperature: float, top_k: int | None, generator: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    likely, ids = logits.topk(min(top_k or len(logits), len(logits)))
    probabilities = torch.softmax(likely / temperature, dim=0)
    return int(ids[torch.multinomial(probabilities, 1, generator=generator)])
