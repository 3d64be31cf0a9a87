"""Read a recipe from TOML and `--set` overrides; write it back resolved.

Errors name the file, the line where it can be found, the key and the remedy, one line each.
"""

import difflib
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from argosy.errors import InputError, UsageError
from argosy.recipe.knobs import knobs
from argosy.recipe.schema import Recipe


def load_recipe(path: Path, sets: Sequence[str] = ()) -> Recipe:
    """The recipe in the TOML file `path` with the overrides `sets` (each ``table.key=value``).

    Raises InputError when the file cannot be read, UsageError when it or an override is wrong.
    """
    return parse_recipe(read_text(path), sets, where=str(path))


def parse_recipe(text: str, sets: Sequence[str] = (), where: str = "recipe") -> Recipe:
    """As :func:`load_recipe`, from `text`; `where` names its source in errors."""
    written = merge(text, sets, where)
    try:
        return Recipe.model_validate(written)
    except ValidationError as error:
        overridden = {text.partition("=")[0].strip() for text in sets}
        raise UsageError("\n".join(_lines(error, text, where, overridden))) from None


def merge(text: str, sets: Sequence[str] = (), where: str = "recipe") -> dict[str, Any]:
    """What `text` and `sets` say, as nested tables, before defaults and checks."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"no valid TOML: {error}", where=where, do="text values stand in quotes") from None
    for override in sets:
        _apply(tree, override)
    return tree


def dump_toml(recipe: Recipe) -> str:
    """The resolved recipe as TOML; parsing it gives an equal recipe. Empty fields are left out."""
    return tomli_w.dumps(recipe.model_dump(mode="json", by_alias=True, exclude_none=True))


def read_text(path: Path) -> str:
    """The text of the recipe file `path`. Raises InputError when it is missing, unreadable or no text."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = difflib.get_close_matches(path.name, sorted(p.name for p in path.parent.glob("*.toml")), n=1)
        remedy = f"did you mean {path.parent / near[0]}?" if near else "give the path of a TOML file"
        raise InputError("no such recipe", where=str(path), do=remedy) from None
    except UnicodeDecodeError:
        raise InputError("is no UTF-8 text", where=str(path), do="give the path of a TOML file") from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None


def nearest(key: str) -> str | None:
    """The known key or table that `key` was most likely meant to be."""
    table, _, name = key.rpartition(".")
    last = {known: known.rpartition(".")[2] for known in knobs()}
    siblings = {last[known]: known for known in knobs() if known.rpartition(".")[0] == table}
    initials = {"".join(word[0] for word in short.split("_")): known for short, known in siblings.items()}
    everything = {known: known for known in [*knobs(), *dict.fromkeys(known.rpartition(".")[0] for known in knobs())]}
    return (
        initials.get(name)  # optimizer.lr
        or _closest(name, siblings, 0.5)
        or _closest(key, everything, 0.6)
        or _closest(name, {short: known for known, short in last.items()}, 0.8)  # right key, wrong table
    )


def _closest(name: str, choices: dict[str, str], cutoff: float) -> str | None:
    close = difflib.get_close_matches(name, list(choices), n=1, cutoff=cutoff)
    return choices[close[0]] if close else None


def _apply(tree: dict[str, Any], override: str) -> None:
    key, equals, raw = override.partition("=")
    *tables, name = key.strip().split(".")
    if not equals or not tables:
        raise UsageError(
            f"{override!r} is no override", where="--set", do="write table.key=value, such as --set batch.tokens=16384"
        )
    for table in tables:
        tree = tree.setdefault(table, {})
        if not isinstance(tree, dict):
            raise UsageError(f"{table} is a value, not a table", where=f"--set {override}")
    if raw.strip():
        tree[name] = _value(raw.strip())
    else:
        tree.pop(name, None)  # TOML has no null: an empty value returns to the default


def _value(raw: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {raw}")
    except tomllib.TOMLDecodeError:
        return raw  # a bare string; shells eat the quotes that TOML wants
    return parsed["value"] if parsed.keys() == {"value"} else raw


def _lines(error: ValidationError, text: str, where: str, overridden: set[str]) -> list[str]:
    lines: dict[str, str] = {}
    for item in error.errors(include_url=False):
        unknown = item["type"] == "extra_forbidden"
        key = ".".join(_names(item["loc"])) if unknown else _key(item["loc"])
        if key in lines:  # a union reports each of its members
            continue
        place = where
        if key in overridden:
            place = "--set"
        elif (line := line_of(text, key)) is not None:
            place = f"{where}:{line}"
        lines[key] = f"{place}: {_sentence(key, item)}"
    return list(lines.values())


def _key(loc: tuple[int | str, ...]) -> str:
    """The longest known key that `loc` starts with; the members of a union come after it."""
    parts = _names(loc)
    for end in range(len(parts), 0, -1):
        if ".".join(parts[:end]) in knobs():
            return ".".join(parts[:end])
    return ".".join(parts)


def _names(loc: tuple[int | str, ...]) -> list[str]:
    return [part for part in loc if isinstance(part, str)]  # a number is the place in a list


def _sentence(key: str, item: Any) -> str:
    kind, ctx, given = item["type"], item.get("ctx", {}), item["input"]
    knob = knobs().get(key)
    if kind == "extra_forbidden":
        near = nearest(key)
        remedy = f"did you mean {near}?" if near else "`argosy recipe explain` lists all keys"
        return f"unknown key {key} → {remedy}"
    if kind == "missing":
        if knob is None:
            return f"the table {key} is missing → add [{key}] with at least its required keys: {_required(key)}"
        return f"{key} is missing: {knob.doc} → set it{f' in {knob.unit}' if knob.unit else ''}"
    if kind == "value_error":
        message = str(ctx["error"])
        return f"{key}: {message}" if key else message
    if knob is None:
        return f"{key} is {given!r}, but must be a table → write [{key}]"
    wanted = " ".join((knob.kind.replace(" | empty", ""), " and ".join(knob.limits))).strip()
    guess = difflib.get_close_matches(str(given), re.findall(r'"([^"]*)"', knob.kind), n=1)
    remedy = f" → did you mean {guess[0]!r}?" if guess else ""
    article = "a " if knob.kind.startswith(("whole", "number", "text")) else ""
    return f"{key} is {given!r}, but must be {article}{wanted}{f' ({knob.unit})' if knob.unit else ''}{remedy}"


def _required(table: str) -> str:
    return ", ".join(k.key for k in knobs().values() if k.required and k.key.startswith(f"{table}."))


def line_of(text: str, key: str) -> int | None:
    """The line of `text` (from 1) that writes the dotted `key`, or None when it cannot be told."""
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[\s*([\w.+-]+)\s*\]", line):
            table = header[1]
            if table == key:
                return number
        elif (pair := re.match(r"\s*([\w.+-]+)\s*=", line)) and f"{table}.{pair[1]}".lstrip(".") == key:
            return number
    return None
