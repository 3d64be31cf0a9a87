"""Incidents for people."""

from rich.table import Table

from argosy.resilience.incident import MEANING, Incident

_RUNGS = {"RestartWorkers": "restart", "RollBack": "roll back", "Skip": "skip", "Stop": "stop", "none": "–"}


def table(incidents: list[Incident], currency: str) -> Table:
    """One row each; `silent` is before the verdict, `mended` from there to the next completed step, `lost` in steps."""
    shown = Table(box=None, pad_edge=False)
    numbers = {"#", "rank", "step", "silent", "mended", "lost", currency}
    names = ("#", "what", "rank", "step", "silent", "mended", "lost", currency, "then")
    for name in names:
        shown.add_column(name, justify="right" if name in numbers else "left", no_wrap=True)
    for one in incidents:
        shown.add_row(
            str(one.number),
            one.kind,
            "–" if one.rank is None else str(one.rank),
            "–" if one.step is None else str(one.step),
            _seconds(one.silent_s),
            _seconds(to_next_step_s(one)),
            "–" if one.lost_steps is None else str(one.lost_steps),
            one.lost_money or "–",
            _RUNGS.get(one.rung, one.rung),
        )
    return shown


def to_next_step_s(incident: Incident) -> float | None:
    """From the verdict to the end of the next completed step; None when there was none."""
    return sum(incident.phases.values()) if "first_step" in incident.phases else None


def details(incident: Incident) -> str:
    """Everything that is known, for the person who has to mend it."""
    lines = [
        f"incident {incident.number} of attempt {incident.attempt} on {incident.host}: {incident.kind}",
        f"  {MEANING[incident.kind]}",
        f"  first cause   {incident.cause}",
        f"  seen by       {incident.detected_by}, {_seconds(incident.silent_s)} after the last sign of life",
        f"  then          {incident.rung}",
        *(f"  {name:<13} {_seconds(seconds)}" for name, seconds in incident.phases.items()),
        *(f"  consequence   {text}" for text in incident.consequences),
    ]
    for rank, sign in incident.ranks.items():
        lines.append(f"  rank {rank:<8} " + ", ".join(f"{key} {value}" for key, value in sign.items()))
    if incident.trace:
        lines += ["", incident.trace.rstrip()]
    for rank, stack in incident.stacks.items():
        lines += ["", f"stacks of rank {rank}:", stack.rstrip()]
    return "\n".join(lines)


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
