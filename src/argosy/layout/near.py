"""Values that would do, for the remedy in a message."""

from typing import Any


def divisors(number: int) -> list[int]:
    """All divisors of `number`, in order."""
    return [d for d in range(1, number + 1) if number % d == 0]


def near(options: list[int], wanted: int) -> list[int]:
    """The four of `options` nearest to `wanted` as a ratio, in order."""
    return sorted(sorted(options, key=lambda option: max(option, wanted) / min(option, wanted))[:4])


def listed(options: list[Any]) -> str:
    """``1, 2 or 4``."""
    words = [str(option) for option in options]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}" if words else "another value"
