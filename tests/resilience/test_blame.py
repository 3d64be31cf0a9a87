"""Who was first, whatever the order and the clocks say."""

import signal

import pytest

from argosy.resilience.blame import End, consequences, first_cause
from argosy.resilience.last_words import LastWords, last_words_file, read_last_words, write_last_words

PEER = "RuntimeError: [/gloo/transport/tcp/pair.cc:547] Connection closed by peer"


def words(rank: int, error: str, *, consequence: bool = False, at_ns: int = 0, **more: object) -> LastWords:
    return LastWords(rank, error, "trace", consequence, at_ns, **more)  # type: ignore[arg-type]


def ended(rank: int, code: int | None = 1, number: int | None = None, **more: object) -> End:
    return End(rank, code, number, "ended", **more)  # type: ignore[arg-type]


def test_a_local_error_beats_an_earlier_complaint_about_a_connection() -> None:
    ends = [
        ended(0, words=words(0, PEER, consequence=True, at_ns=1)),
        ended(2, words=words(2, "ValueError: bad", at_ns=2_000_000_000)),
        ended(1, words=words(1, PEER, consequence=True, at_ns=3)),
    ]
    cause = first_cause(ends)
    assert cause is not None
    assert (cause.kind, cause.rank, cause.certain) == ("exception", 2, True)
    assert [text[:6] for text in consequences(ends, cause)] == ["rank 0", "rank 1"]


def test_a_complaint_alone_is_not_certain() -> None:
    cause = first_cause([ended(0, words=words(0, PEER, consequence=True))])
    assert cause is not None
    assert not cause.certain


@pytest.mark.parametrize(
    ("number", "memory", "kind"),
    [
        (signal.SIGKILL, False, "killed"),
        (signal.SIGKILL, True, "out_of_memory"),
        (signal.SIGSEGV, False, "native_crash"),
        (signal.SIGBUS, False, "native_crash"),
        (signal.SIGABRT, False, "native_crash"),
        (signal.SIGTERM, False, "killed"),
    ],
)
def test_signals_are_decoded(number: int, memory: bool, kind: str) -> None:
    cause = first_cause([ended(3, None, number, memory_kill=memory)])
    assert cause is not None
    assert (cause.kind, cause.rank) == (kind, 3)


def test_leaving_with_code_0_before_the_end_is_a_failure() -> None:
    assert first_cause([ended(0, 0), ended(1, 75)]) is None
    cause = first_cause([ended(0, 0, decided=False)])
    assert cause is not None
    assert cause.kind == "left_early"


def test_an_error_may_know_better_who_is_to_blame() -> None:
    said = words(0, "CorruptedState: …", blames=2, kind="corrupted_state", good_until=40)
    cause = first_cause([ended(0, words=said)])
    assert cause is not None
    assert (cause.kind, cause.rank, cause.detected_by, cause.good_until) == ("corrupted_state", 2, "digests", 40)


@pytest.mark.parametrize(
    ("error", "consequence"),
    [
        (ValueError("Connection closed by peer"), False),
        (RuntimeError("[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:3"), True),
        (RuntimeError("Timed out waiting 600000ms for recv operation to complete"), True),
        (ConnectionResetError("gone"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_last_words_say_whether_somebody_else_went_first(tmp_path, error: Exception, consequence: bool) -> None:
    try:
        raise error
    except Exception as raised:
        write_last_words(last_words_file(tmp_path, 1), 1, raised)
    read = read_last_words(last_words_file(tmp_path, 1))
    assert read is not None
    assert read.consequence is consequence
    assert "Traceback" in read.trace


def test_half_written_last_words_are_none(tmp_path) -> None:
    last_words_file(tmp_path, 0).write_text('{"rank": 0, "err')
    assert read_last_words(last_words_file(tmp_path, 0)) is None
