"""Money: exact, rounded once, unknown is not free."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.errors import InputError
from argosy.ledger.money import PriceList, cost, largest_remainder, money_text, shares

HOUR_NS = 3600 * 10**9
PRICES = st.builds(Fraction, st.integers(0, 10**9), st.integers(1, 10**7))
DURATIONS = st.integers(min_value=0, max_value=10**18)


def row(amount="2.49", dev="*", from_wall=None, per="hour", currency="USD"):
    return {"k": "price", "dev": dev, "from_wall": from_wall, "amount": amount, "per": per, "currency": currency}


@settings(max_examples=1000)
@given(st.lists(st.tuples(PRICES, DURATIONS), min_size=1, max_size=12))
def test_parts_sum_to_the_total_and_the_total_is_the_exact_sum_rounded_once(intervals):
    usage = {n: dict(intervals[n::4]) for n in range(4)}
    parts, total = cost(usage)
    exact = {key: sum(price * ns for price, ns in at.items()) * 10**9 for key, at in usage.items()}
    assert sum(parts.values()) == total == round(sum(exact.values()))
    assert all(abs(parts[key] - exact[key]) < 1 for key in usage)


def test_flat_price_is_seconds_times_price():
    price = PriceList.from_records([row("3.60")]).per_ns("cpu:0", 0)
    parts, total = cost({"useful": {price: 1_500 * 10**9}, "idle": {price: 500 * 10**9}})
    assert (money_text(parts["useful"]), money_text(parts["idle"]), money_text(total)) == ("1.5", "0.5", "2")


def test_thirds_are_shared_out_without_losing_a_nano():
    third = {"a": {Fraction(1, 3 * 10**9): 1}, "b": {Fraction(1, 3 * 10**9): 1}, "c": {Fraction(1, 3 * 10**9): 1}}
    assert cost(third) == ({"a": 1, "b": 0, "c": 0}, 1)


def test_price_changes_at_its_wall_time_and_a_named_device_hides_the_general_rows():
    prices = PriceList.from_records([row("36", from_wall=100), row("72", from_wall=200), row("7.2", dev="cuda:1")])
    per_hour = [prices.per_ns("cuda:0", t) and prices.per_ns("cuda:0", t) * HOUR_NS for t in (99, 100, 199, 200)]
    assert per_hour == [None, 36, 36, 72]
    assert prices.per_ns("cuda:1", 150) * HOUR_NS == Fraction("7.2")
    assert prices.boundaries() == [100, 200]


def test_an_interval_is_split_where_the_price_changes():
    prices = PriceList.from_records([row("36", from_wall=100), row("72", from_wall=200)])
    assert prices.split("x", 90, 250) == {None: 10, prices.per_ns("x", 100): 100, prices.per_ns("x", 200): 50}
    assert prices.split("x", 100, 200) == {prices.per_ns("x", 100): 100}


def test_later_row_replaces_an_earlier_one_with_the_same_start():
    assert PriceList.from_records([row("1"), row("2")]).per_ns("x", 0) * HOUR_NS == 2


def test_unknown_is_none_and_free_is_zero():
    assert cost({"a": {None: 5}, "b": {Fraction(1): 1}}) == ({"a": None, "b": 10**9}, None)
    assert cost({"a": {None: 0, Fraction(0): 5}}) == ({"a": 0}, 0)
    assert money_text(None) is None
    assert money_text(0) == "0"


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([row(), row(currency="EUR")], ["USD", "EUR", "price.jsonl:2"]),
        ([row(amount="cheap")], ["price.jsonl:1", "amount"]),
        ([row(per="fortnight")], ["fortnight", "hour"]),
        ([row(amount="-1")], ["0 or more"]),
        ([{"k": "price"}], ["amount"]),
    ],
)
def test_bad_prices_are_refused_by_name(rows, names):
    with pytest.raises(InputError) as refusal:
        PriceList.from_records(rows)
    assert all(name in str(refusal.value) for name in names)


@settings(max_examples=300)
@given(st.dictionaries(st.integers(), st.integers(0, 10**15), min_size=1, max_size=30))
def test_printed_shares_sum_to_one_hundred(parts):
    assert sum(shares(parts).values()) == (100 if any(parts.values()) else 0)


def test_largest_remainder_prefers_the_greater_remainder():
    assert largest_remainder({"a": Fraction("1.2"), "b": Fraction("1.7"), "c": Fraction("1.1")}) == {
        "a": 1,
        "b": 2,
        "c": 1,
    }


@pytest.mark.parametrize(("nanos", "text"), [(1, "0.000000001"), (-1_500_000_000, "-1.5"), (12 * 10**9, "12")])
def test_money_text(nanos, text):
    assert money_text(nanos) == text
