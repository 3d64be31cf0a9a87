"""`argosy simulate` as a user types it: answers, files, and clear words for what cannot be."""

import json
from pathlib import Path

import pytest

from argosy.cli.main import main
from argosy.hardware.cluster_file import load_cluster
from argosy.ledger.report import build_report
from argosy.planner.answer import Goal, answer
from argosy.planner.plan_file import plan_record
from argosy.planner.question import from_preset

SMALL = ("--gpus", "1024", "--days", "2", "--replications", "4")


def argosy(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *words])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def said_json(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    code, out, err = argosy(capsys, *words, "--json")
    assert code == 0, err
    return json.loads(out)


def test_the_answer_in_words_and_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = argosy(capsys, *SMALL, "--price", "2.5")
    assert code == 0
    for word in ("1,024 GPUs", "Llama 3 405B", "useful.model_math", "by formula", "4 replications"):
        assert word in " ".join(out.split())
    found = said_json(capsys, *SMALL, "--price", "2.5")
    assert found["schema"] == "argosy.simulate/1"
    assert sum(found["accounts_device_s"].values()) == pytest.approx(found["paid_device_s"])
    assert found["money"]["mean"] == pytest.approx(found["paid_device_s"] / 3600 * 2.5)
    share = found["useful_share"]
    assert share["low"] < share["mean"] < share["high"] < found["closed_form_share"] + 0.05
    assert said_json(capsys, *SMALL, "--price", "2.5") == found  # same seed, same dice


def test_a_study_a_page_and_a_run_to_report_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page, run = tmp_path / "page.html", tmp_path / "run"
    asked = ("--failures", "mtbf:2h", "--price", "2", "--budget", "$1M", "--batch-tokens", "4M", "--spares", "16")
    found = said_json(capsys, *SMALL, *asked, "--sweep", "spares=8,16", "--html", str(page), "--out", str(run))
    names = {swing["name"] for swing in found["tornado"]}
    assert names == {"rate", "restart", "detection", "repair", "save", "durable", "restore"}
    for swing in found["tornado"]:
        assert swing["cost"][0] <= swing["cost"][1] * 1.02, swing  # half of any trouble is no dearer, within the dice
    assert found["tornado"][0]["name"] == "rate"
    worth = found["worth"]
    assert worth["restart_minute_per_month"]["mean"] > 0
    # a minute of every restart, at a restart every 2 h, is 1/120 of a month's bill, and of the useful time more
    bill = (1024 + 16 * 8) * 2 * 24 * 30
    minute = worth["restart_minute_per_month"]
    assert minute["low"] < bill / 120 / found["effective_share"]["mean"] < minute["high"]
    rates = worth["rates"]
    assert rates[0]["cost"] < rates[1]["cost"] < rates[2]["cost"]
    assert rates[0]["experiments"] > rates[2]["experiments"] > 0
    assert rates[0]["largest_gpus"] == 2 * rates[1]["largest_gpus"]
    assert [row["setting"] for row in found["found"]["rows"] if not row["more_than_best"]["mean"]]
    html = page.read_text()
    assert json.loads(html.partition('id="simulation">')[2].partition("</script>")[0]) == found
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")
    report = build_report(run)
    assert report.tokens > 0
    assert report.tokens % 4_000_000 == 0
    assert report.accounts["useful.model_math"].share == pytest.approx(
        found["useful_share_by_replication"][0], rel=1e-6
    )
    assert len((run / "decisions.jsonl").read_text().splitlines()) >= len(report.attempts) - 1


def test_a_plan_is_simulated_to_the_end_of_its_work(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    question = from_preset(
        "llama3-8b", accelerators=256, sequence_length=8192, batch_tokens=4 * 2**20, dtype="bf16", tokens=None
    )
    found = answer(question, load_cluster("256xH100"), Goal(tokens=10**12))
    plan = plan_record(found.found, 0, "hash", "256xH100", 10**12)
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    said = said_json(capsys, "--plan", str(file), "--replications", "6")
    (tmp_path / "recipe.toml").write_text("[objective]\ntokens = 10_000\n[budget]\nvalue_per_day = 1e6\n")
    dearer = said_json(capsys, "--plan", str(file), "--replications", "6")
    told = said_json(capsys, "--plan", str(file), "--replications", "6", "--value-per-day", "1e6")
    assert dearer["cost_of_work"] == told["cost_of_work"], "a day is worth what the plan's own run says"
    assert dearer["cost_of_work"]["mean"] > said["cost_of_work"]["mean"]
    assert said["gpus"] == 256
    assert said["finished"] == 1.0
    assert said["currency"] == "USD"
    # the plan's own forecast is Daly's at the cluster's rate; here failures are those of Llama 3, about as frequent
    assert said["wall_days"]["mean"] == pytest.approx(plan["predicted"]["days"]["value"], rel=0.03)
    assert any(name.startswith("comm.exposed") for name in said["accounts_device_s"])


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        ((), 64, "give --plan or --gpus"),
        (("--gpus", "100"), 64, "do not fill nodes of 8"),
        (("--gpus", "1024", "--spares", "129"), 64, "129 spare nodes for a job on 128"),
        (("--gpus", "1024", "--price", "-1"), 64, "a price of -1 is below 0"),
        (("--gpus", "1024", "--failures", "llama4"), 64, "llama3, meta32k"),
        (("--gpus", "1024", "--failures", "mtbf:2min"), 64, "cannot progress"),
        (("--gpus", "2000000", "--restart", "1h"), 64, "so it is from about"),
        (("--gpus", "1024", "--groups", "3"), 64, "divide into 3 replica groups"),
        (("--gpus", "1024", "--policy", "save.every_s=-5"), 64, "-5 is no every_s"),
        (("--gpus", "1024", "--policy", "save.every_s=x"), 64, "is no every_s"),
        (("--gpus", "1024", "--policy", "saves.every_s=5"), 64, "unknown knob"),
        (("--gpus", "1024", "--policy", '{"type": "View", "now_s": 0, "step": 0}'), 64, "nothing that a simulated job"),
        (("--gpus", "1024", "--days", "0"), 64, "0 days"),
        (("--gpus", "1024", "--sweep", "spares"), 64, "is no sweep"),
        (("--gpus", "1024", "--value-per-day", "-1"), 64, "a day is worth -1"),
        (("--gpus", "1024", "--slow", "-1"), 64, "rate is below 0"),
        (("--gpus", "1024", "--spot", "-1"), 64, "negative"),
        (("--plan", "/nowhere.json"), 66, "cannot be read"),
        (("--gpus", "1024", "--batch-tokens", "x"), 64, "is no count"),
    ],
)
def test_what_cannot_be(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, what: str) -> None:
    ended, out, err = argosy(capsys, *words)
    assert (ended, out) == (code, "")
    assert what in err
    assert err.count("\n") == 1


def test_the_scale_from_which_a_job_cannot_progress_is_that_scale(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = argosy(capsys, "--gpus", "2000000", "--restart", "1h")
    limit = int(err.partition("from about ")[2].partition(" GPUs")[0].replace(",", ""))
    at_limit = argosy(capsys, "--gpus", str(limit + 800), "--restart", "1h", "--days", "0.1", "--replications", "1")
    assert at_limit[0] == 64
    below = argosy(capsys, "--gpus", str(limit - 800), "--restart", "1h", "--days", "0.1", "--replications", "1")
    assert below[0] == 0


def test_no_failures_and_a_policy_object(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text('{"type": "SavePolicy", "every_steps": 100}')
    said = said_json(capsys, *SMALL, "--failures", "none", "--spares", "0", "--policy", str(policy))
    assert said["failures"]["mtbf_s"] is None
    assert said["restarts"]["mean"] == 0
    # 10 s of every 100 steps of 6 s
    assert said["useful_share"]["mean"] == pytest.approx(600 / 610, rel=0.005)
    assert said["policies"]["saves"][0]["every_steps"] == 100
