"""Text from the newest checkpoint of a run."""

from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import torch

from argosy.checkpoint.find import find
from argosy.checkpoint.load import load
from argosy.data.prepare import prepare
from argosy.data.tokenizer import Tokenizer
from argosy.errors import InputError
from argosy.models.build import build
from argosy.models.generate import NextLogits, generate, next_logits_of
from argosy.registry.run_folder import RunFolder


@dataclass(frozen=True)
class Speaker:
    """A trained model with its tokenizer."""

    next_logits: NextLogits
    tokenizer: Tokenizer
    step: int
    context: int
    """Tokens that the model was trained to look back on."""

    def continue_text(
        self, prompt: str, tokens: int, *, temperature: float, top_k: int | None, seed: int, in_step: bool = False
    ) -> str:
        """What follows `prompt`, up to the end of the text. An empty prompt starts a document.

        With `in_step`, `tokens` forward passes are made whatever comes out: a sharded model needs all ranks for each.
        """
        end = self.tokenizer.end_of_text
        ids = generate(
            self.next_logits,
            [end, *self.tokenizer.encode(prompt).tolist()],
            tokens,
            context=self.context,
            temperature=temperature,
            top_k=top_k,
            seed=seed,
            end=None if in_step else end,
        )
        return self.tokenizer.decode(takewhile(lambda token: token != end, list(ids)))


def open_speaker(run_dir: Path, step: int | None = None) -> Speaker:
    """Load the model of a run's newest whole checkpoint, or of `step`, on the CPU in fp32.

    Raises InputError when the run has no checkpoint.
    """
    run = RunFolder.open(run_dir)
    recipe = run.recipe()
    found = find(run.checkpoints, step)
    if found is None:
        raise InputError("has no checkpoint yet", where=str(run_dir), do="train it for some steps first")
    folder, manifest = found
    data = prepare(recipe)
    model = build(recipe.model, data.vocab_size, torch.float32, device="cpu")
    load(folder, manifest, {"model": dict(model.state_dict())}, None)
    return Speaker(next_logits_of(model.eval()), data.tokenizer, manifest.step, recipe.data.sequence_length)
