"""Text from the newest checkpoint of a run."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from argosy.checkpoint.load import find, load
from argosy.data.prepare import prepare
from argosy.data.tokenizer import Tokenizer
from argosy.errors import InputError
from argosy.models.build import build
from argosy.models.decoder import Decoder
from argosy.models.generate import generate
from argosy.registry.run_folder import RunFolder


@dataclass(frozen=True)
class Speaker:
    """A trained model with its tokenizer."""

    model: Decoder
    tokenizer: Tokenizer
    step: int
    context: int
    """Tokens that the model was trained to look back on."""

    def continue_text(self, prompt: str, tokens: int, *, temperature: float, top_k: int | None, seed: int) -> str:
        """What follows `prompt`. An empty prompt starts a document."""
        start = [self.tokenizer.end_of_text, *self.tokenizer.encode(prompt).tolist()]
        ids = self._ids(start, tokens, temperature=temperature, top_k=top_k, seed=seed)
        return self.tokenizer.decode(token for token in ids if token != self.tokenizer.end_of_text)

    def _ids(self, start: list[int], tokens: int, *, temperature: float, top_k: int | None, seed: int) -> Iterator[int]:
        return generate(
            self.model,
            start,
            tokens,
            context=self.context,
            temperature=temperature,
            top_k=top_k,
            seed=seed,
            end=self.tokenizer.end_of_text,
        )


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
    load(folder, {"model": dict(model.state_dict())}, None)
    return Speaker(model.eval(), data.tokenizer, manifest.step, recipe.data.sequence_length)
