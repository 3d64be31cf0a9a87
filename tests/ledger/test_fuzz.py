"""Records of any shape: reading never crashes, and tolerant books sum or say what is wrong; nothing in between."""

import copy
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_runs import RandomRun
from test_waits import two_ranks

from argosy.errors import ArgosyError
from argosy.journal.reader import read_run
from argosy.ledger.attempts import sources
from argosy.ledger.books import keep_books
from argosy.ledger.clocks import RunClock
from argosy.ledger.memory import memory_rows
from argosy.ledger.pictures import heat_map, step_picture
from argosy.ledger.trace import chrome_trace
from argosy.ledger.worth import source_tokens

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.lists(st.integers(-5, 5), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)
EXTRA = ("memory", "device", "data", "colls", "line", "decision", "incident", "later")


def stories() -> st.SearchStrategy[object]:
    sampled = st.just(two_ranks([0, 30, 0, 20, 0], sampled=True))
    return st.one_of(st.integers(0, 2**32).map(lambda seed: RandomRun(seed).run), sampled)


@given(stories(), st.data())
@settings(max_examples=120)
def test_any_value_in_any_field(tmp_path_factory: pytest.TempPathFactory, story: object, data: st.DataObject) -> None:
    run = copy.deepcopy(story)
    for _ in range(data.draw(st.integers(1, 4))):
        file = data.draw(st.sampled_from(run.files))  # type: ignore[attr-defined]
        row = data.draw(st.sampled_from(file.rows[1:] or file.rows))
        row[data.draw(st.sampled_from(sorted(row)))] = data.draw(JUNK)
        file.rows.append({"k": data.draw(st.sampled_from(EXTRA)), "q": len(file.rows) + 1, "s": data.draw(JUNK)})
    path = Path(tmp_path_factory.mktemp("run"))
    try:
        run.write(path)  # type: ignore[attr-defined]
    except (TypeError, orjson.JSONEncodeError):
        return  # not JSON at all
    journal = read_run(path)
    try:
        books = keep_books(journal, tolerant=True)
    except ArgosyError:
        return
    assert sum(books.accounts.values()) == books.paid_ns
    assert sum(cause.ns for cause in books.causes) == books.accounts.get("comm.wait_slow_rank", 0)
    ranks, _ = sources(journal, RunClock(journal), None)
    for view in (heat_map, step_picture, chrome_trace):
        view(ranks)
    memory_rows(journal.ranks)
    source_tokens(journal.ranks)


@given(st.binary(max_size=400), st.integers(0, 10**6))
@settings(max_examples=60)
def test_any_bytes_in_a_file(tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int) -> None:
    run = two_ranks([0, 30, 0, 20, 0], sampled=True)
    path = run.write(Path(tmp_path_factory.mktemp("run")))
    file = path / run.files[0].name
    content = file.read_bytes()
    at = at % (len(content) + 1)
    file.write_bytes(content[:at] + junk + content[at:])
    try:
        books = keep_books(read_run(path), tolerant=True)
    except ArgosyError:
        return
    assert sum(books.accounts.values()) == books.paid_ns
