"""Waiting told from moving bytes, and who made others wait: against stories whose truth is in the test."""

import random

import pytest
from written import S, WrittenFile, WrittenRun

from argosy.journal.collectives import Call, pack
from argosy.journal.line import pack_line
from argosy.journal.phys import INDEX
from argosy.ledger.alignment import align
from argosy.ledger.books import Books, keep_books

MS = 1_000_000
STEP = 100 * MS


def told(file: WrittenFile, step: int, line: list[tuple[str, int, int]], made: list[Call]) -> None:
    """What a sampled step has besides its record."""
    shift = file.run.shift
    order = [(INDEX.get(name, len(INDEX)), t0 + shift, t1 + shift) for name, t0, t1 in line]
    for call in made:
        call.issued_ns, call.waited_ns, call.done_ns = (
            t + shift for t in (call.issued_ns, call.waited_ns, call.done_ns)
        )
    file.put("line", **pack_line(step, order)).put("colls", **pack(step, made))


def two_ranks(
    late_ms: list[int],
    *,
    sampled: bool,
    doing: str = "forward",
    far: int = 0,
) -> WrittenRun:
    """Two ranks meet once a step; rank 1 comes `late_ms` of the step after rank 0, which comes after 40 ms.

    Bytes then move for 10 ms. `far` moves the second host's clocks.
    """
    run = WrittenRun()
    run.boots = {"far": "ffffffff-7e2a-4c58-9d3c-0123456789ab"}
    for rank, host in enumerate(("h", "far")):
        run.wall_error, run.shift = (far, 3 * far) if host == "far" else (0, 0)
        file = run.rank(1, 0, rank, world=2, host=host)
        file.rows[0]["layout"] = {"dp": 2}
        for step, late in enumerate(late_ms):
            t = step * STEP
            mine = (40 + late * rank) * MS
            meet, done = (40 + late) * MS, (50 + late) * MS
            phys = {"forward": 40 * MS, "comm__exposed__dp": done - mine, "optimizer": STEP - done}
            if late and rank:
                phys[doing] = phys.get(doing, 0) + late * MS
            file.step(step, t, t + STEP, **phys)
            if sampled:
                line = [("forward", t, t + 40 * MS), (doing, t + 40 * MS, t + mine)]
                line += [("comm.exposed.dp", t + mine, t + done), ("optimizer", t + done, t + STEP)]
                call = Call(step, "dp", "all_reduce", "g", step, 8, t + mine, t + mine, t + done)
                told(file, step, [part for part in line if part[1] < part[2]], [call])
            assert meet <= done
        file.ckpt(len(late_ms), len(late_ms) * STEP).close(len(late_ms) * STEP)
        run.agent(1, 0, world=2, host=host).end(len(late_ms) * STEP)
        run.paid(0, len(late_ms) * STEP, rank, host=host)
    return run


def blamed(books: Books) -> dict[tuple[int | None, str], int]:
    return {(cause.rank, cause.doing): cause.ns for cause in books.causes}


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("doing", ["gc", "data_wait", "forward"])
def test_waiting_transfer_and_cause_are_told_to_the_nanosecond(sampled: bool, doing: str) -> None:
    late = [0, 0, 30, 0, 20, 0, 0, 25]
    books = keep_books(two_ranks(late, sampled=sampled, doing=doing).journal())
    assert books.accounts["comm.wait_slow_rank"] == 75 * MS
    assert books.accounts["comm.transfer.dp"] == 2 * 8 * 10 * MS
    assert "comm.exposed.dp" not in books.accounts
    assert books.devices["far/cpu:1"].accounts.get("comm.wait_slow_rank", 0) == 0
    assert blamed(books) == {(1, doing): 75 * MS}
    assert books.estimated.get("comm.wait_slow_rank", 0) == (0 if sampled else 75 * MS)


