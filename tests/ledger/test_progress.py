"""The live line: hand-made journals that grow, and every figure worked out by hand."""

import json
from dataclasses import replace

import pytest
from growing_run import GrowingRun, S, committed, event, span, step

from argosy.ledger.progress import Progress, ProgressState, format_line
from argosy.ledger.utilisation import flops_per_token


def follow(written, attempt=1):
    return Progress(written.path, attempt, clock=lambda: round(written.now_s * S))


@pytest.fixture
def live(tmp_path):
    written = GrowingRun(tmp_path / "run")
    written.begin()
    return written


@pytest.fixture
def stepping(live):
    """Two seconds of import, two steps of one second on both ranks; now is 5 s."""
    live.all(
        span(1, "startup.import", 0, 2),
        step(0, 2, 3, loss=6.0, forward=0.4, backward=0.4, optimizer=0.1, comm__exposed__fsdp=0.05),
        step(1, 3, 4, loss=4.0, forward=0.25, backward=0.25, data_wait=0.5),
    )
    live.now_s = 5
    return live


def test_nothing_is_known_before_the_ranks_write(live):
    for rank in (0, 1):
        live.file(rank).unlink()
    live.now_s = 3
    state = follow(live).poll()
    assert (state.step, state.total_steps, state.phase) == (0, 10, "start")
    assert (state.loss, state.tokens_per_s, state.mfu, state.useful_share, state.eta_s) == (None,) * 5
    assert (state.paid_ns, state.money) == (6 * S, "0.006")  # two devices, 3 s, 3.6 USD per hour each


def test_every_figure_of_a_stepping_run(stepping):
    state = follow(stepping).poll()
    assert (state.step, state.phase, state.loss) == (2, None, 4.0)
    assert state.tokens_per_s == pytest.approx(512)  # 1024 tokens in 2 s of windows
    assert (state.paid_ns, state.money, state.currency) == (10 * S, "0.01", "USD")
    assert state.useful_share == pytest.approx((0.9 + 0.5) / 5)
    assert state.at_risk_share == pytest.approx((0.9 + 0.5) / 5)
    assert state.at_risk_money == "0.0028"  # 28 % of the 0.01 that was paid
    assert (state.leak, state.leak_share) == ("stability.import", pytest.approx(2 / 5))
    assert state.eta_s == pytest.approx(8)
    assert state.mfu is None


def test_a_commit_takes_earlier_steps_out_of_risk(stepping):
    progress = follow(stepping)
    progress.poll()
    stepping.write(0, committed(1, 4))
    state = progress.poll()
    assert state.useful_share == pytest.approx((0.9 + 0.5) / 5)
    assert state.at_risk_share == pytest.approx(0.5 / 5)


def test_neither_a_started_nor_a_memory_checkpoint_saves_anything(stepping):
    for tier, phase in (("storage", "started"), ("memory", "committed"), ("storage", "failed")):
        stepping.write(0, committed(1, 4, tier, phase))
    assert follow(stepping).poll().at_risk_share == pytest.approx((0.9 + 0.5) / 5)


@pytest.mark.parametrize(("why", "account"), [("failure", "stability.lost_work"), ("nan", "decision.rollback")])
def test_a_restore_loses_the_visits_it_undoes_and_none_after_it(stepping, why, account):
    restore = event("restore", 4, id="x", to=0, tier="storage", why=why)
    stepping.all(restore, step(0, 4, 5, forward=1.0))
    progress = follow(stepping)
    state = progress.poll()
    assert state.step == 1
    assert state.useful_share == pytest.approx(1 / 5)
    assert progress._ranks[1].kept_ns[account] == 2 * S


def test_a_skipped_step_is_a_leak_whole(stepping):
    stepping.all(step(2, 4, 7, skipped=1, forward=2.5))
    stepping.now_s = 7
    state = follow(stepping).poll()
    assert (state.leak, state.leak_share) == ("stability.skipped_step", pytest.approx(3 / 7))


def test_an_evaluation_is_named_while_it_runs_and_not_counted_as_step_time(stepping):
    progress = follow(stepping)
    stepping.all(span(2, "eval", 4, None))
    assert progress.poll().phase == "eval"
    stepping.all(span(2, "eval", 4, 6.5, a=[round(0.5 * S)]), step(2, 4, 7.5, forward=1.0))  # a[0] is data_wait
    stepping.now_s = 10
    state = progress.poll()
    assert (state.phase, state.step) == (None, 3)
    assert state.tokens_per_s == pytest.approx(3 * 512 / 3)
    assert (state.leak, state.leak_share) == ("stability.import", pytest.approx(2 / 10))
    assert state.useful_share == pytest.approx((0.9 + 0.5 + 1.0) / 10)


