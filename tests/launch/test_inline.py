"""Rank 0 doing the launcher's work, as under torchrun and srun."""

import pytest

from argosy.errors import Exit
from argosy.journal.reader import read_file, read_rows
from argosy.launch.devices import Slots
from argosy.launch.inline import inline_attempt
from argosy.layout.layout import Layout
from argosy.recipe.load import load_recipe
from argosy.registry.run_folder import Locked


@pytest.fixture
def arguments(recipe_file, tmp_path):
    return tmp_path / "run", load_recipe(recipe_file), Layout(fsdp=2, zero=3), Slots("cpu", 2)


def end_of(file) -> dict:
    content = read_file(file)
    assert content is not None
    return list(content.of_kind("attempt"))[-1]


def test_an_attempt_is_opened_and_closed_and_then_the_run_is_finished(arguments):
    with inline_attempt(*arguments) as inline:
        assert inline is not None
        assert (inline.attempt.number, inline.paid_before_ns) == (1, 0)
        with pytest.raises(Locked), inline_attempt(*arguments):
            pass
        inline.attempt.exit = Exit.DONE
    assert end_of(inline.attempt.journal.path)["exit"] == 0
    assert [row["ph"] for row in read_rows(arguments[0] / "paid.jsonl")] == ["open", "open", "close", "close"]
    with inline_attempt(*arguments) as again:
        assert again is None


def test_an_exception_ends_the_attempt_with_its_text(arguments):
    def fail() -> None:
        with inline_attempt(*arguments):
            raise ZeroDivisionError("in rank 0")

    with pytest.raises(ZeroDivisionError):
        fail()
    (file,) = (arguments[0] / "events" / "attempt-1").glob("agent-*.jsonl")
    assert end_of(file).items() >= {"exit": 70, "reason": "in rank 0"}.items()
    assert [row["ph"] for row in read_rows(arguments[0] / "paid.jsonl")][-1] == "close"
