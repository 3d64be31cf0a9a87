"""Stories whose truth is known, because the test made them up: the books must tell it to the nanosecond.

Letters are those of research/ledger.md 1.1, where the leading tool of the field is shown to get most of them wrong.
"""

import pytest
from written import BOOT, WALL, S, WrittenRun

from argosy.ledger.books import Books, keep_books
from argosy.ledger.refusals import Refusal


def accounts(run: WrittenRun, **options: object) -> dict[str, int]:
    return keep_books(run.journal(), **options).accounts  # type: ignore[arg-type]


def one_attempt(run: WrittenRun, *, first: int = 0, start: int = 0, steps: int = 5, length: int = 10 * S) -> int:
    """Steps without a gap from `start`, a commit and a clean end; returns when it ended."""
    rank = run.rank(1, start)
    end = rank.steps(first, first + steps, start, length)
    rank.ckpt(first + steps, end).close(end)
    run.agent(1, start).end(end)
    run.paid(start, end)
    return end


def test_clean_run_is_all_useful() -> None:
    run = WrittenRun()
    one_attempt(run)
    assert accounts(run) == {"useful.model_math": 50 * S}


def test_a_restart_on_a_step_boundary_loses_only_the_outage() -> None:
    run = WrittenRun()
    first = run.rank(1, 0)
    first.steps(0, 10, 0, 10 * S)
    first.ckpt(10, 100 * S).beat(100 * S, 10)
    run.agent(1, 0).end(100 * S, exit=70, signal=9)
    second = run.rank(2, 1100 * S)
    second.restore(10, 1100 * S)
    second.steps(10, 20, 1100 * S, 10 * S)
    second.ckpt(20, 1200 * S).close(1200 * S)
    run.agent(2, 1100 * S).end(1200 * S)
    run.paid(0, 1200 * S)
    books = keep_books(run.journal())
    assert books.accounts == {"useful.model_math": 200 * S, "stability.reschedule": 1000 * S}
    assert books.restarts == 1
    assert books.visits_by_fate()["lost_failure"] == 0


def test_a_released_outage_is_not_paid() -> None:
    run = WrittenRun()
    first = run.rank(1, 0)
    first.steps(0, 10, 0, 10 * S)
    first.ckpt(10, 100 * S).beat(100 * S, 10)
    run.agent(1, 0).end(100 * S, exit=70, signal=9)
    second = run.rank(2, 1100 * S)
    second.restore(10, 1100 * S)
    second.steps(10, 20, 1100 * S, 10 * S)
    second.ckpt(20, 1200 * S).close(1200 * S)
    run.agent(2, 1100 * S).end(1200 * S)
    run.paid(0, 100 * S).paid(1100 * S, 1200 * S)
    assert accounts(run) == {"useful.model_math": 200 * S}


def test_a2_steps_after_the_last_checkpoint_are_lost() -> None:
    run = WrittenRun()
    first = run.rank(1, 0)
    first.steps(0, 10, 0, 10 * S)
    first.ckpt(5, 50 * S).beat(104 * S, 10)  # died 4 s into step 10
    run.agent(1, 0).end(110 * S, exit=70, signal=9)  # and was noticed 6 s later
    second = run.rank(2, 1110 * S)
    second.restore(5, 1110 * S)
    second.steps(5, 10, 1110 * S, 10 * S)
    second.ckpt(10, 1160 * S).close(1160 * S)
    run.agent(2, 1110 * S).end(1160 * S)
    run.paid(0, 1160 * S)
    books = keep_books(run.journal())
    assert books.accounts == {
        "useful.model_math": 100 * S,
        "stability.lost_work": 54 * S,
        "stability.detect": 6 * S,
        "stability.reschedule": 1000 * S,
    }
    assert books.visits_by_fate() == {
        "kept": 10, "kept_provisional": 0, "lost_failure": 5, "discarded_decision": 0, "skipped": 0,
    }  # fmt: skip
    assert books.tokens_by_fate()["kept"] == 1000
    assert books.imputed == {"stability.detect": 6 * S, "stability.lost_work": 4 * S}