def test_nested_spans_are_counted_once(stepping):
    stepping.all(span(2, "eval", 4, None), span(3, "ckpt_block", 5, None, d=1), span(3, "ckpt_block", 5, 8, d=1))
    stepping.all(span(2, "eval", 4, 9))
    stepping.now_s = 10
    progress = follow(stepping)
    state = progress.poll()
    assert (state.leak, state.leak_share) == ("stability.ckpt_block", pytest.approx(3 / 10))
    assert progress._ranks[0].kept_ns["compute.eval"] == 2 * S


def test_mfu_against_the_peak_in_the_journal(stepping):
    flops = flops_per_token(stepping.recipe)
    stepping.write(0, event("peak", 2, dtype="fp32", flops_per_s=512.0 * flops, src="measured", date="2026-08-20"))
    assert follow(stepping).poll().mfu == pytest.approx(0.5)  # two ranks, each could do all of it


def test_ranks_that_are_not_seen_are_taken_to_be_like_those_that_are(stepping):
    stepping.file(1).unlink()
    state = follow(stepping).poll()
    assert state.paid_ns == 10 * S
    assert state.useful_share == pytest.approx((0.9 + 0.5) / 5)


def test_half_a_line_waits_and_a_broken_one_is_passed_over(stepping):
    progress = follow(stepping)
    line = json.dumps(step(2, 4, 5, forward=0.5))
    with stepping.file(0).open("a") as file:
        file.write('{"k": "step", "q":\n' + line[:40])
        file.flush()
        assert progress.poll().step == 2
        file.write(line[40:] + "\n")
        file.flush()
        assert progress.poll().step == 3
        assert progress.poll().step == 3


def test_earlier_attempts_count_with_what_they_lost(stepping):
    stepping.write(0, committed(1, 4))
    stepping.end(5, exit=70, signal=9)
    stepping.begin(10)
    stepping.all(span(1, "startup.import", 10, 11), step(1, 11, 13, forward=1.5))
    stepping.now_s = 15
    state = follow(stepping, attempt=2).poll()
    assert (state.step, state.paid_ns, state.money) == (2, 20 * S, "0.02")  # 5 s unpaid between them
    assert state.useful_share == pytest.approx((0.9 + 1.5) / 10)  # step 1 of attempt 1 is lost
    assert (state.leak, state.leak_share) == ("stability.import", pytest.approx(3 / 10))
    assert state.tokens_per_s == pytest.approx(256)  # of this attempt


STATE = ProgressState(
    step=1234,
    total_steps=5000,
    phase=None,
    loss=2.3456,
    tokens_per_s=12345.6,
    mfu=0.413,
    useful_share=0.87,
    at_risk_share=0.03,
    paid_ns=1,
    money="0.0123",
    currency="USD",
    leak="comm.exposed.fsdp",
    leak_share=0.04,
    eta_s=192,
)
WHOLE = (
    "step 1,234/5,000  loss 2.346  12,346 tok/s  MFU 41%  useful 87% (3% at risk)  "
    "0.012300 USD  leak comm.exposed.fsdp 4%  eta 3m12s"
)


def test_the_whole_line():
    assert format_line(STATE, len(WHOLE)) == WHOLE


def test_what_is_at_risk_has_a_price():
    line = format_line(replace(STATE, at_risk_money="0.0004"), 200)
    assert "useful 87% (3%, 0.000400 USD at risk)" in line


def test_a_narrow_line_drops_what_matters_least():
    assert format_line(STATE, len(WHOLE) - 1) == WHOLE.replace("  leak comm.exposed.fsdp 4%", "")
    assert format_line(STATE, 42) == "step 1,234/5,000  loss 2.346  12,346 tok/s"
    assert format_line(STATE, 41) == "step 1,234/5,000  loss 2.346"
    assert format_line(STATE, 4) == "step"


@pytest.mark.parametrize("width", range(1, 140, 7))
def test_no_line_is_wider_than_asked(width):
    assert len(format_line(STATE, width)) <= width


def test_unknown_is_left_out_and_zero_is_shown():
    bare = replace(STATE, loss=None, tokens_per_s=None, mfu=None, useful_share=None, money=None, leak=None, eta_s=None)
    assert format_line(bare, 100) == "step 1,234/5,000"
    free = replace(bare, money="0", phase="startup.import")
    assert format_line(free, 100) == "step 1,234/5,000  startup.import  0 USD"


@pytest.mark.parametrize(
    ("eta_s", "text"), [(0.4, "0s"), (59.4, "59s"), (60, "1m00s"), (3600, "1h00m"), (90061, "25h01m")]
)
def test_eta(eta_s, text):
    assert format_line(replace(STATE, eta_s=eta_s), 200).endswith(f"eta {text}")


def test_math_without_a_processor_is_not_useful_while_the_run_goes_on(tmp_path):
    run = GrowingRun(tmp_path / "run", world=1)
    run.begin(0)
    run.all(step(0, 0, 1, forward=1.0) | {"u": [400_000_000, 300_000_000]})
    state = Progress(run.path, 1, clock=lambda: S).poll()
    assert (state.useful_share, state.leak, state.leak_share) == (0.6, "compute.contention", 0.3)