@pytest.mark.parametrize("far", [40 * S, -40 * S])
def test_clocks_of_hosts_that_are_apart_change_no_wait(far: int) -> None:
    late = [0, 0, 30, 0, 20]
    here = keep_books(two_ranks(late, sampled=True, doing="gc").journal())
    there = keep_books(two_ranks(late, sampled=True, doing="gc", far=far).journal())
    # what no clock can tell is how bytes moved both ways: half of the 10 ms, and only between hosts
    assert abs(there.accounts["comm.wait_slow_rank"] - here.accounts["comm.wait_slow_rank"]) <= 5 * 5 * MS
    assert max(blamed(there), key=lambda cause: blamed(there)[cause]) == (1, "gc")


def test_a_broadcast_waits_for_its_root_alone() -> None:
    """Rank 2 comes long after the others and keeps nobody waiting; rank 1 comes before the root."""
    run = WrittenRun()
    for rank, (issued, done) in enumerate(((30, 32), (20, 35), (60, 64))):
        file = run.rank(1, 0, rank, world=3)
        file.rows[0]["layout"] = {"dp": 3}
        for step in range(5):
            t = step * STEP
            file.step(step, t, t + STEP, forward=issued * MS, comm__exposed__dp=(done - issued) * MS)
            stamps = (t + issued * MS, t + issued * MS, t + done * MS)
            told(
                file, step, [("forward", t, t + STEP)], [Call(step, "dp", "broadcast", "g", step, 8, *stamps, source=0)]
            )
        file.ckpt(5, 5 * STEP).close(5 * STEP)
        run.paid(0, 5 * STEP, rank)
    run.agent(1, 0, world=3).end(5 * STEP)
    books = keep_books(run.journal())
    waited = [device.accounts.get("comm.wait_slow_rank", 0) for device in books.devices.values()]
    assert waited == [0, 50 * MS, 0]
    assert [device.accounts["comm.transfer.dp"] for device in books.devices.values()] == [10 * MS, 25 * MS, 20 * MS]


def test_without_the_other_ranks_journal_nobody_knows_and_nothing_is_guessed() -> None:
    run = two_ranks([0, 30, 0, 20, 0], sampled=True)
    run.files = [file for file in run.files if file.rank != 1]
    books = keep_books(run.journal())
    assert books.accounts["comm.exposed.dp"] == (50 + 50) * MS
    assert "comm.wait_slow_rank" not in books.accounts
    assert books.causes == []


def test_a_culprit_that_waited_itself_is_followed_to_its_own() -> None:
    """Rank 2 is late for rank 1, which is therefore late for rank 0."""
    run = WrittenRun()
    for rank in range(3):
        file = run.rank(1, 0, rank, world=3)
        file.rows[0]["layout"] = {"dp": 3}
        for step in range(5):
            t = step * STEP
            # 1 and 2 meet at 60 in group a (bytes until 62); 0 and 1 at 62 in group b until 65
            first = Call(step, "control", "all_reduce", "a", step, 8, t + (10, 20, 60)[rank] * MS)
            first.waited_ns, first.done_ns = first.issued_ns, t + 62 * MS
            second = Call(step, "control", "send" if rank else "recv", "b", step, 8, t + 62 * MS, source=1, target=0)
            second.waited_ns = second.issued_ns = t + (10 if rank == 0 else 62) * MS
            second.done_ns = t + 65 * MS
            begin = (10, 20, 60)[rank] * MS
            end = (65, 65, 62)[rank] * MS
            file.step(step, t, t + STEP, forward=begin, comm__control=end - begin, optimizer=STEP - end)
            line = [("forward", t, t + begin), ("comm.control", t + begin, t + end), ("optimizer", t + end, t + STEP)]
            made = [second] if rank == 0 else [first, second] if rank == 1 else [first]
            told(file, step, line, made)
        file.ckpt(5, 5 * STEP).close(5 * STEP)
        run.paid(0, 5 * STEP, rank)
    run.agent(1, 0, world=3).end(5 * STEP)
    for file in run.files[:3]:
        assert file.rank is not None
    books = keep_books(run.journal())
    chain = blamed(books)
    assert max(chain, key=lambda cause: chain[cause]) == (2, "forward")
    assert sum(chain.values()) == books.accounts["comm.wait_slow_rank"]


