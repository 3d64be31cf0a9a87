"""Declared paid time: never overlapping, whole after a kill, priced once."""

from fractions import Fraction
from pathlib import Path

import pytest

from argosy.errors import StoppedError
from argosy.journal.clock import mono_ns
from argosy.journal.reader import read_rows
from argosy.launch.append import append_records
from argosy.launch.paid import close_paid, declare_price, open_paid
from argosy.recipe.load import load_recipe
from argosy.recipe.schema import BudgetTable
from argosy.registry.run_folder import RunFolder

DEVICES = ["cpu:0", "cpu:1"]


@pytest.fixture
def run(tmp_path, recipe_file) -> RunFolder:
    return RunFolder.create(tmp_path / "run", load_recipe(recipe_file))


def intervals(run: RunFolder, device: str = "cpu:0") -> list[tuple[str, int, int | None]]:
    """(state, open, close) of one device; close None while it is open."""
    found: list[tuple[str, int, int | None]] = []
    for row in read_rows(run.paid_file):
        if row["dev"] != device:
            continue
        if row["ph"] == "open":
            found.append((row["state"], row["t"], None))
        else:
            state, begin, end = found[-1]
            assert end is None
            found[-1] = (state, begin, row["t"])
    return found


def test_from_the_given_start_to_the_close(run):
    start = mono_ns() - 300_000_000
    assert open_paid(run, DEVICES, start, hold=False) == start
    end = mono_ns()
    close_paid(run, DEVICES, end)
    assert [intervals(run, device) for device in DEVICES] == [[("allocated", start, end)]] * 2


def test_a_launcher_that_follows_within_a_clock_tick_starts_where_the_last_one_ended(run):
    open_paid(run, DEVICES, mono_ns(), hold=False)
    early = mono_ns()  # the kernel rounds a process's start down
    close_paid(run, DEVICES, mono_ns())
    open_paid(run, DEVICES, early, hold=False)
    first, second = intervals(run)
    assert second[1] == first[2]


def test_after_a_killed_launcher_time_starts_anew(run):
    open_paid(run, DEVICES, mono_ns() - 1_000_000_000, hold=False)
    now = mono_ns()
    assert open_paid(run, DEVICES, now - 500_000_000, hold=False) >= now


def test_a_held_device_is_paid_between_attempts_as_reserved(run):
    open_paid(run, DEVICES, mono_ns(), hold=True)
    close_paid(run, DEVICES, mono_ns())
    open_paid(run, DEVICES, mono_ns(), hold=True)
    (_, _, first_end), reserved, (_, second_start, _) = intervals(run)
    assert reserved == ("reserved", first_end, second_start)


def test_a_reservation_goes_on_over_a_reboot(run):
    open_paid(run, DEVICES, mono_ns(), hold=True)
    close_paid(run, DEVICES, mono_ns())
    text = run.paid_file.read_text()
    boot = read_rows(run.paid_file)[0]["boot_id"]
    run.paid_file.write_text(text.replace(boot, "an earlier boot"))
    open_paid(run, DEVICES, mono_ns(), hold=True)
    closed = [row for row in read_rows(run.paid_file) if row["boot_id"] == "an earlier boot"][-1]
    reserved = next(row for row in read_rows(run.paid_file) if row["state"] == "reserved")
    assert abs(reserved["wall"] - closed["wall"]) < 1_000_000


def test_a_record_after_a_torn_one_stays_whole(run):
    open_paid(run, DEVICES, mono_ns(), hold=False)
    whole = run.paid_file.read_bytes()
    run.paid_file.write_bytes(whole[:-20])  # killed while it wrote cpu:1's line
    append_records(run.paid_file, [{"k": "paid", "dev": "cpu:7"}])
    assert [row["dev"] for row in read_rows(run.paid_file)] == ["cpu:0", "cpu:7"]


def test_a_place_that_cannot_be_written_is_named():
    with pytest.raises(StoppedError, match=r"^/dev/full: cannot be written: No space left on device"):
        append_records(Path("/dev/full"), [{"k": "paid"}])


def test_the_price_is_written_when_it_changes(run):
    first = BudgetTable(price_per_device_hour=Fraction("2.49"))
    declare_price(run, first)
    declare_price(run, first)
    declare_price(run, BudgetTable(price_per_device_hour=Fraction(3)))
    rows = read_rows(run.price_file)
    assert [(Fraction(row["amount"]), row["currency"]) for row in rows] == [(Fraction("2.49"), "USD"), (3, "USD")]
    assert rows[0]["from_wall"] is None
    assert rows[1]["from_wall"] > run.info.created_wall_ns
