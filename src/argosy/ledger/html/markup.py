"""HTML and SVG as text, escaped where it is made."""

from collections.abc import Iterable
from html import escape


class Markup(str):
    """Text that is markup already and goes through unchanged; any other text is escaped."""


def el(tag: str, /, *children: object, **attributes: object) -> Markup:
    """An element. Attributes that are None are left out; ``class_`` and ``data_x`` stand for ``class`` and ``data-x``.

    Children that are None are left out; lists of children are laid out flat.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_attribute(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if tag in ("meta", "link", "rect", "path", "line") and not children:
        return Markup(f"<{tag}{written}/>")
    return Markup(f"<{tag}{written}>{join(children)}</{tag}>")


def join(children: Iterable[object]) -> Markup:
    """Children one after the other."""
    return Markup("".join(_text(child) for child in children))


def _text(child: object) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return str(child)
    if isinstance(child, list | tuple):
        return str(join(child))
    return escape(str(child), quote=False)


def _attribute(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