def test_b_killed_with_launcher_ends_at_the_last_sign_of_life_however_late_one_asks() -> None:
    run = WrittenRun()
    rank = run.rank(1, 0)
    rank.steps(0, 5, 0, 10 * S)
    rank.ckpt(5, 50 * S).beat(53 * S, 5)
    run.agent(1, 0)
    run.paid(0, None)
    expected = {"useful.model_math": 50 * S, "stability.lost_work": 3 * S}
    assert accounts(run) == expected
    hours_later = keep_books(run.journal(), as_of_ns=WALL + 90_000 * S)
    assert hours_later.paid_ns == 53 * S
    assert hours_later.accounts == expected


def test_c_nested_span_takes_its_time_from_the_outer() -> None:
    run = WrittenRun()
    rank = run.rank(1, 0)
    t = rank.steps(0, 4, 0, 10 * S)
    rank.span("eval", t, t + 8 * S).span("ckpt_block", t + S, t + 7 * S, d=1)
    rank.steps(4, 5, t + 8 * S, 2 * S)
    rank.ckpt(5, 50 * S).close(50 * S)
    run.agent(1, 0).end(50 * S)
    run.paid(0, 50 * S)
    assert accounts(run) == {"useful.model_math": 42 * S, "compute.eval": 2 * S, "stability.ckpt_block": 6 * S}


def test_d_span_over_a_step_boundary_is_cut_and_not_dropped() -> None:
    run = WrittenRun()
    rank = run.rank(1, 0)
    # the windows hold 5 s of the span each; what the phases report is the rest
    rank.step(0, 0, 25 * S, forward=20 * S).step(1, 25 * S, 50 * S, forward=20 * S)
    rank.span("eval", 20 * S, 30 * S)
    rank.ckpt(2, 50 * S).close(50 * S)
    run.agent(1, 0).end(50 * S)
    run.paid(0, 50 * S)
    assert accounts(run) == {"useful.model_math": 40 * S, "compute.eval": 10 * S}


def test_e_open_span_lasts_until_the_kill_and_not_until_another_end() -> None:
    run = WrittenRun()
    first = run.rank(1, 0)
    first.steps(0, 4, 0, 10 * S)
    first.ckpt(4, 40 * S).span("ckpt_block", 40 * S, None).beat(47 * S, 4)
    run.agent(1, 0).end(50 * S, exit=70, signal=9)
    second = run.rank(2, 60 * S)
    second.restore(4, 60 * S)
    second.steps(4, 5, 60 * S, 10 * S)
    second.span("ckpt_block", 70 * S, 71 * S).ckpt(5, 71 * S).close(71 * S)
    run.agent(2, 60 * S).end(71 * S)
    run.paid(0, 71 * S)
    assert accounts(run) == {
        "useful.model_math": 50 * S,
        "stability.ckpt_block": 8 * S,
        "stability.detect": 3 * S,
        "stability.reschedule": 10 * S,
    }


def test_f_clean_end_then_resume_holds_devices_idle_and_runs_on() -> None:
    run = WrittenRun(live=True)
    end = one_attempt(run)
    second = run.rank(2, end + 1000 * S)
    second.restore(5, end + 1000 * S)
    now = second.steps(5, 20, end + 1000 * S, 10 * S)
    run.agent(2, end + 1000 * S)
    run.paid_rows.clear()
    run.paid(0, None)
    books = keep_books(run.journal())
    assert books.accounts == {
        "useful.model_math": 50 * S,
        "decision.idle_reservation": 1000 * S,
        "useful.provisional": 150 * S,
    }
    assert books.paid_ns == now


@pytest.mark.parametrize("jump", [-30 * S, -3600 * S, 3600 * S])
def test_g_a_wall_clock_step_changes_no_duration(jump: int) -> None:
    run = WrittenRun()
    first = run.rank(1, 0)
    first.steps(0, 5, 0, 10 * S)
    first.ckpt(5, 50 * S).close(50 * S)
    run.agent(1, 0).end(50 * S, exit=75)
    run.paid(0, 50 * S)
    run.wall_error = jump  # everything written from here on has the new wall clock in it
    second = run.rank(2, 60 * S)
    second.restore(5, 60 * S)
    second.steps(5, 10, 60 * S, 10 * S)
    second.ckpt(10, 110 * S).close(110 * S)
    run.agent(2, 60 * S).end(110 * S)
    run.paid(50 * S, 110 * S)
    assert accounts(run) == {"useful.model_math": 100 * S, "stability.reschedule": 10 * S}


