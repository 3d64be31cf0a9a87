"""Numbers and little pictures as text, each a pure function. ``n/a`` means unknown; 0 means zero."""

from fractions import Fraction

NOT_KNOWN = "n/a"


def bar(start_ns: int, end_ns: int, whole_ns: int, width: int, block: str = "█") -> str:
    """A bar from `start_ns` to `end_ns` on a scale of `width` cells; any time at all shows as a sliver."""
    if not whole_ns or end_ns == start_ns:
        return ""
    cells = round((end_ns - start_ns) * width / whole_ns)
    left = min(round(start_ns * width / whole_ns), width - max(cells, 1))
    return " " * left + (block * cells or ("▏" if block == "█" else "|"))


def sparkline(values: list[float], width: int) -> str:
    """`values` in `width` columns (mean of each), from the lowest ▁ to the highest █."""
    groups = [values[i * len(values) // width : (i + 1) * len(values) // width] for i in range(width)]
    means = [sum(group) / len(group) for group in groups if group]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join("▁▂▃▄▅▆▇█"[int((mean - low) / span * 7.999)] for mean in means)


def seconds(ns: int) -> str:
    """Device-seconds with one decimal."""
    return f"{ns / 1e9:,.1f}"


def money_digits(total: Fraction) -> int:
    """Decimals at which an amount of this size is printed."""
    if not total:
        return 0
    return 2 if total >= 100 else 4 if total >= Fraction(1, 10) else 6


def amount(money: str | None) -> str:
    """An exact amount at a precision that suits its size."""
    if money is None:
        return NOT_KNOWN
    value = Fraction(money)
    return f"{float(value):,.{money_digits(value)}f}"


def si(value: float) -> str:
    """Three significant digits and the prefix of a unit that follows."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:.3g} "


def counts(items: list[tuple[int, str]]) -> str:
    """The first count and those of the rest that are not zero, each with its word."""
    first, *rest = items
    return ", ".join([f"{first[0]:,} {first[1]}", *(f"{count:,} {word}" for count, word in rest if count)])


def number(value: float | None) -> str:
    """A whole number with thousands."""
    return NOT_KNOWN if value is None else f"{value:,.0f}"


def percent(value: float | None) -> str:
    """A ratio as percentage."""
    return NOT_KNOWN if value is None else f"{value:.1%}"


def decimal(value: float | None, digits: int) -> str:
    """A number with fixed decimals."""
    return NOT_KNOWN if value is None else f"{value:.{digits}f}"


def duration(value_s: float | None) -> str:
    """A short time in ms or s."""
    if value_s is None:
        return NOT_KNOWN
    return f"{value_s * 1e3:.1f} ms" if value_s < 1 else f"{value_s:.2f} s"


def length(value: float | None, scale: float, width: int) -> str:
    """A value as the length of a bar, `scale` filling `width` cells."""
    return "" if value is None or not scale else "■" * max(1, round(value / scale * width))


def printable(text: str) -> str:
    """Text of a model without what could steer a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "·" for c in text)
