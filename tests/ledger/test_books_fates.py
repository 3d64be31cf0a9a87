"""What became of work: kept, at risk, lost, undone, skipped, judged; each story has a truth to the nanosecond."""

import pytest
from written import S, WrittenRun, accounts, one_attempt

from argosy.ledger.books import Books, keep_books


def test_a_rollback_below_a_checkpoint_takes_back_what_was_kept() -> None:
    run = WrittenRun()
    rank = run.rank(1, 0)
    rank.steps(0, 20, 0, S)
    rank.ckpt(10, 10 * S).ckpt(20, 20 * S).restore(10, 20 * S, "operator")
    for s in range(10, 20):
        rank.step(s, (s + 10) * S, (s + 11) * S, v=1, forward=S)
    rank.ckpt(20, 30 * S).close(30 * S)
    run.agent(1, 0).end(30 * S)
    run.paid(0, 30 * S)
    books = keep_books(run.journal())
    assert books.accounts == {"useful.model_math": 20 * S, "decision.rollback": 10 * S}
    undo = next(posting for posting in books.postings if posting.why.startswith("restore"))
    assert undo.reverses
    assert sum(ns for _, ns in undo.legs) == 0


def test_data_wait_in_a_lost_step_is_lost_work_and_still_data_wait_in_the_other_margin() -> None:
    run = WrittenRun()
    first = run.rank(1, 0)
    first.steps(0, 5, 0, 10 * S, data_wait=4 * S, forward=6 * S)
    first.beat(50 * S, 5)
    run.agent(1, 0).end(50 * S, exit=70, signal=9)
    second = run.rank(2, 50 * S)
    second.restore(0, 50 * S)
    t = second.steps(0, 5, 50 * S, 10 * S)
    second.ckpt(5, t).close(t)
    run.agent(2, 50 * S).end(t)
    run.paid(0, t)
    books = keep_books(run.journal())
    assert books.accounts == {"stability.lost_work": 50 * S, "useful.model_math": 50 * S}
    assert books.phys["data_wait"] == 20 * S
    assert books.crosstab["data_wait", "lost_failure"] == 20 * S


def test_memory_tier_commits_promote_nothing_and_a_restore_from_it_demotes() -> None:
    run = WrittenRun()
    rank = run.rank(1, 0)
    rank.steps(0, 10, 0, S)
    rank.ckpt(8, 8 * S, tier="memory").restore(8, 10 * S, "failure", tier="memory")
    for s in (8, 9):
        rank.step(s, (s + 2) * S, (s + 3) * S, v=1, forward=S)
    rank.beat(12 * S, 10)
    run.agent(1, 0)
    run.live = True
    run.paid(0, None)
    assert accounts(run) == {"useful.provisional": 10 * S, "stability.lost_work": 2 * S}


def test_async_save_counts_when_committed_and_a_kill_before_that_loses_its_steps() -> None:
    def killed(commit: bool) -> Books:
        run = WrittenRun()
        first = run.rank(1, 0)
        first.steps(0, 10, 0, S)
        first.ckpt(10, 10 * S, ph="start")
        first.steps(10, 12, 10 * S, S)
        if commit:
            first.ckpt(10, 12 * S)
        first.beat(12 * S, 12)
        run.agent(1, 0).end(12 * S, exit=70, signal=9)
        to = 10 if commit else 0
        second = run.rank(2, 12 * S)
        second.restore(to, 12 * S)
        t = second.steps(to, 12, 12 * S, S)
        second.ckpt(12, t).close(t)
        run.agent(2, 12 * S).end(t)
        run.paid(0, t)
        return keep_books(run.journal())

    assert killed(commit=True).accounts == {"useful.model_math": 12 * S, "stability.lost_work": 2 * S}
    assert killed(commit=False).accounts == {"useful.model_math": 12 * S, "stability.lost_work": 12 * S}


def test_async_save_begun_before_a_rollback_does_not_keep_what_came_after_it() -> None:
    run = WrittenRun(live=True)
    rank = run.rank(1, 0)
    rank.steps(0, 10, 0, S)
    rank.ckpt(10, 10 * S, ph="start").restore(5, 10 * S, "nan")
    for s in range(5, 8):
        rank.step(s, (s + 5) * S, (s + 6) * S, v=1, forward=S)
    rank.ckpt(10, 13 * S).beat(13 * S, 8)
    run.agent(1, 0)
    run.paid(0, None)
    assert accounts(run) == {"useful.model_math": 5 * S, "decision.rollback": 5 * S, "useful.provisional": 3 * S}