def test_h_overlapping_spans_count_once_with_the_hidden_time_as_memo() -> None:
    run = WrittenRun()
    rank = run.rank(1, 0)
    t = rank.steps(0, 5, 0, 10 * S)
    rank.span("eval", t, t + 20 * S).span("ckpt_block", t + 15 * S, t + 30 * S)
    rank.ckpt(5, t).close(t + 30 * S)
    run.agent(1, 0).end(t + 30 * S)
    run.paid(0, t + 30 * S)
    books = keep_books(run.journal())
    assert books.accounts == {"useful.model_math": 50 * S, "compute.eval": 15 * S, "stability.ckpt_block": 15 * S}
    assert books.overlapped == {"eval": 5 * S}


def test_i_a_loader_that_blocks_in_every_step_is_seen_in_every_step() -> None:
    run = WrittenRun()
    rank = run.rank(1, 0)
    t = rank.steps(0, 10, 0, 10 * S, data_wait=8 * S, forward=S, backward=S)
    rank.ckpt(10, t).close(t)
    run.agent(1, 0).end(t)
    run.paid(0, t)
    assert accounts(run) == {"compute.data_wait": 80 * S, "useful.model_math": 20 * S}


def test_j_crash_loop_in_start_up_is_three_failures() -> None:
    run = WrittenRun()
    t = 0
    for attempt in (1, 2, 3):
        rank = run.rank(attempt, t)
        rank.span("startup.process_start", t, t + S).span("startup.import", t + S, t + 3 * S)
        rank.span("startup.model_init", t + 3 * S, None).beat(t + 5 * S)
        run.agent(attempt, t).end(t + 7 * S, exit=70, signal=6)
        t += 10 * S
    rank = run.rank(4, t)
    end = rank.steps(0, 5, t, 10 * S)
    rank.ckpt(5, end).close(end)
    run.agent(4, t).end(end)
    run.paid(0, end)
    books = keep_books(run.journal())
    assert books.restarts == 3
    assert books.accounts == {
        "stability.process_start": 3 * S,
        "stability.import": 6 * S,
        "stability.model_init": 6 * S,
        "stability.detect": 6 * S,
        "stability.reschedule": 9 * S,
        "useful.model_math": 50 * S,
    }


def test_k_steps_below_a_millisecond_are_exact() -> None:
    run = WrittenRun()
    rank = run.rank(1, 0)
    t = rank.steps(0, 1000, 0, 777, forward=500, optimizer=77)
    rank.ckpt(1000, t).close(t)
    run.agent(1, 0).end(t)
    run.paid(0, t)
    assert accounts(run) == {"useful.model_math": 577_000, "unattributed.residual": 200_000}


def test_l_unrecorded_steps_are_unattributed_and_neither_useful_nor_lost() -> None:
    run = WrittenRun()
    rank = run.rank(1, 0)
    for s in range(0, 50, 10):
        rank.step(s, s * S, (s + 1) * S, forward=S)
    rank.ckpt(50, 50 * S).close(50 * S)
    run.agent(1, 0).end(50 * S)
    run.paid(0, 50 * S)
    assert accounts(run) == {"useful.model_math": 5 * S, "unattributed.residual": 45 * S}


@pytest.mark.parametrize(
    ("why", "account"),
    [("nan", "decision.rollback"), ("operator", "decision.rollback"), ("failure", "stability.lost_work")],
)
def test_m_in_process_rollback_undoes_visits_and_not_step_numbers(why: str, account: str) -> None:
    run = WrittenRun()
    rank = run.rank(1, 0)
    rank.steps(0, 30, 0, 10 * S)
    rank.ckpt(30, 300 * S)
    rank.steps(30, 50, 300 * S, 10 * S)
    rank.restore(30, 500 * S, why)
    t = rank.steps(30, 60, 500 * S, 10 * S, v=0)
    for row in rank.rows[-30:-10]:
        row["v"] = 1  # steps 30..49 again
    rank.ckpt(60, t).close(t)
    run.agent(1, 0).end(t)
    run.paid(0, t)
    assert accounts(run) == {"useful.model_math": 600 * S, account: 200 * S}


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


