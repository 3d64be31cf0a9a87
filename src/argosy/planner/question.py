"""What a plan is asked for: a model, its data and batch, and the precision."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from argosy.errors import UsageError
from argosy.layout.layout import Layout
from argosy.layout.work import Work
from argosy.recipe.flops import model_flops_per_token, parameter_count
from argosy.recipe.model_table import ModelTable
from argosy.recipe.presets import PRESETS
from argosy.recipe.schema import LayoutTable, Recipe


@dataclass(frozen=True)
class Question:
    """The workload before it is split."""

    name: str
    model: ModelTable
    vocab_size: int
    sequence_length: int
    batch_sequences: int
    dtype: str = "bf16"
    tokens: int | None = None
    """Horizon of the run."""
    reduce: str = "fp32"
    optimizer: Literal["adamw", "muon", "sgd"] = "adamw"
    layout: LayoutTable | None = None
    """How the recipe wants it split; None without a recipe."""

    def work(self, layout: Layout, device: Literal["cpu", "cuda"]) -> Work:
        """One step of it, split by `layout`."""
        return Work(
            self.model,
            self.vocab_size,
            layout,
            self.batch_sequences,
            self.sequence_length,
            compute_bytes=4 if self.dtype == "fp32" else 2,
            reduce_bytes=4 if self.reduce == "fp32" else 2,
            optimizer=self.optimizer,
            device=device,
        )

    @property
    def batch_tokens(self) -> int:
        return self.batch_sequences * self.sequence_length

    @property
    def parameters(self) -> int:
        return parameter_count(self.model, self.vocab_size)

    @property
    def flops_per_token(self) -> int:
        """Forward and backward, attention over the full sequence."""
        return model_flops_per_token(self.model, self.vocab_size, self.sequence_length)


def from_recipe(recipe: Recipe) -> Question:
    """The question a recipe asks. Raises UsageError when only its tokenizer file knows the vocabulary."""
    if recipe.vocab_size is None:
        raise UsageError(
            "the vocabulary is not known before the tokenizer is", where="model", do="set model.vocab_size"
        )
    return Question(
        name=recipe.run.name,
        model=recipe.model,
        vocab_size=recipe.vocab_size,
        sequence_length=recipe.data.sequence_length,
        batch_sequences=recipe.batch_sequences,
        dtype=recipe.precision.compute,
        tokens=recipe.objective.tokens,
        reduce=recipe.precision.reduce,
        optimizer=recipe.optimizer.kind,
        layout=recipe.layout,
    )


def from_preset(
    name: str,
    *,
    accelerators: int,
    sequence_length: int | None,
    batch_tokens: int | None,
    dtype: str,
    tokens: int | None,
) -> Question:
    """The question for a preset with usual data: sequences of at most 8192, 4 Mi tokens per batch (16 Mi from 4,096
    accelerators on), rounded to whole sequences."""
    if name not in PRESETS:
        import difflib

        near = difflib.get_close_matches(name, PRESETS, n=3, cutoff=0.3)
        raise UsageError(
            f"unknown preset {name!r}", where="--model", do=f"use {' or '.join(near) or ', '.join(PRESETS)}"
        )
    model = ModelTable(preset=name)
    if model.vocab_size is None:
        raise UsageError(
            f"preset {name} has no vocabulary of its own", where="--model", do="give a recipe with model.vocab_size"
        )
    length = sequence_length or min(8192, model.max_positions)
    if length > model.max_positions:
        raise UsageError(f"{name} has {model.max_positions} positions, not {length}", where="--sequence")
    wanted = batch_tokens or (4 if accelerators < 4096 else 16) * 2**20
    return Question(name, model, model.vocab_size, length, max(1, wanted // length), dtype, tokens)


def load(path: Path, sets: tuple[str, ...]) -> Question:
    """The question of a recipe file."""
    from argosy.recipe.load import load_recipe

    return from_recipe(load_recipe(path, sets))
