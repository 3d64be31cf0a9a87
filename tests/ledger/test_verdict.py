"""The verdict: biggest leak first, and no verdict from what nobody measured."""

import pytest

from argosy.ledger.accounts import ACCOUNTS
from argosy.ledger.remedies import remedy
from argosy.ledger.verdict import judge

S = 10**9


def accounts(**seconds):
    return {name.replace("__", "."): s * S for name, s in seconds.items()}


@pytest.mark.parametrize(
    ("leak_s", "level"), [(1, "fine"), (2, "mention"), (9, "mention"), (10, "warn"), (19, "warn"), (20, "alarm")]
)
def test_levels_at_their_thresholds(leak_s, level):
    verdict = judge(accounts(useful__model_math=100 - leak_s, compute__data_wait=leak_s), 100 * S)
    assert verdict.level == level
    assert verdict.account == (None if level == "fine" else "compute.data_wait")
    assert verdict.saves_at_most_ns == (None if level == "fine" else leak_s * S)


def test_the_biggest_leak_is_named_with_evidence_and_remedy():
    verdict = judge(accounts(useful__model_math=60, stability__lost_work=25, compute__gc=15), 100 * S)
    assert "25.0% of what was paid leaked into stability.lost_work" in verdict.headline
    assert verdict.evidence[0].startswith("25.0 of 100.0 device-seconds")
    assert "checkpoint.every_steps" in verdict.do


def test_useful_time_is_never_a_leak():
    assert judge(accounts(useful__model_math=90, useful__provisional=10), 100 * S).level == "fine"


def test_undetermined_when_more_is_unattributed_than_leaked():
    verdict = judge(
        accounts(useful__model_math=80, compute__gc=9, unattributed__residual=6, unattributed__torn=5), 100 * S
    )
    assert verdict.level == "undetermined"
    assert "11.0%" in verdict.headline
    assert [line.split(":")[0] for line in verdict.evidence] == [
        "6.0 device-seconds unattributed.residual",
        "5.0 device-seconds unattributed.torn",
    ]
    assert verdict.saves_at_most_ns is None


def test_a_little_unattributed_time_is_said_but_does_not_veto():
    verdict = judge(accounts(useful__model_math=80, compute__gc=15, unattributed__residual=5), 100 * S)
    assert verdict.level == "warn"
    assert "5.0% of what was paid is in no account" in verdict.evidence


def test_undetermined_when_most_of_the_leak_is_imputed():
    books = accounts(useful__model_math=70, stability__detect=30)
    assert judge(books, 100 * S, {"stability.detect": 15 * S}).level == "alarm"
    verdict = judge(books, 100 * S, {"stability.detect": 16 * S})
    assert verdict.level == "undetermined"
    assert "16.0 of them imputed: no process lived to measure them" in verdict.evidence


def test_nothing_paid_is_no_verdict():
    assert judge({}, 0).level == "undetermined"


def test_every_leak_has_a_remedy_and_useful_time_has_none():
    lines = {row.name: remedy(row.name) for row in ACCOUNTS if not row.name.startswith("useful.")}
    assert all(lines.values())
    assert not any("\n" in line for line in lines.values())
    with pytest.raises(KeyError):
        remedy("useful.model_math")