def test_provision_teardown_and_idle_tail() -> None:
    run = WrittenRun()
    rank = run.rank(1, 102 * S)
    rank.span("startup.import", 103 * S, 105 * S)
    t = rank.steps(0, 5, 105 * S, S)
    rank.ckpt(5, t).close(t)
    run.agent(1, 100 * S).end(t + S)
    run.billed(0, 200 * S)
    assert accounts(run) == {
        "stability.provision": 100 * S,
        "stability.process_start": 2 * S,
        "unattributed.residual": S,
        "stability.import": 2 * S,
        "useful.model_math": 5 * S,
        "stability.teardown": S,
        "decision.idle_reservation": 89 * S,
    }


def test_launcher_spans_hold_for_every_device_until_its_rank_speaks() -> None:
    run = WrittenRun()
    agent = run.agent(1, 0, world=2)
    agent.span("startup.data_seek", S, 4 * S)
    for r in (0, 1):
        rank = run.rank(1, 5 * S, r, world=2)
        t = rank.steps(0, 5, 5 * S, S)
        rank.ckpt(5, t).close(t)
        run.paid(0, t, r)
    agent.end(t)
    assert accounts(run) == {
        "stability.data_seek": 6 * S,
        "stability.process_start": 4 * S,
        "useful.model_math": 10 * S,
    }


def test_kill_of_one_rank_leaves_the_other_waiting_until_the_launcher_sees_it() -> None:
    run = WrittenRun()
    for r, died in ((0, 58), (1, 53)):
        rank = run.rank(1, 0, r, world=2)
        rank.steps(0, 5, 0, 10 * S)
        rank.ckpt(5, 50 * S).beat(died * S, 5)
        run.paid(0, 60 * S, r)
    run.agent(1, 0, world=2).end(60 * S, exit=70, signal=9)
    assert accounts(run) == {
        "useful.model_math": 100 * S,
        "stability.lost_work": (8 + 3) * S,
        "stability.detect": (2 + 7) * S,
    }


def test_spare_devices_and_ranks_without_a_journal_are_told_apart() -> None:
    def world(size: int) -> dict[str, int]:
        run = WrittenRun()
        end = one_attempt(run)
        run.paid(0, end, device=1)
        for file in run.files:
            file.rows[0]["world"] = size
        return accounts(run)

    assert world(1) == {"useful.model_math": 50 * S, "stability.spare": 50 * S}
    assert world(2) == {"useful.model_math": 50 * S, "unattributed.no_telemetry": 50 * S}


def test_lost_records_are_torn_time_and_not_useful() -> None:
    run = WrittenRun()
    rank = run.rank(1, 0)
    rank.steps(0, 10, 0, S)
    rank.ckpt(10, 10 * S).close(10 * S)
    del rank.rows[4:7]  # steps 3, 4, 5
    run.agent(1, 0).end(10 * S)
    run.paid(0, 10 * S)
    assert accounts(run) == {"useful.model_math": 7 * S, "unattributed.torn": 3 * S}


def test_a_cut_file_whose_rank_went_on_is_torn_from_the_cut() -> None:
    run = WrittenRun()
    rank = run.rank(1, 0)
    rank.steps(0, 10, 0, S)
    rank.beat(20 * S, 20, lost=11)
    run.agent(1, 0).end(21 * S)
    run.paid(0, 21 * S)
    assert accounts(run) == {"stability.lost_work": 10 * S, "unattributed.torn": 11 * S}


def test_warm_up_is_the_excess_over_settled_steps() -> None:
    run = WrittenRun()
    rank = run.rank(1, 0)
    rank.step(0, 0, 9 * S, forward=6 * S, backward=3 * S)
    t = 9 * S
    for s in range(1, 8):
        rank.step(s, t, t + 3 * S, forward=2 * S, backward=S)
        t += 3 * S
    rank.ckpt(8, t).close(t)
    run.agent(1, 0).end(t)
    run.paid(0, t)
    books = keep_books(run.journal())
    assert books.accounts == {"useful.model_math": 24 * S, "stability.warmup": 6 * S}
    assert books.warmups[0].settled_visit == 5


