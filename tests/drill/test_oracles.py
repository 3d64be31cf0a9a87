"""Every oracle can say no: a fault is planted for each into a copy of a run that passes all of them."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from argosy.drill.drill import one_line, prepare_folder
from argosy.drill.faults import NAMES, NOT_COVERED, VARIANTS, Variant, variants
from argosy.drill.oracles import MEANING, Judgement, judge
from argosy.drill.saboteur_order import FOLDER
from argosy.drill.scene import Seen, Stage, _look_around, play, undisturbed
from argosy.drill.wilson import wilson
from argosy.errors import UsageError
from argosy.resilience.incident import read_incidents, write_incident
from tiny_runs import RECIPE, SMALL

SETS = tuple(one for one in SMALL if one.split(".")[0] in ("model", "data", "batch"))
KILL = next(variant for variant in VARIANTS if variant.id == "F01 in backward")

pytestmark = [pytest.mark.dist, pytest.mark.chaos]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("drill"), RECIPE, 2, 60, SETS)


@pytest.fixture(scope="module")
def played(stage: Stage) -> tuple[Seen, Path]:
    """A run whose rank was killed in backward, and its twin."""
    return play(stage, KILL, stage.folder / "killed", random.Random(1)), undisturbed(stage, KILL)


@pytest.fixture
def copy(played: tuple[Seen, Path], tmp_path: Path) -> Seen:
    seen, _ = played
    shutil.copytree(seen.run, tmp_path / "run")
    return replace(seen, run=tmp_path / "run", exits=list(seen.exits), left_processes=[], left_files=[])


def ask(seen: Seen, played: tuple[Seen, Path], variant: Variant = KILL) -> Judgement:
    return judge(variant, seen, played[1], 2)


def test_a_killed_run_passes_all_that_do_not_depend_on_the_machines_speed(played: tuple[Seen, Path]) -> None:
    found = ask(played[0], played)
    asked = {name: answer for name, answer in found.oracles.items() if name not in ("O5", "O10")}
    assert asked == dict.fromkeys(asked, True), one_line(found)
    assert found.verdict_s is not None
    assert found.recovery_s is not None
    (incident,) = played[0].incidents
    assert list(incident.phases) == ["evidence", "terminate", "respawn", "rejoin", "first_step"]
    assert incident.lost_steps in (0, 1), "a snapshot each step loses at most the one under way"
    assert incident.lost_device_s is not None
    assert incident.lost_device_s > 2 * (sum(incident.phases.values()) - incident.phases["first_step"]) - 0.01
    assert incident.lost_money is None, "no price is known"


def another_result(seen: Seen) -> None:
    """The last checkpoint is that of an earlier step, under the last one's name."""
    steps = sorted(seen.run.glob("checkpoints/step-*"), key=lambda folder: int(folder.name[5:]))
    shutil.rmtree(steps[-1])
    shutil.copytree(steps[-2], steps[-1])


def a_lost_step(seen: Seen) -> None:
    for file in seen.run.glob("events/attempt-*/rank-0.jsonl"):
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join(line for line in lines if b'"s":3,' not in line))


def steps_in_disorder(seen: Seen) -> None:
    (file,) = seen.run.glob("events/attempt-1/rank-1.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    steps = [number for number, line in enumerate(lines) if b'"k":"step"' in line]
    lines[steps[0]], lines[steps[1]] = lines[steps[1]], lines[steps[0]]
    file.write_bytes(b"".join(lines))


def a_flipped_bit(seen: Seen) -> None:
    file = max(seen.run.glob("checkpoints/step-*/*"), key=lambda file: file.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def change_incident(seen: Seen, **fields: object) -> None:
    (incident,) = read_incidents(seen.run / "incidents")
    write_incident(seen.run / "incidents", replace(incident, **fields))  # type: ignore[arg-type]


def a_late_verdict(seen: Seen) -> None:
    assert seen.fault_ns is not None
    change_incident(seen, verdict_ns=seen.fault_ns + 30 * 10**9)


def the_wrong_rank(seen: Seen) -> None:
    change_incident(seen, rank=1 - seen.guilty)


def a_false_alarm(seen: Seen) -> None:
    (incident,) = read_incidents(seen.run / "incidents")
    write_incident(seen.run / "incidents", replace(incident, number=2))


def a_wrong_exit_code(seen: Seen) -> None:
    seen.exits[-1] = 1


def a_file_left(seen: Seen) -> None:
    (seen.run / "checkpoints" / ".step-9.g1.tmp").mkdir()
    _look_around(seen, seen.run.parent)


def time_that_nobody_paid(seen: Seen) -> None:
    seen.wall_s *= 2


@pytest.mark.parametrize(
    ("oracle", "plant"),
    [
        ("O1", another_result),
        ("O2", a_lost_step),
        ("O3", steps_in_disorder),
        ("O4", a_flipped_bit),
        ("O5", a_late_verdict),
        ("O6", the_wrong_rank),
        ("O7", a_file_left),
        ("O8", a_false_alarm),
        ("O9", a_wrong_exit_code),
        ("O10", time_that_nobody_paid),
    ],
)
def test_each_oracle_says_no_to_its_planted_fault(
    oracle: str, plant: Callable[[Seen], None], copy: Seen, played: tuple[Seen, Path]
) -> None:
    plant(copy)
    found = ask(copy, played)
    assert found.oracles[oracle] is False, found
    assert oracle in found.why


def test_a_process_that_is_left_is_found_by_what_it_inherited(copy: Seen, tmp_path: Path) -> None:
    left = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={FOLDER: str(tmp_path)})
    try:
        _look_around(copy, tmp_path)
        assert [line.split()[0] for line in copy.left_processes] == [str(left.pid)]
    finally:
        left.communicate()
    _look_around(copy, tmp_path)
    assert copy.left_processes == []


def test_the_catalogue_is_whole_and_names_what_it_does_not_cover() -> None:
    assert sorted(NAMES | NOT_COVERED) == [f"F{number:02}" for number in range(1, 31)]
    assert {variant.fault for variant in VARIANTS} <= set(NAMES)
    assert len({variant.id for variant in VARIANTS}) == len(VARIANTS)
    assert list(MEANING) == [f"O{number}" for number in range(1, 11)]
    with pytest.raises(UsageError, match="several machines"):
        variants("F13")
    with pytest.raises(UsageError, match="there is no fault 'F99'"):
        variants("F99")


def test_a_drill_does_not_break_what_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({}))
    with pytest.raises(UsageError, match="somebody's run"):
        prepare_folder(tmp_path, consent=False)
    assert os.listdir(tmp_path) == ["run.json"]
    prepare_folder(tmp_path, consent=True)
    prepare_folder(tmp_path, consent=False)  # it is known by now
    prepare_folder(tmp_path / "new", consent=False)


def test_the_interval_of_wilson() -> None:
    low, high = wilson(300, 300)
    assert low == pytest.approx(0.98736, abs=1e-4)
    assert high == pytest.approx(1.0)
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)
