"""`argosy lab …` from the outside."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import typer
from ladders import csv_text, planted, sweep
from typer.testing import CliRunner

from argosy.cli.lab import register
from argosy.errors import InputError, UsageError


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    root = typer.Typer()
    root.callback()(lambda: None)
    register(root)
    return root


def run(app: typer.Typer, *words: str, code: int = 0) -> str:
    said = CliRunner().invoke(app, ["lab", *words], catch_exceptions=False)
    assert said.exit_code == code, said.output
    return said.output


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results.csv"
    path.write_text(csv_text(planted()), encoding="utf-8")
    return path


def test_fit(app: typer.Typer, results: Path, tmp_path: Path) -> None:
    page = tmp_path / "fit.html"
    said = json.loads(
        run(
            app,
            "fit",
            str(results),
            "--x",
            "N,D",
            "--y",
            "loss",
            "--predict",
            "N=5e9,D=1e11",
            "--html",
            str(page),
            "--json",
        )
    )
    assert said["schema"] == "argosy.lab.fit/1"
    assert said["interval_90"][0] < said["prediction"] < said["interval_90"][1]
    assert "Fit and cone" in page.read_text(encoding="utf-8")
    assert "forecast at" in run(app, "fit", str(results), "--predict", "N=5e9,D=1e11")


def test_figures_are_well_formed(app: typer.Typer, tmp_path: Path) -> None:
    path, page = tmp_path / "sweep.csv", tmp_path / "sweep.html"
    path.write_text(csv_text(sweep(levels=5, sizes=6)), encoding="utf-8")
    run(app, "fit", str(path), "--html", str(page), "--json")
    text = page.read_text(encoding="utf-8")
    charts = text.split("<svg")[1:]
    assert len(charts) == 2  # the cone, and the bowls since this is a sweep
    for chart in charts:
        svg = ET.fromstring("<svg" + chart.split("</svg>")[0] + "</svg>")
        assert len(list(svg.iter())) > 20
        assert "nan" not in chart.split("</svg>")[0]


def test_backtest_rolling_and_split(app: typer.Typer, tmp_path: Path) -> None:
    page, results = tmp_path / "back.html", tmp_path / "small.csv"
    results.write_text(csv_text(planted(sizes=4)), encoding="utf-8")
    said = json.loads(run(app, "backtest", str(results), "--html", str(page), "--json"))
    assert said["summary"]["coverage_90"] > 0.8
    assert said["summary"]["origins"] >= 3
    assert "<svg" in page.read_text(encoding="utf-8")
    split = json.loads(run(app, "backtest", str(results), "--train", "flops<=1e21", "--test", "flops>1e21", "--json"))
    assert split["summary"]["origins"] == 1
    assert split["summary"]["mean_absolute_error"] < 0.004
    with pytest.raises(UsageError, match="belong together"):
        run(app, "backtest", str(results), "--train", "flops<=1e21")


def test_groups_are_fitted_alone(app: typer.Typer, tmp_path: Path) -> None:
    path = tmp_path / "two.csv"
    one, two = csv_text(planted(), dataset=["c4"] * 45), csv_text(planted(seed=1), dataset=["pile"] * 45)
    path.write_text(one + "\n".join(two.splitlines()[1:]) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="--group dataset"):
        run(app, "fit", str(path))
    said = json.loads(
        run(app, "fit", str(path), "--group", "dataset", "--predict", "N=5e9,D=1e11,dataset=pile", "--json")
    )
    assert len(said["groups"]) == 2
    assert [one["group"] for one in said["predictions"]] == [{"dataset": "pile"}]


def test_gap(app: typer.Typer, tmp_path: Path) -> None:
    path = tmp_path / "arms.csv"
    base, better = planted(noise=0.0), planted(noise=0.0)
    better.loss[:] -= 0.01 * (better.tokens / 1e10) ** -0.3
    text = csv_text(base, arm=["a"] * 45)
    path.write_text(text + "\n".join(csv_text(better, arm=["b"] * 45).splitlines()[1:]) + "\n", encoding="utf-8")
    said = json.loads(run(app, "fit", str(path), "--pair", "arm=a,b", "--predict", "N=6e9,D=1.2e11", "--json"))
    assert said["predictions"][0]["gap"] == pytest.approx(0.01 * 12**-0.3, rel=0.15)


def test_compare(app: typer.Typer, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = ["arm,seed,val_loss"]
    lines += [f"base,{i},{3.28 + 0.001 * rng.standard_normal():.6f}" for i in range(8)]
    lines += [f"good,{i},{3.273 + 0.001 * rng.standard_normal():.6f}" for i in range(8)]
    lines += [f"same,{i},{3.2795 + 0.001 * rng.standard_normal():.6f}" for i in range(3)]
    path = tmp_path / "arms.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    words = ("compare", str(path), "--y", "val_loss", "--baseline", "base", "--price", "12")
    said = json.loads(run(app, *words, "--json"))
    by_name = {one["variant"]: one for one in said["comparisons"]}
    assert by_name["good"]["verdict"] == "algorithm"
    assert by_name["same"]["verdict"] in ("undecided", "luck")
    assert by_name["good"]["survives_false_discovery_control"]
    one = json.loads(run(app, *words, "--variant", "good", "--pair", "seed", "--margin", "0.001", "--json"))
    assert one["comparisons"][0]["p_non_inferior"] < 0.01
    assert one["comparisons"][0]["could_stop_after_pairs"] <= 8
    assert one["comparisons"][0]["seeds"] == [8, 8]
    assert "good" in run(app, *words)
    with pytest.raises(InputError, match="no row has arm = ghost"):
        run(app, *words, "--variant", "ghost")
    path.write_text("arm,val_loss\nbase,nan\nbase,3.1\ngood,3.0\n", encoding="utf-8")
    with pytest.raises(InputError, match="no finite loss"):
        run(app, "compare", str(path), "--y", "val_loss", "--baseline", "base")


def test_power(app: typer.Typer) -> None:
    said = json.loads(run(app, "power", "--gain", "0.002", "--sd", "0.0011", "--price", "10", "--json"))
    assert said["seeds_per_arm"] in (6, 7)
    assert said["cost"] == 20 * said["seeds_per_arm"]


def test_replay_says_no_with_exit_code_1(app: typer.Typer, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = ["run_id,arm,step,val_loss"]
    for arm in range(9):
        for step in range(100, 1001, 100):
            middle = 0.02 * arm * np.sin(np.pi * step / 1000)
            lines.append(f"r{arm},a{arm},{step},{4 - step / 1000 + 0.01 * arm - middle + 1e-4 * rng.standard_normal()}")
    path = tmp_path / "curves.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    said = json.loads(run(app, "replay", str(path), "--y", "val_loss", "--rungs", "0.3,0.5", "--json", code=1))
    assert not any(rule["trusted"] for rule in said["rules"])
    with pytest.raises(UsageError, match="rungs"):
        run(app, "replay", str(path), "--y", "val_loss", "--rungs", "1.5")


def test_schedule(app: typer.Typer, tmp_path: Path) -> None:
    steps = np.arange(400, 4001, 80)
    share = (steps - 400) / 3600
    rates = {
        "constant": np.ones(46),
        "cosine": 0.55 + 0.45 * np.cos(np.pi * share),
        "step": np.where(share < 0.5, 1, 0.3),
    }
    lines = ["schedule,step,lr,loss"]
    for name, shape in rates.items():
        area = np.concatenate([[60e-3], 60e-3 + np.cumsum(0.5 * (shape[1:] + shape[:-1]) * 80 * 3e-4)])
        loss = 2.6 + 0.5 * area**-0.5 - 0.12 * (1 - shape)
        lines += [f"{name},{s},{3e-4 * r},{v}" for s, r, v in zip(steps, shape, loss, strict=True)]
    lines += [f"wsd,{s},{3e-4 * min(1, (1 - f) / 0.2 + 0.05)}," for s, f in zip(steps, share, strict=True)]
    path = tmp_path / "curves.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    said = json.loads(run(app, "schedule", str(path), "--predict", "wsd", "--json"))["schedules"][0]
    low, high = said["final"]["interval_90"]
    assert low < said["final"]["prediction"] < high
    assert said["mean_error"] is None  # the schedule was never run


def test_worth_and_value(app: typer.Typer, results: Path, tmp_path: Path) -> None:
    page = tmp_path / "worth.html"
    said = json.loads(
        run(
            app,
            "worth",
            str(results),
            "--at",
            "N=3e9,D=6e10",
            "--price",
            "3",
            "--served",
            "1e13",
            "--html",
            str(page),
            "--json",
        )
    )
    assert said["cost"] == pytest.approx(6 * 3e9 * 6e10 * 3e-18)
    assert said["optimal_size"]["with_served_tokens"]["N"] < said["optimal_size"]["training_only"]["N"]
    assert len(said["sensitivity"]) == 6
    assert [one["value"] for one in said["seeds"]] == sorted(one["value"] for one in said["seeds"])
    assert "Tornado" in page.read_text(encoding="utf-8")
    ideas = tmp_path / "ideas.csv"
    ideas.write_text(
        "name,gain,gain_sd,noise_sd,seeds,cost,dollars_per_nat,needs\n"
        "rung,-0.001,0.002,0.001,2,5,100000,\nbig,0.001,0.01,0.001,2,40,100000,rung\n",
        encoding="utf-8",
    )
    ranked = json.loads(run(app, "value", str(ideas), "--budget", "50", "--json"))
    assert [one["name"] for one in ranked["experiments"]] == ["rung", "big"]
    assert json.loads(run(app, "value", str(ideas), "--budget", "10", "--json"))["left_out"] == ["big"]


def test_missing_and_damaged_files(app: typer.Typer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        run(app, "fit", str(tmp_path / "ghost.csv"))
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match=r"pyarrow|not a Parquet file"):
        run(app, "fit", str(tmp_path / "bad.parquet"))


def test_the_lab_never_imports_torch() -> None:
    import subprocess
    import sys

    modules = "argosy.cli.lab, argosy.lab.tables, argosy.lab.figures, argosy.lab.text"
    code = f"import sys, {modules}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