def test_math_inside_an_evaluation_is_evaluation_and_other_phases_keep_their_name() -> None:
    run = WrittenRun()
    rank = run.rank(1, 0)
    t = rank.steps(0, 5, 0, 10 * S)
    rank.span("eval", t, t + 10 * S, a={"forward": 6 * S, "data_wait": 3 * S})
    rank.ckpt(5, t).close(t + 10 * S)
    run.agent(1, 0).end(t + 10 * S)
    run.paid(0, t + 10 * S)
    assert accounts(run) == {"useful.model_math": 50 * S, "compute.eval": 7 * S, "compute.data_wait": 3 * S}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda rank: rank.span("eval", 3 * S, 2 * S), "ends before it begins"),
        (lambda rank: rank.span("eval", 3 * S, 99 * S), "outside of its attempt"),
        (lambda rank: rank.step(9, 3 * S, 4 * S), "begins before"),
        (lambda rank: rank.step(9, 50 * S, 51 * S, forward=2 * S), "exceed what is left of it by 1000000000 ns"),
        (lambda rank: rank.step(9, 50 * S, 51 * S, forward=-1), "negative"),
        (lambda rank: rank.span("eval", 45 * S, 46 * S), "exceed what is left"),
    ],
)
def test_what_cannot_be_true_is_refused_by_record_or_set_aside(spoil, message) -> None:  # type: ignore[no-untyped-def]
    run = WrittenRun()
    rank = run.rank(1, 0)
    rank.steps(0, 5, 0, 10 * S)
    rank.ckpt(10, 50 * S)
    spoil(rank)
    rank.close(60 * S)
    run.agent(1, 0).end(60 * S)
    run.paid(0, 60 * S)
    with pytest.raises(Refusal, match=message) as caught:
        keep_books(run.journal())
    assert "rank-0.jsonl record" in str(caught.value)
    books = keep_books(run.journal(), tolerant=True)
    assert len(books.refusals) == 1
    assert message in books.refusals[0]
    assert sum(books.accounts.values()) == books.paid_ns == 60 * S


def test_two_attempts_at_once_and_doubly_paid_time_are_refused() -> None:
    run = WrittenRun()
    one_attempt(run)
    run.billed(0, 60 * S).billed(50 * S, 70 * S)
    with pytest.raises(Refusal, match="overlap by 10000000000 ns"):
        keep_books(run.journal())

    run = WrittenRun()
    one_attempt(run)
    run.rank(2, 40 * S).steps(5, 6, 40 * S, S)
    with pytest.raises(Refusal, match="at once"):
        keep_books(run.journal())


def test_without_launcher_each_process_pays_from_its_start_to_its_last_word() -> None:
    run = WrittenRun()
    for r in (0, 1):
        rank = run.rank(1, 0, r, world=2)
        rank.span("startup.import", 0, 2 * S)
        rank.steps(0, 3, 2 * S, S)
        rank.ckpt(3, 5 * S).close(5 * S)
    books = keep_books(run.journal())
    assert books.accounts == {"stability.import": 4 * S, "useful.model_math": 6 * S}
    assert {i.basis for device in books.devices.values() for i in device.intervals} == {"implied"}


def test_held_devices_are_paid_between_attempts() -> None:
    run = WrittenRun()
    end = one_attempt(run)
    run.paid(end, end + 100 * S, state="reserved")
    second = run.rank(2, end + 100 * S)
    second.restore(5, end + 100 * S)
    t = second.steps(5, 6, end + 100 * S, 10 * S)
    second.ckpt(6, t).close(t)
    run.agent(2, end + 100 * S).end(t)
    run.paid(end + 100 * S, t)
    assert accounts(run) == {"useful.model_math": 60 * S, "decision.idle_reservation": 100 * S}


def test_two_hosts_with_clocks_apart_are_one_run() -> None:
    run = WrittenRun()
    run.boots = {"far": "ffffffff-7e2a-4c58-9d3c-0123456789ab"}
    for host, rank in (("h", 0), ("far", 1)):
        run.wall_error = 7 * S if host == "far" else 0
        run.shift = 1_000_000 * S if host == "far" else 0
        file = run.rank(1, 0, rank, world=2, host=host)
        t = file.steps(0, 5, 0, 10 * S)
        if host == "far":
            file.ckpt(5, t)  # its clock is 7 s ahead; only it saw the commit
        file.close(t)
        run.agent(1, 0, world=2, host=host).end(t + S)
        run.paid(0, t + S, rank, host=host)
    assert accounts(run) == {"useful.model_math": 100 * S, "stability.teardown": 2 * S}


