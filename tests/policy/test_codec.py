"""Every policy, view, event and action survives JSON."""

import json
from dataclasses import fields
from fractions import Fraction
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.errors import Exit, UsageError
from argosy.policy.codec import TYPES, from_json, to_json

numbers = st.floats(allow_nan=False, allow_infinity=False)
LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**60), 2**60),
    float: numbers,
    bool: st.booleans(),
    str: st.text(),
    Fraction: st.fractions(),
    Exit: st.sampled_from(Exit),
    type(None): st.none(),
}


def strategy(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type."""
    if hint in LEAVES:
        return LEAVES[hint]
    parts = get_args(hint)
    if get_origin(hint) is tuple:
        return st.lists(strategy(parts[0]), max_size=4).map(tuple)
    if get_origin(hint) is dict:
        return st.dictionaries(strategy(parts[0]), strategy(parts[1]), max_size=3)
    if get_origin(hint) is Literal:
        return st.sampled_from(parts)
    return st.one_of([strategy(part) for part in parts])


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=30)
@given(st.data())
def test_round_trip(name: str, data: st.DataObject) -> None:
    kind = TYPES[name]
    hints = get_type_hints(kind)
    value = kind(**{field.name: data.draw(strategy(hints[field.name])) for field in fields(kind)})
    again = from_json(to_json(value))
    assert again == value
    assert [type(getattr(again, f.name)) for f in fields(kind)] == [type(getattr(value, f.name)) for f in fields(kind)]
    assert json.loads(to_json(value))["type"] == name


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"type": "Nonsense"}', '{"type": "Save"}', '{"type": "Save", "tier": "storage", "x": 1}']
)
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="policy: "):
        from_json(text)
