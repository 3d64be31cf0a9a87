"""The audit on written records: clean where every sample was used once, and each fault by its name."""

from typing import Any

import pytest

from argosy.data.audit import Journal, audit
from argosy.data.mixture import Mixture, Stage
from argosy.data.position import Position
from argosy.data.samples import SampleOrder
from argosy.data.served import sample_sum

ORDER = SampleOrder(7, [50, 31], ["a", "b"], Mixture([Stage(0, (0.6, 0.4))], [None, None]))
Rows = list[dict[str, Any]]


class Attempt:
    """Writes what the ranks of one attempt would."""

    def __init__(self, number: int, world: int, step: int, position: Position, batch: int):
        self.number, self.world, self.step, self.position, self.batch = number, world, step, position, batch
        self.rows: list[Rows] = [[] for _ in range(world)]
        self._all({"k": "order", "s": step, "b": batch, **position.to_dict()})

    def _all(self, row: dict[str, Any]) -> None:
        for rows in self.rows:
            rows.append(dict(row))

    def train(self, steps: int, wrong: int = 0) -> "Attempt":
        """Do some steps and note them; rank 0 takes the sample `wrong` places further in its first row."""
        first, sums = self.step, [0] * self.world
        for _ in range(steps):
            window, self.position = self.position.take(self.batch)
            drawn = [ORDER.draw(*stretch) for stretch in window]
            flat = [one for part in drawn for one in zip(part.source, part.epoch, part.sample, strict=True)]
            share = len(flat) // self.world
            for rank in range(self.world):
                for source, epoch, sample in flat[rank * share : (rank + 1) * share]:
                    served = (sample + wrong) % ORDER.samples[source] if rank == 0 else sample
                    one = [part.reshape(1) for part in (source, epoch, served)]
                    sums[rank] = (sums[rank] + sample_sum(*one)) % (1 << 64)
                    wrong = 0 if rank == 0 else wrong
            self._all({"k": "step", "s": self.step})
            self.step += 1
        for rank, rows in enumerate(self.rows):
            proof = {"sum": f"{sums[rank]:016x}", "r": [rank, self.world]}
            rows.append({"k": "data", "s": first, "n": steps, "src": "a", **proof})
        return self

    def commit(self) -> "Attempt":
        self._all({"k": "ckpt", "s": self.step, "tier": "storage", "ph": "committed"})
        return self

    def journals(self) -> list[Journal]:
        return [Journal(self.number, rank, self.world, rows) for rank, rows in enumerate(self.rows)]


def check(*attempts: Attempt) -> Any:
    return audit([one for attempt in attempts for one in attempt.journals()], ORDER, (None, None))


def test_another_world_in_each_attempt_is_clean() -> None:
    attempts, step, position = [], 0, Position()
    for number, (world, batch, steps) in enumerate([(4, 12, 3), (3, 12, 4), (6, 24, 2), (2, 10, 8)], start=1):
        attempt = Attempt(number, world, step, position, batch).train(steps).commit()
        step, position = attempt.step, attempt.position
        attempts.append(attempt)
    found = check(*attempts)
    assert found.faults == []
    assert [(leg.attempt, leg.first, leg.stop) for leg in found.legs] == [(1, 0, 3), (2, 3, 7), (3, 7, 9), (4, 9, 17)]
    assert found.steps == found.confirmed == 17
    assert found.samples == position.index == 36 + 48 + 48 + 80
    assert sum(one["used"] for one in found.sources) == 212


def test_work_that_was_undone_does_not_count() -> None:
    first = Attempt(1, 2, 0, Position(), 6).train(4).commit().train(3)  # three steps more, then it was killed
    second = Attempt(2, 2, 4, Position(24), 6).train(2).commit()
    found = check(first, second)
    assert found.faults == []
    assert (found.steps, found.samples) == (6, 36)


def test_steps_that_no_checkpoint_holds_do_not_count() -> None:
    found = check(Attempt(1, 1, 0, Position(), 6).train(4).commit().train(3))
    assert (found.steps, found.confirmed, found.faults) == (4, 4, [])


def test_a_rank_that_trained_on_other_samples_is_found() -> None:
    found = check(Attempt(1, 2, 0, Position(), 6).train(2).train(2, wrong=1).commit())
    assert found.faults == ["attempt 1, steps 2 to 3: the ranks trained on other samples than the order says"]


@pytest.mark.parametrize(("index", "again", "left_out"), [(18, True, False), (30, False, True)])
def test_a_loader_that_went_on_elsewhere_is_found(index: int, again: bool, left_out: bool) -> None:
    first = Attempt(1, 1, 0, Position(), 6).train(4).commit()
    second = Attempt(2, 1, 4, Position(index), 6).train(20).commit()
    faults = check(first, second).faults
    assert faults[0] == f"attempt 2 begins step 4 at sample {index}, the attempt before ended at 24"
    assert any("used again within an epoch" in fault for fault in faults) == again
    assert any("were left out" in fault for fault in faults) == left_out


def test_steps_without_records_are_found() -> None:
    first = Attempt(1, 1, 0, Position(), 6).train(2).commit()
    second = Attempt(2, 1, 3, Position(18), 6).train(2).commit()
    assert "steps 2 to 2 are in no attempt's records" in check(first, second).faults


def test_what_was_skipped_on_purpose_is_listed_and_no_fault() -> None:
    position = Position().skip(8, 6)
    found = check(Attempt(1, 2, 0, position, 6).train(30).commit())
    assert found.faults == []
    assert found.skipped == [(8, 6)]
    assert found.samples == 180


def test_an_update_that_was_left_out_is_listed() -> None:
    attempt = Attempt(1, 1, 0, Position(), 6).train(3).commit()
    next(row for row in attempt.rows[0] if row["k"] == "step" and row["s"] == 1)["x"] = 1
    assert check(attempt).not_applied == [1]


def test_a_rank_without_its_records_leaves_steps_unconfirmed() -> None:
    attempt = Attempt(1, 2, 0, Position(), 6).train(3).commit()
    attempt.rows[1] = [row for row in attempt.rows[1] if row["k"] != "data"]
    found = check(attempt)
    assert (found.steps, found.confirmed, found.faults) == (3, 0, [])


def test_weights_in_force_are_those_of_the_records() -> None:
    stages = (Stage(0, (0.6, 0.4)), Stage(24, (0.1, 0.9)))
    first = Attempt(1, 1, 0, Position(weights=stages[:1]), 6).train(4).commit()
    second = Attempt(2, 1, 4, Position(24, weights=stages), 6).train(4).commit()
    found = check(first, second)
    assert any("other samples" in fault for fault in found.faults), "these ranks drew by the old weights"