def test_a_commit_from_a_host_whose_clock_is_behind_still_holds_its_steps() -> None:
    run = WrittenRun()
    run.boots = {"far": "ffffffff-7e2a-4c58-9d3c-0123456789ab"}
    for host, rank in (("h", 0), ("far", 1)):
        run.wall_error = -30 * S if host == "far" else 0
        file = run.rank(1, 0, rank, world=2, host=host)
        t = file.steps(0, 5, 0, 10 * S)
        if host == "far":
            file.ckpt(5, t)
        file.close(t)
        run.agent(1, 0, world=2, host=host).end(t)
        run.paid(0, t, rank, host=host)
    assert accounts(run) == {"useful.model_math": 100 * S}


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


def test_first_step_under_way_is_lost_and_not_unattributed() -> None:
    run = WrittenRun()
    rank = run.rank(1, 0)
    rank.span("startup.model_init", 0, 2 * S).beat(5 * S)
    run.agent(1, 0).end(6 * S, exit=70, signal=9)
    run.paid(0, 6 * S)
    assert accounts(run) == {"stability.model_init": 2 * S, "stability.lost_work": 3 * S, "stability.detect": S}


def test_two_ranks_on_one_device_are_refused() -> None:
    run = WrittenRun()
    for rank in (0, 1):
        run.rank(1, 0, rank, world=2).step(0, 0, S).rows[0]["device"] = "cuda:0"
    with pytest.raises(Refusal, match="is on h/cuda:0, and so is"):
        keep_books(run.journal())


def test_records_of_other_shapes_are_damage_and_not_a_crash() -> None:
    run = WrittenRun()
    rank = run.rank(1, 0)
    rank.steps(0, 5, 0, 10 * S)
    rank.put("restore", t=50 * S).put("ckpt", t=50 * S, s="five", id="x", ph="start").put("span", id=9, t0=S)
    rank.ckpt(5, 50 * S).close(50 * S)
    run.agent(1, 0).end(50 * S)
    run.paid(0, 50 * S).paid_rows.append({"k": "paid", "dev": "cpu:7"})
    books = keep_books(run.journal(), tolerant=True)
    assert books.accounts == {"useful.model_math": 50 * S}
    assert "3 damaged lines" in books.notes[0]
    assert "without t0_wall, t1_wall" in books.refusals[0]


def test_a_live_run_is_paid_until_it_is_read_even_if_its_ranks_hang() -> None:
    run = WrittenRun(live=True)
    rank = run.rank(1, 0)
    rank.steps(0, 5, 0, 10 * S)
    rank.ckpt(5, 50 * S).beat(52 * S, 5)
    run.agent(1, 0)
    run.paid(0, None)
    journal = run.journal()
    journal.read_at = (BOOT, 600 * S)
    books = keep_books(journal)
    assert books.accounts == {"useful.model_math": 50 * S, "unattributed.residual": 550 * S}
    journal.live = False
    assert keep_books(journal).paid_ns == 52 * S


def test_a_killed_launcher_ends_its_paid_time_before_the_next_one_opens_it_again() -> None:
    run = WrittenRun()
    first = run.rank(1, 0)
    first.steps(0, 5, 0, 10 * S)
    first.ckpt(5, 50 * S).beat(52 * S, 5)
    run.agent(1, 0)
    second = run.rank(2, 60 * S)
    second.restore(5, 60 * S)
    second.steps(5, 6, 60 * S, 10 * S)
    second.ckpt(6, 70 * S).close(70 * S)
    run.agent(2, 60 * S).end(70 * S)
    run.paid(0, None).paid(60 * S, 70 * S)
    books = keep_books(run.journal())
    assert books.accounts == {"useful.model_math": 60 * S, "stability.lost_work": 2 * S}
    assert [i.t1_ns - i.t0_ns for i in books.devices["h/cpu:0"].intervals] == [52 * S, 10 * S]


def test_a_bill_is_laid_on_the_clock_as_it_was_at_the_first_anchor() -> None:
    run = WrittenRun()
    first = run.rank(1, 0)
    first.steps(0, 5, 0, 10 * S)
    first.ckpt(5, 50 * S).close(50 * S)
    run.agent(1, 0).end(50 * S, exit=75)
    run.wall_error = 3600 * S  # somebody set the clock
    second = run.rank(2, 60 * S)
    second.restore(5, 60 * S)
    t = second.steps(5, 10, 60 * S, 10 * S)
    second.ckpt(10, t).close(t)
    run.agent(2, 60 * S).end(t)
    run.billed(0, t)
    assert accounts(run) == {"useful.model_math": 100 * S, "stability.reschedule": 10 * S}
