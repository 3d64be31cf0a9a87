"""Builds the model of a recipe on any device, by default without memory."""

import torch

from argosy.models.decoder import Decoder, Part
from argosy.recipe.model_table import ModelTable


def build(
    config: ModelTable,
    vocab_size: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "meta",
    part: Part | None = None,
) -> Decoder:
    """A decoder, or a `part` of one, with fp32 parameters of undefined value that computes in `dtype`.

    On ``meta`` it takes no memory: shard it, call ``to_empty(device=…)``, then
    :func:`argosy.models.init.init_weights` or load a checkpoint. There are no buffers to restore.
    """
    with torch.device("meta"):
        decoder = Decoder(config, vocab_size, dtype, part)
    return decoder if torch.device(device).type == "meta" else decoder.to_empty(device=device)
