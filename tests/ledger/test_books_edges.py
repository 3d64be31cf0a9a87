"""The edges of what is paid and known: gaps, tails, hosts, missing and impossible records, warm-up."""

import pytest
from written import BOOT, S, WrittenRun, accounts, one_attempt

from argosy.ledger.books import keep_books
from argosy.ledger.refusals import Refusal


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
