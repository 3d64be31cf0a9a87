"""Every field of the recipe as a flat table, `table.key` → what it is.

One walk over the schema serves `explain`, the hashes and the "did you mean" of the loader.
"""

from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from argosy.recipe.field import Affects
from argosy.recipe.schema import Recipe


@dataclass(frozen=True)
class Knob:
    """One field: its dotted key, meaning, unit, and what a change of it affects."""

    key: str
    affects: Affects
    doc: str
    unit: str
    kind: str
    """Accepted values in words, such as ``whole number`` or ``"wsd" | "cosine"``."""
    limits: tuple[str, ...]
    """Bounds in words, such as ``≥ 1``."""
    required: bool
    default: Any


@cache
def knobs() -> dict[str, Knob]:
    """All fields of :class:`Recipe` in the order of the schema."""
    return {knob.key: knob for knob in _walk(Recipe, "")}


def values(recipe: Recipe) -> dict[str, Any]:
    """The resolved value of every field, flat and JSON-ready; an absent sub-table has one key with None."""
    return _flat(recipe.model_dump(mode="json", by_alias=True), "")


def _walk(table: type[BaseModel], prefix: str) -> list[Knob]:
    found = []
    for name, field in table.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        if extra:
            required = field.is_required()
            found.append(
                Knob(
                    key=key,
                    affects=extra["affects"],  # type: ignore[arg-type]
                    doc=field.description or "",
                    unit=str(extra["unit"]),
                    kind=_words(field.annotation),
                    limits=_limits([*field.metadata, *_inner_checks(field.annotation)]),
                    required=required,
                    default=None if field.default is PydanticUndefined else field.default,
                )
            )
        for inner in (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                found += _walk(inner, f"{key}.")
    return found


def _flat(tree: dict[str, Any], prefix: str) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


_NAMES = {int: "whole number", float: "number", bool: "true | false", str: "text", NoneType: "empty"}


def _words(annotation: Any) -> str:
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(_words(part) for part in get_args(annotation))
    if get_origin(annotation) is Annotated:
        return _words(get_args(annotation)[0])
    if get_origin(annotation) is tuple:
        return f"list of {_words(get_args(annotation)[0])}"
    if get_origin(annotation) is Literal:
        return " | ".join(f'"{one}"' if isinstance(one, str) else str(one) for one in get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table"
    return _NAMES.get(annotation, "exact number")


def _inner_checks(annotation: Any) -> list[Any]:
    """The checks on members of a union, such as the number in ``number | "auto"``."""
    members = [part for part in get_args(annotation) if get_origin(part) is Annotated]
    return [check for part in members for info in get_args(part)[1:] for check in getattr(info, "metadata", [])]


def _limits(metadata: list[Any]) -> tuple[str, ...]:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<", "pattern": "matching", "min_length": "of length ≥"}
    return tuple(
        f"{sign} {getattr(check, name)}" for check in metadata for name, sign in signs.items() if hasattr(check, name)
    )
