"""The results of contests as a table for people and for the documentation."""

from collections.abc import Iterable
from typing import Any


def table(results: Iterable[dict[str, Any]]) -> str:
    """Markdown: one line a ratio."""
    lines = [
        "| configuration | ours | theirs | tokens/s | ratio (95 % interval) | asked | pairs | others |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        rates = {name: found["tokens_per_s"] for name, found in result["contestants"].items()}
        for row in result["ratios"]:
            asked = "" if row["asked"] is None else f"≥ {row['asked']:g}{'' if row['met'] else ' **missed**'}"
            lines.append(
                f"| {result['configuration']} | {row['ours']} | {row['theirs']} "
                f"| {rates[row['ours']]:,.0f} : {rates[row['theirs']]:,.0f} "
                f"| {row['median']:.2f} ({row['low']:.2f}–{row['high']:.2f}) | {asked} | {result['pairs']} "
                f"| {result['machine']['others_share']:.0%} |"
            )
    return "\n".join(lines)
