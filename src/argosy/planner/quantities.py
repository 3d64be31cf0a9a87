"""Quantities as people write them: 15T tokens, $50k, 30d."""

import re

from argosy.errors import UsageError

_SCALE = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_TIME = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def count(text: str, where: str) -> int:
    """A count: ``15T``, ``2e12``, ``300_000``."""
    match = re.fullmatch(r"\s*([\d_.]+(?:e[+-]?\d+)?)\s*([kmbgt]?)\s*", text, re.IGNORECASE)
    if not match:
        raise UsageError(f"{text!r} is no count", where=where, do="write 15T, 300B or 2e12")
    value = _number(match[1], text, where) * _SCALE[match[2].lower()]
    if not 1 <= value < 1e18:
        raise UsageError(f"{text!r} is out of range", where=where)
    return round(value)


def money(text: str, where: str) -> float:
    """A sum in the currency of the price: ``$50k``, ``1.5M``."""
    match = re.fullmatch(r"\s*(?:[$€£]|USD|EUR)?\s*([\d_,.]+(?:e[+-]?\d+)?)\s*([kmb]?)\s*", text, re.IGNORECASE)
    if not match:
        raise UsageError(f"{text!r} is no sum", where=where, do="write $50k or 1.5M")
    value = _number(match[1].replace(",", ""), text, where) * _SCALE[match[2].lower()]
    if value <= 0:
        raise UsageError("a budget must be above 0", where=where)
    return value


def duration_s(text: str, where: str) -> float:
    """A duration in seconds: ``30d``, ``12h``, ``2w``."""
    match = re.fullmatch(r"\s*([\d_.]+)\s*(s|min|h|d|w)\s*", text, re.IGNORECASE)
    if not match:
        raise UsageError(f"{text!r} is no duration", where=where, do="write 30d, 12h or 90min")
    value = _number(match[1], text, where) * _TIME[match[2].lower()]
    if value <= 0:
        raise UsageError("a duration must be above 0", where=where)
    return value


def _number(text: str, whole: str, where: str) -> float:
    try:
        return float(text.replace("_", ""))
    except ValueError:
        raise UsageError(f"{whole!r} is no number", where=where) from None
