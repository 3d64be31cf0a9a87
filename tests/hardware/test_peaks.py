"""The cache of measured peaks."""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import date, timedelta

import pytest

from argosy.errors import InputError
from argosy.hardware.catalogue import find
from argosy.hardware.peaks import STALE_AFTER_DAYS, Peak, PeakCache, PeakKey, cache_folder

TODAY = date(2026, 8, 20)
KEY = PeakKey(machine="2 × X", dtype="fp32", ranks=2, threads=1, torch="2.13.0+cpu")
PEAK = Peak(key=KEY, flops_per_s=1.0e11, repeats=5, measured_on="2026-08-20")


@pytest.fixture
def cache(tmp_path):
    return PeakCache(tmp_path / "deep" / "peaks.json")


def test_what_was_put_is_read_by_another_reader(cache):
    assert cache.get(KEY, TODAY) is None
    cache.put(PEAK, TODAY)
    assert PeakCache(cache.path).get(KEY, TODAY) == PEAK


@pytest.mark.parametrize(
    "change", [{"dtype": "bf16"}, {"ranks": 1}, {"threads": 2}, {"torch": "2.12"}, {"machine": "Y"}]
)
def test_a_peak_holds_only_for_its_key(cache, change):
    cache.put(PEAK, TODAY)
    assert cache.get(replace(KEY, **change), TODAY) is None


def test_a_peak_goes_stale_and_one_from_the_future_is_not_trusted(cache):
    cache.put(PEAK, TODAY)
    assert cache.get(KEY, TODAY + timedelta(days=STALE_AFTER_DAYS)) == PEAK
    assert cache.get(KEY, TODAY + timedelta(days=STALE_AFTER_DAYS + 1)) is None
    assert cache.get(KEY, TODAY - timedelta(days=1)) is None


def test_the_higher_of_two_fresh_peaks_stays_and_a_stale_one_gives_way(cache):
    cache.put(PEAK, TODAY)
    lower = replace(PEAK, flops_per_s=9e10)
    assert cache.put(lower, TODAY) == PEAK
    later = TODAY + timedelta(days=STALE_AFTER_DAYS + 1)
    renewed = replace(lower, measured_on=later.isoformat())
    assert cache.put(renewed, later) == renewed == cache.get(KEY, later)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 2, "peaks": []}', '{"schema": 1, "peaks": [{"x": 1}]}'])
def test_damage_is_named_and_not_taken_for_an_empty_cache(cache, content):
    cache.path.parent.mkdir()
    cache.path.write_text(content)
    with pytest.raises(InputError, match=r"peaks\.json.*delete it"):
        cache.get(KEY, TODAY)


def test_writers_of_several_processes_lose_nothing(cache):
    code = (
        "import sys; from datetime import date; from pathlib import Path;"
        "from argosy.hardware.peaks import Peak, PeakCache, PeakKey\n"
        "path, writer = Path(sys.argv[1]), int(sys.argv[2])\n"
        "for n in range(10):\n"
        "    key = PeakKey('m', 'fp32', writer, n, 't')\n"
        "    PeakCache(path).put(Peak(key, 1.0, 1, '2026-08-20'), date(2026, 8, 20))\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(cache.path), str(w)]) for w in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert len(json.loads(cache.path.read_text())["peaks"]) == 30
    assert {file.name for file in cache.path.parent.iterdir()} == {"peaks.json", "peaks.json.lock"}


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="ARGOSY_CACHE"):
        PeakCache(tmp_path / "file" / "peaks.json").put(PEAK, TODAY)


def test_the_journal_record_holds_what_a_report_divides_by():
    record = PEAK.record()
    assert (record["dtype"], record["flops_per_s"], record["src"], record["date"]) == (
        "fp32",
        1.0e11,
        "measured",
        "2026-08-20",
    )
    sheet = find("NVIDIA H200").record("bf16")
    assert (sheet["flops_per_s"], sheet["src"], sheet.keys() <= record.keys()) == (
        pytest.approx(989.5e12),
        "data sheet of H200-SXM5-141GB",
        True,
    )
    assert find("A10").record("fp4") is None


def test_folder_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("ARGOSY_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("ARGOSY_CACHE")
    assert cache_folder().name == "argosy"
