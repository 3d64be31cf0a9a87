"""The table of accounts and the function that picks from it."""

from itertools import product

import pytest

from argosy.journal.phys import MATH, STEP_EXTERNAL
from argosy.ledger.accounts import ACCOUNTS, BY_NAME, FATES, PHYS, account

LAYERS = {"useful", "compute", "comm", "stability", "decision", "unattributed"}


def test_every_moment_has_an_account_of_the_closed_list() -> None:
    for phys, fate in product(PHYS, FATES):
        row = BY_NAME[account(phys, fate)]
        assert row.kind == "exact"
        assert row.since is not None or row.name == "unattributed.clock"


def test_names_are_unique_and_in_a_layer() -> None:
    assert len(BY_NAME) == len(ACCOUNTS)
    assert {row.name.split(".")[0] for row in ACCOUNTS} == LAYERS


def test_every_account_with_a_producer_can_be_reached_and_no_other() -> None:
    reached = {account(phys, fate) for phys, fate in product(PHYS, FATES)}
    assert reached - {"unattributed.clock"} == {row.name for row in ACCOUNTS if row.since}


def test_only_declared_math_of_kept_work_is_useful() -> None:
    useful = {(p, f) for p, f in product(PHYS, FATES) if account(p, f).startswith("useful")}
    assert useful == set(product(MATH, ("kept", "kept_provisional")))


@pytest.mark.parametrize(
    ("phys", "fate", "name"),
    [
        ("data_wait", "lost_failure", "stability.lost_work"),  # lost comes before stalls
        ("data_wait", "kept_provisional", "compute.data_wait"),
        ("unattributed", "discarded_decision", "decision.rollback"),
        ("torn", "lost_failure", "unattributed.torn"),  # nobody knows what was lost
        ("warmup", "lost_failure", "stability.warmup"),  # start-up comes before lost
        ("no_process.held", "none", "decision.idle_reservation"),
        ("forward", "none", "unattributed.unmapped"),
        ("forward", "surplus", "decision.beyond_target"),
        ("comm.exposed.tp", "kept", "comm.exposed.tp"),
        ("never heard of", "kept", "unattributed.unmapped"),
    ],
)
def test_precedence(phys: str, fate: str, name: str) -> None:
    assert account(phys, fate) == name


def test_what_is_no_part_of_a_step_shares_no_fate_with_it() -> None:
    for phys in STEP_EXTERNAL:
        assert len({account(phys, fate) for fate in FATES}) == 1
