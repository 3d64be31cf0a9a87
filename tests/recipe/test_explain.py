"""`explain` tells from the schema what each field means."""

import pytest

from argosy.errors import UsageError
from argosy.recipe.explain import find, sentence
from argosy.recipe.knobs import knobs


def test_one_field() -> None:
    (knob,) = find("schedule.warmup_tokens")
    text = sentence(knob)
    assert "schedule.warmup_tokens: linear warm-up from 0 (tokens)" in text
    assert "whole number ≥ 0" in text
    assert "default  0" in text
    assert "another run" in text


def test_a_table_and_everything() -> None:
    assert [knob.key for knob in find("schedule")] == [key for key in knobs() if key.startswith("schedule.")]
    assert len(find(None)) == len(knobs())
    for knob in find(None):
        assert knob.key in sentence(knob)


def test_a_typo_is_led_to_its_field() -> None:
    with pytest.raises(UsageError, match=r"did you mean optimizer\.learning_rate\?"):
        find("optimizer.learn_rate")
