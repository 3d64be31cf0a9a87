"""Stories whose truth is known, because the test made them up: the books must tell it to the nanosecond.

Letters are those of research/ledger.md 1.1, where the leading tool of the field is shown to get most of them wrong.
"""

import pytest
from written import WALL, S, WrittenRun, accounts, one_attempt

from argosy.ledger.books import keep_books


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
