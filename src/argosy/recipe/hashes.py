"""Three hashes of a resolved recipe: the whole, what is learned, and how it runs.

Two runs with one `learning_hash` learn the same thing; a run may continue only then.
"""

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass

from argosy.recipe.field import Affects
from argosy.recipe.knobs import knobs, values
from argosy.recipe.schema import Recipe


@dataclass(frozen=True)
class Hashes:
    """SHA-256 in hex over canonical JSON (sorted keys, no spaces) of the flat resolved recipe."""

    recipe_hash: str
    """Every field."""
    learning_hash: str
    """Fields marked ``learn``."""
    running_hash: str
    """Fields marked ``run``."""


def hashes(recipe: Recipe) -> Hashes:
    """The three hashes. Equal recipes have equal hashes, however they were written."""
    return Hashes(
        recipe_hash=_digest(recipe, {"learn", "run", "books"}),
        learning_hash=_digest(recipe, {"learn"}),
        running_hash=_digest(recipe, {"run"}),
    )


def changed_fields(a: Recipe, b: Recipe, affects: Collection[Affects] = frozenset({"learn"})) -> list[str]:
    """Keys such as ``optimizer.learning_rate`` that differ between `a` and `b` and have one of the marks."""
    old, new = values(a), values(b)
    keys = dict.fromkeys([*old, *new])
    return [key for key in keys if knobs()[key].affects in affects and old.get(key) != new.get(key)]


def _digest(recipe: Recipe, affects: Collection[Affects]) -> str:
    kept = {key: value for key, value in values(recipe).items() if knobs()[key].affects in affects}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