def test_a_pipeline_stage_that_waits_is_bubble_and_nobodys_fault() -> None:
    run = WrittenRun()
    for rank in (0, 1):
        file = run.rank(1, 0, rank, world=2)
        file.rows[0]["layout"] = {"pp": 2}
        for step in range(5):
            t, wait = step * STEP, 30 * MS * rank
            file.step(step, t, t + STEP, forward=STEP - wait - 2 * MS, comm__exposed__pp=wait + 2 * MS)
        file.ckpt(5, 5 * STEP).close(5 * STEP)
        run.paid(0, 5 * STEP, rank)
    run.agent(1, 0, world=2).end(5 * STEP)
    books = keep_books(run.journal())
    assert books.accounts["comm.bubble"] == 150 * MS
    assert books.accounts["comm.transfer.pp"] == 20 * MS
    assert books.causes == []


def test_a_save_that_one_rank_is_slow_in_is_the_others_wait_for_it() -> None:
    run = WrittenRun()
    for rank in (0, 1):
        file = run.rank(1, 0, rank, world=2)
        t = file.steps(0, 5, 0, STEP)
        file.span("ckpt_block", t, t + STEP, a={"comm.control": (90 if rank == 0 else 10) * MS})
        file.ckpt(5, t + STEP).close(t + STEP)
        run.paid(0, t + STEP, rank)
    run.agent(1, 0, world=2).end(t + STEP)
    books = keep_books(run.journal())
    assert books.accounts["comm.wait_slow_rank"] == 80 * MS
    assert books.accounts["comm.control"] == 20 * MS
    assert blamed(books) == {(1, "ckpt_block"): 80 * MS}


def test_offsets_are_within_their_error_of_the_truth_over_a_chain_of_hosts() -> None:
    dice = random.Random(7)
    truth = {"a": 0, "b": 40 * S, "c": -40 * S + 12_345}
    instances = []
    for pair in (("a", "b"), ("b", "c")) * 50:
        issued = {clock: dice.randint(0, 3 * MS) for clock in pair}
        instances.append(
            [
                (clock, Call(0, "dp", "all_reduce", "g", 0, 8, truth[clock] + issued[clock], 0, done))
                for clock in pair
                for done in [truth[clock] + max(issued.values()) + dice.randint(50_000, 500_000)]
            ]
        )
    found = align(instances, "a")
    for clock, ahead in truth.items():
        assert abs(found[clock].ns + ahead) <= found[clock].error_ns <= 2 * MS


@pytest.mark.parametrize(
    "row",
    [
        {"k": "colls", "q": 90, "s": 0},
        {"k": "colls", "q": 90, "s": 0, "t": 1, "c": [["dp"]], "i": [0], "n": [0], "d": [0], "x": [0], "e": [0]},
        {"k": "colls", "q": 90, "s": 0, "t": "x", "c": 3, "i": [0], "n": [0], "d": [0], "x": [0], "e": [0]},
        {"k": "line", "q": 90, "s": 0, "t": 5, "p": [1, 2], "d": [1]},
        {"k": "line", "q": 90, "s": None, "t": None, "p": None, "d": None},
        {"k": "device", "q": 90, "s": 0, "t": 5, "m": [["forward", "launch_gap", -5]]},
        {"k": "device", "q": 90, "s": 0, "t": 5, "m": 7},
    ],
)
def test_damaged_samples_leave_the_books_as_they_are_without_them(row: dict[str, object]) -> None:
    run = two_ranks([0, 30, 0, 20, 0], sampled=False)
    expected = keep_books(run.journal()).crosstab
    run.files[0].rows.append(row)
    assert keep_books(run.journal()).crosstab == expected
