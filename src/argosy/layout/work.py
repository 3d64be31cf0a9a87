"""The work of one step, as every count of :mod:`argosy.layout` needs it."""

from dataclasses import dataclass
from typing import Literal

from argosy.layout.layout import Layout
from argosy.layout.schedule import Schedule
from argosy.layout.stages import schedule_of
from argosy.recipe.model_table import ModelTable
from argosy.recipe.schema import Recipe


@dataclass(frozen=True)
class Work:
    """A model, a batch, and the sizes of numbers; split by `layout`."""

    model: ModelTable
    vocab_size: int
    layout: Layout
    batch_sequences: int
    """Of the global batch."""
    sequence_length: int
    compute_bytes: int = 2
    """Of a number in products and activations."""
    reduce_bytes: int = 4
    """Of a number in sums of gradients over data-parallel ranks."""
    optimizer: Literal["adamw", "muon", "sgd"] = "adamw"
    device: Literal["cpu", "cuda"] = "cpu"
    """Chunks of the loss are smaller on a CPU."""

    @classmethod
    def from_recipe(cls, recipe: Recipe, layout: Layout, vocab_size: int, device: Literal["cpu", "cuda"]) -> "Work":
        """The work of one step of `recipe`; its vocabulary is known only once its data are."""
        number = {"fp32": 4, "bf16": 2}
        return cls(
            recipe.model,
            vocab_size,
            layout,
            recipe.batch_sequences,
            recipe.data.sequence_length,
            compute_bytes=number[recipe.precision.compute],
            reduce_bytes=number[recipe.precision.reduce],
            optimizer=recipe.optimizer.kind,
            device=device,
        )

    @property
    def micro_batches(self) -> int:
        """Of one step on one rank."""
        return self.layout.micro_batches(self.batch_sequences)

    @property
    def sequences(self) -> int:
        """Of one micro-batch on one rank."""
        return self.batch_sequences // self.layout.data_ranks // self.micro_batches

    @property
    def tokens(self) -> int:
        """Of one micro-batch on the tensor-parallel ranks together."""
        return self.sequences * self.sequence_length // self.layout.cp

    @property
    def stream_bytes(self) -> int:
        """The hidden states [B, S, hidden] of one micro-batch, on the tensor-parallel ranks together."""
        return self.tokens * self.model.hidden_size * self.compute_bytes

    @property
    def schedule(self) -> Schedule | None:
        """None without a pipeline."""
        return None if self.layout.pp == 1 else schedule_of(self.layout, self.micro_batches)
