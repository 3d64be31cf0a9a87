"""What a field of the recipe means, from the schema itself."""

from argosy.errors import UsageError
from argosy.recipe.knobs import Knob, knobs
from argosy.recipe.load import nearest

EFFECTS = {
    "learn": "what is learned: another value is another run",
    "run": "only how it runs: a run may continue with another value",
    "books": "only names and prices",
}


def find(key: str | None) -> list[Knob]:
    """The field `key`, all fields of the table `key`, or with None all fields.

    Raises UsageError naming the nearest key when there is none.
    """
    found = [knob for name, knob in knobs().items() if key is None or name == key or name.startswith(f"{key}.")]
    if not found:
        near = nearest(key or "")
        raise UsageError(
            f"unknown key {key}",
            where="recipe",
            do=f"did you mean {near}?" if near else "`argosy recipe explain` lists all",
        )
    return found


def sentence(knob: Knob) -> str:
    """All that is known about one field, in a few lines."""
    unit = f" ({knob.unit})" if knob.unit else ""
    lines = [
        f"{knob.key}: {knob.doc}{unit}",
        f"  value    {' '.join((knob.kind, ' and '.join(knob.limits))).strip()}",
        f"  default  {'none, it must be given' if knob.required else shown(knob.default)}",
        f"  changes  {EFFECTS[knob.affects]}",
    ]
    return "\n".join(lines)


def shown(value: object) -> str:
    """A default as one would write it."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
