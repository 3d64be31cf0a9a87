"""What there is to know of a model family of Hugging Face: its configuration and its tensors. No torch here."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from argosy.errors import InputError
from argosy.recipe.model_table import ModelTable

Config = Mapping[str, Any]
"""A config.json as read."""


@dataclass(frozen=True)
class Weight:
    """One tensor of theirs and the parameters of :class:`argosy.models.decoder.Decoder` that it holds.

    It is the parameters `ours` one below another (along dim 0, the output), transposed where the family keeps
    matrices as [in, out]. The one value serves both directions.
    """

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False

    def shape(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        """Shape of their tensor, given the shape of each parameter of ours."""
        rows = sum(shapes[name][0] for name in self.ours)
        whole = (rows, *shapes[self.ours[0]][1:])
        return whole[::-1] if self.transposed else whole


class Family(Protocol):
    """A family as values and pure functions."""

    @property
    def architecture(self) -> str:
        """Name of the model class in `transformers`."""

    @property
    def prefix(self) -> str:
        """Begins the name of every tensor but the head; old folders leave it out."""

    @property
    def buffers(self) -> str:
        """Regular expression of tensors in old folders that hold nothing learned."""

    def table(self, config: Config) -> dict[str, Any]:
        """The recipe's model table of a config.json. Raises InputError where that asks for what Argosy cannot do."""

    def config(self, table: ModelTable) -> dict[str, Any]:
        """The config.json of a model table (without vocabulary size and token ids)."""

    def objections(self, table: ModelTable) -> list[str]:
        """Why `table` is no member of the family, field by field; empty if it is one."""

    def weights(self, table: ModelTable) -> list[Weight]:
        """All tensors, in the order of the model."""


def required(config: Config, *keys: str) -> list[Any]:
    """The values of `keys`. Raises InputError when one is missing."""
    if missing := [key for key in keys if config.get(key) is None]:
        raise InputError(f"lacks {', '.join(missing)}", where="config.json")
    return [config[key] for key in keys]


def demand(config: Config, wanted: Mapping[str, tuple[Any, ...]]) -> None:
    """Refuse a config.json in which a key that is there has a value that is not among those wanted."""
    for key, values in wanted.items():
        if key in config and config[key] not in values:
            raise InputError(
                f"{key} is {config[key]!r}; Argosy's models have {' or '.join(repr(value) for value in values)}",
                where="config.json",
            )


def differing(table: ModelTable, wanted: Mapping[str, tuple[Any, ...]]) -> list[str]:
    """The fields of `table` whose value is not among those wanted, in words."""
    return [
        f"{field} = {getattr(table, field)!r}"
        for field, values in wanted.items()
        if getattr(table, field) not in values
    ]


def pairs(theirs: str, ours: str, names: Iterable[tuple[str, str]], suffixes: Iterable[str]) -> list[Weight]:
    """A :class:`Weight` for each of `names` (theirs, ours) below the two prefixes and each suffix."""
    return [
        Weight(f"{theirs}{their_name}.{suffix}", (f"{ours}{our_name}.{suffix}",))
        for their_name, our_name in names
        for suffix in suffixes
    ]