def test_run_without_final_save_loses_its_end_unless_it_declared_to_keep_nothing() -> None:
    def ended(declared: bool) -> dict[str, int]:
        run = WrittenRun()
        rank = run.rank(1, 0)
        rank.steps(0, 10, 0, S)
        rank.ckpt(6, 6 * S)
        if declared:
            rank.put("decision", t=0, what="metric_only")
        rank.close(10 * S)
        run.agent(1, 0).end(10 * S)
        run.paid(0, 10 * S)
        return accounts(run)

    assert ended(declared=False) == {"useful.model_math": 6 * S, "stability.lost_work": 4 * S}
    assert ended(declared=True) == {"useful.model_math": 10 * S}


def test_skipped_step_charges_the_whole_step_and_not_the_next() -> None:
    run = WrittenRun()
    rank = run.rank(1, 0)
    rank.step(0, 0, S, forward=S).step(1, S, 3 * S, x=1, forward=S, data_wait=S).step(2, 3 * S, 4 * S, forward=S)
    rank.ckpt(3, 4 * S).close(4 * S)
    run.agent(1, 0).end(4 * S)
    run.paid(0, 4 * S)
    books = keep_books(run.journal())
    assert books.accounts == {"useful.model_math": 2 * S, "stability.skipped_step": 2 * S}
    assert books.visits_by_fate()["skipped"] == 1


def test_a_repeat_that_nobody_announced_undoes_the_earlier_visits() -> None:
    run = WrittenRun()
    first = run.rank(1, 0)
    first.steps(0, 10, 0, S)
    first.ckpt(10, 10 * S).beat(10 * S, 10)
    run.agent(1, 0).end(10 * S, exit=70, signal=9)
    second = run.rank(2, 10 * S)
    t = second.steps(0, 10, 10 * S, S)
    second.ckpt(10, t).close(t)
    run.agent(2, 10 * S).end(t)
    run.paid(0, t)
    assert accounts(run) == {"useful.model_math": 10 * S, "stability.lost_work": 10 * S}


def test_first_step_under_way_is_lost_and_not_unattributed() -> None:
    run = WrittenRun()
    rank = run.rank(1, 0)
    rank.span("startup.model_init", 0, 2 * S).beat(5 * S)
    run.agent(1, 0).end(6 * S, exit=70, signal=9)
    run.paid(0, 6 * S)
    assert accounts(run) == {"stability.model_init": 2 * S, "stability.lost_work": 3 * S, "stability.detect": S}


def test_spans_of_a_step_share_its_fate_with_what_is_nested_in_them() -> None:
    run = WrittenRun()
    rank = run.rank(1, 0)
    rank.step(0, 0, 10 * S, forward=4 * S).step(1, 10 * S, 20 * S, forward=4 * S)
    rank.span("compile", S, 5 * S, a={"gc": S}).span("compile", 11 * S, 15 * S, a={"gc": S})
    rank.span("eval", 18 * S, 19 * S)  # evaluation is no part of the step that it interrupts
    rank.ckpt(1, 20 * S).close(20 * S)
    run.agent(1, 0).end(20 * S)
    run.paid(0, 20 * S)
    books = keep_books(run.journal())
    assert books.accounts == {
        "useful.model_math": 4 * S,
        "compute.compile": 3 * S,
        "compute.gc": S,
        "unattributed.residual": 2 * S,
        "stability.lost_work": 9 * S,
        "compute.eval": S,
    }
    assert books.phys["gc"] == 2 * S
    assert books.crosstab["gc", "lost_failure"] == S
    assert books.crosstab["eval", "none"] == S


@pytest.mark.parametrize(
    ("what", "first", "account"),
    [
        ("target_met", 3, "decision.beyond_target"),
        ("late_kill", 2, "decision.late_kill"),
        ("duplicate", None, "decision.duplicate_run"),
        ("unused", None, "decision.unused_result"),
    ],
)
def test_kept_work_that_somebody_judged_is_a_decision(what: str, first: int | None, account: str) -> None:
    run = WrittenRun()
    end = one_attempt(run)
    run.files[0].put("decision", t=end, what=what, **({} if first is None else {"s": first}))
    judged = 5 - (first or 0)
    expected = {account: judged * 10 * S} | ({"useful.model_math": (5 - judged) * 10 * S} if judged < 5 else {})
    books = keep_books(run.journal())
    assert books.accounts == expected
    assert books.postings[-1].why == f"decision: {what}"


def test_what_no_checkpoint_holds_of_a_run_that_diverged_is_no_failures_fault() -> None:
    run = WrittenRun()
    rank = run.rank(1, 0)
    end = rank.steps(0, 5, 0, 10 * S)
    rank.ckpt(2, 20 * S).put("decision", t=end, what="diverged").close(end)
    run.agent(1, 0).end(end)
    run.paid(0, end)
    assert accounts(run) == {"useful.model_math": 20 * S, "decision.diverged": 30 * S}


def test_devices_in_no_allocation_are_unallocated() -> None:
    run = WrittenRun()
    end = one_attempt(run)
    run.paid(end, end + 100 * S, state="unallocated")
    assert accounts(run) == {"useful.model_math": 50 * S, "decision.unallocated": 100 * S}
