"""The first thing a report says: the biggest leak, how sure that is, what to do, what that can save.

A verdict never rests on time that nobody measured. When most of the case is unattributed or imputed
it is "undetermined", with the reason. What it says can be saved is an upper bound: removing one wait
may expose the next, so savings of several leaks do not add up, even though their seconds do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from argosy.ledger.accounts import BY_NAME
from argosy.ledger.causes import Cause
from argosy.ledger.remedies import remedy

MENTION, WARN, ALARM = 0.02, 0.10, 0.20
"""Shares of paid time from which a leak is mentioned, warned of, and an alarm."""

Level = Literal["fine", "mention", "warn", "alarm", "undetermined"]


@dataclass(frozen=True)
class Verdict:
    """What a report says first."""

    level: Level
    headline: str
    evidence: tuple[str, ...]
    do: str
    account: str | None = None
    """The account that the verdict is about; None when there is no leak worth a word."""
    saves_at_most_ns: int | None = None


def judge(
    accounts: Mapping[str, int],
    paid_ns: int,
    imputed: Mapping[str, int] | None = None,
    causes: Sequence[Cause] = (),
) -> Verdict:
    """The verdict on `accounts` (name → ns, sum `paid_ns`).

    `imputed` says how many of an account's ns were not measured but closed from outside (the tail of a
    killed attempt, for example). `causes` are those of waits for a slow rank, the largest first.
    """
    imputed = imputed or {}
    if not paid_ns:
        return Verdict("undetermined", "undetermined, because nothing was paid yet", (), "start the run")
    leaks = {n: ns for n, ns in accounts.items() if ns and not n.startswith(("useful.", "unattributed."))}
    unknown = {n: ns for n, ns in accounts.items() if ns and n.startswith("unattributed.")}
    unknown_ns = sum(unknown.values())
    name = max(leaks, key=lambda n: (leaks[n], n), default=None)
    biggest_ns = leaks[name] if name else 0
    if unknown_ns >= max(MENTION * paid_ns, biggest_ns):
        return _unknown(unknown, unknown_ns, paid_ns)
    useful = sum(ns for n, ns in accounts.items() if n.startswith("useful.")) / paid_ns
    if name is None or biggest_ns < MENTION * paid_ns:
        runner_up = f"; the biggest is {name} with {biggest_ns / paid_ns:.1%}" if name else ""
        return Verdict(
            "fine",
            f"no leak reaches {MENTION:.0%} of what was paid",
            (f"{useful:.1%} was useful{runner_up}",),
            "nothing here; what is left is the speed of the math itself (MFU)",
        )
    share = biggest_ns / paid_ns
    evidence = [f"{_seconds(biggest_ns)} of {_seconds(paid_ns)} device-seconds: {BY_NAME[name].definition}"]
    guessed_ns = imputed.get(name, 0)
    if guessed_ns:
        evidence.append(f"{_seconds(guessed_ns)} of them imputed: no process lived to measure them")
    if name == "comm.wait_slow_rank":
        evidence += [
            f"{cause.ns / biggest_ns:.0%} of it for rank {cause.rank} on {cause.host}, which was in {cause.doing}"
            for cause in causes[:2]
            if cause.rank is not None
        ]
    if unknown_ns:
        evidence.append(f"{unknown_ns / paid_ns:.1%} of what was paid is in no account")
    if 2 * guessed_ns > biggest_ns:
        return Verdict(
            "undetermined",
            f"undetermined, because most of the biggest leak, {name} with {share:.1%}, is imputed",
            tuple(evidence),
            remedy(name),
            name,
            biggest_ns,
        )
    level: Level = "alarm" if share >= ALARM else "warn" if share >= WARN else "mention"
    return Verdict(
        level, f"{share:.1%} of what was paid leaked into {name}", tuple(evidence), remedy(name), name, biggest_ns
    )


def _unknown(unknown: Mapping[str, int], unknown_ns: int, paid_ns: int) -> Verdict:
    largest_first = sorted(unknown.items(), key=lambda item: (-item[1], item[0]))
    name = largest_first[0][0]
    return Verdict(
        "undetermined",
        f"undetermined, because {unknown_ns / paid_ns:.1%} of what was paid is in no account",
        tuple(f"{_seconds(ns)} device-seconds {n}: {BY_NAME[n].definition}" for n, ns in largest_first),
        remedy(name),
        name,
    )


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:,.1f}"
