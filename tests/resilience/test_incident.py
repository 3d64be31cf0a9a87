"""Records of faults: numbered once, whole or not there, and shown."""

from dataclasses import replace

import pytest

from argosy.errors import InputError
from argosy.resilience.incident import Incident, new_incident, read_incidents, write_incident
from argosy.resilience.incident_text import details, table, to_next_step_s

ONE = Incident(
    run="r",
    attempt=2,
    kind="killed",
    rank=3,
    cause="rank 3 was killed by SIGKILL",
    host="h",
    step=41,
    phase="backward",
    detected_by="exit",
    verdict_ns=1,
    verdict_wall_ns=1_700_000_000_000_000_000,
    silent_s=0.02,
    phases={"terminate": 0.05, "respawn": 0.2},
    consequences=("rank 0: RuntimeError: Connection closed by peer",),
    ranks={"0": {"step": 41}},
    stacks={"3": 'File "x.py", line 1 in f'},
)


def test_each_gets_a_number_of_its_own_and_can_be_completed(tmp_path) -> None:
    first, second = new_incident(tmp_path, ONE), new_incident(tmp_path, ONE)
    assert (first.number, second.number) == (1, 2)
    done = first.with_phase("rejoin", 0.5).with_phase("first_step", 0.1)
    write_incident(tmp_path, replace(done, lost_steps=1, lost_money="0.01"))
    read = read_incidents(tmp_path)
    assert [one.number for one in read] == [1, 2]
    assert read[0].lost_money == "0.01"
    assert to_next_step_s(read[0]) == pytest.approx(0.85)
    assert to_next_step_s(read[1]) is None
    assert read[1] == second


def test_one_that_is_being_written_is_not_there_yet_and_a_damaged_one_is_named(tmp_path) -> None:
    new_incident(tmp_path, ONE)
    (tmp_path / "incident-2.json").touch()
    (tmp_path / "incident-2.json.backup").write_text("foreign")
    assert len(read_incidents(tmp_path)) == 1
    (tmp_path / "incident-2.json").write_text('{"number": 2, ')
    with pytest.raises(InputError, match=r"incident-2\.json: is damaged"):
        read_incidents(tmp_path)


def test_a_field_of_a_later_version_is_ignored(tmp_path) -> None:
    file = write_incident(tmp_path, replace(ONE, number=1))
    file.write_text(file.read_text().replace('"host"', '"new_field": 1, "host"'))
    assert read_incidents(tmp_path)[0].host == "h"


def test_people_see_the_first_cause_and_the_stacks() -> None:
    text = details(replace(ONE, number=1))
    for expected in ("rank 3 was killed by SIGKILL", "Connection closed by peer", "line 1 in f", "50 ms"):
        assert expected in text
    assert table([replace(ONE, number=1)], "USD").row_count == 1
