"""The method in use is the last one registered, and it keeps its word on recorded runs."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from argosy.lab.method import PARTS, method_hash

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data" / "scaling"
recorded_runs = pytest.mark.skipif(not DATA.is_dir(), reason=f"no recorded training results at {DATA}")


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        import lab_backtests
    finally:
        sys.path.pop(0)
    return lab_backtests


def test_the_method_is_registered() -> None:
    lines = (ROOT / "bench" / "lab_registrations.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    assert entries[-1]["method"] == method_hash(), "register the changed method, with its reason, before scoring it"
    assert all(entry["reason"] for entry in entries)


def test_the_hash_sees_code_and_not_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import argosy.lab.method as method

    copy = tmp_path / "argosy"
    for part in PARTS:
        target = tmp_path / part
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((ROOT / "src" / part).read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(method, "files", lambda _: copy)
    assert method_hash() == method_hash()
    before, last = method_hash(), tmp_path / PARTS[-1]
    last.write_text("# a remark\n" + last.read_text(encoding="utf-8"), encoding="utf-8")
    assert method_hash() == before
    last.write_text(last.read_text(encoding="utf-8") + "\nEXTRA = 1\n", encoding="utf-8")
    assert method_hash() != before


@recorded_runs
def test_olmo_c4_at_3b(bench) -> None:
    c4 = next(iter(bench.olmo(DATA)))
    assert np.abs(c4.error).mean() <= 0.0063
    assert c4.covered().mean() >= 0.85


@recorded_runs
def test_datablations_beyond_1e21(bench) -> None:
    (scored,) = bench.datablations(DATA)
    assert np.abs(scored.error).mean() <= 0.0069
    assert scored.covered().mean() >= 0.85


@recorded_runs
def test_own_curve_of_the_tuned_recipe(bench) -> None:
    tuned = next(one for one in bench.porian_curve(DATA) if "rw tuned short const standard" in one.name)
    assert np.abs(tuned.error).mean() <= 0.0012
    assert tuned.covered().all()


@recorded_runs
def test_muon_gap_is_nearer_to_what_came(bench) -> None:
    rows = [row for row in bench.gap(DATA) if row["variant"] == "muon"]
    got = np.array([0.018, 0.009, 0.007, 0.004])
    reference = np.array([0.018, 0.013, 0.010, 0.007])
    said = np.array([row["forecast"] for row in rows])
    assert np.abs(said - got).mean() < np.abs(reference - got).mean()
    assert all(low < truth < high for row, truth in zip(rows, got, strict=True) for low, high in [row["interval_90"]])


@recorded_runs
def test_unseen_schedules_of_one_model(bench) -> None:
    from argosy.lab.schedules import fit_schedules

    by_name = bench.curves(DATA)["100M"]
    model = fit_schedules({name: by_name[name] for name in bench.SCHEDULES_TRAIN})
    for name in ("wsd_20000_24000", "wsdld_20000_24000", "wsdcon_18"):
        curve = by_name[name]
        assert np.abs(model.losses(curve.schedule) / curve.loss - 1).mean() <= 0.002


@recorded_runs
def test_a_stop_rule_that_would_lie_on_the_speed_run_is_refused() -> None:
    from argosy.lab.stopping import SuccessiveHalving, recorded, replay
    from argosy.lab.table import read_table

    meta = read_table(DATA / "speedrun.csv").filter(["track=3"])
    about = {
        run: (arm, float(planned))
        for run, arm, planned, copy in zip(
            *(meta.column(name) for name in ("run_id", "arm", "planned_steps", "duplicate_of")), strict=True
        )
        if not copy
    }
    curves = read_table(DATA / "speedrun_curves.csv")
    rows: dict[str, tuple[str, list[float], list[float], float]] = {}
    for run, step, loss in zip(
        curves.column("run_id"), curves.numbers("step"), curves.numbers("val_loss"), strict=True
    ):
        if run in about:
            arm, planned = about[run]
            rows.setdefault(run, (arm, [], [], planned))
            rows[run][1].append(step)
            rows[run][2].append(loss)
    said = replay(SuccessiveHalving(2, (0.25, 0.5)), recorded(rows), arms=8, campaigns=200)
    assert not said.trusted
    assert "dropped the winner" in said.reason


@recorded_runs
def test_a_a_resampling_of_the_speed_run() -> None:
    """Two halves of one arm differ by luck alone: 5 ± 1 % of the tests may say otherwise."""
    from argosy.lab.compare import welch
    from argosy.lab.table import read_table

    table = read_table(DATA / "speedrun.csv").filter(["duplicate_of="])
    rng = np.random.default_rng(0)
    alarms = []
    for _, part in table.groups(["arm"]):
        loss = part.numbers("final_val_loss")
        if len(loss) >= 10:
            for _ in range(300):
                drawn = rng.permutation(loss)
                half = len(loss) // 2
                alarms.append(welch(drawn[:half], drawn[half:]).p_value() < 0.05)
    assert len(alarms) > 8000
    assert np.mean(alarms) == pytest.approx(0.05, abs=0.01)
