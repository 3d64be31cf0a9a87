"""Random runs that could have happened: several ranks, attempts, kills, checkpoints, rollbacks, spans."""

import copy
import random
from typing import Any

from written import WrittenFile, WrittenRun

STEP_NS = 1_000
PHASES = {"data_wait": 100, "forward": 300, "backward": 400, "optimizer": 50, "comm__exposed__fsdp": 60}


class RandomRun:
    """A story that seed `seed` tells. Ranks step together; every rank writes every checkpoint and restore."""

    def __init__(self, seed: int):
        self.dice = random.Random(seed)
        self.run = WrittenRun()
        self.world = self.dice.randint(1, 3)
        self.boundaries: list[int] = []
        """Moments at which every rank ended a step."""
        self.t = self.dice.randint(0, 5_000)
        begin, committed, step = self.t, 0, 0
        for attempt in range(1, self.dice.randint(1, 4) + 1):
            self.t += self.dice.choice((0, self.dice.randint(1, 9_000)))
            committed, step = self._attempt(attempt, committed, step)
        self.t += self.dice.choice((0, self.dice.randint(1, 3_000)))
        for device in range(self.world):
            self.run.paid(begin, self.t, device)

    def _attempt(self, attempt: int, committed: int, step: int) -> tuple[int, int]:
        dice, start = self.dice, self.t
        agent = self.run.agent(attempt, start, self.world)
        self.t += dice.randint(0, 500)
        ranks = [self.run.rank(attempt, self.t, rank, self.world) for rank in range(self.world)]
        for name in ("startup.import", "startup.model_init", "startup.ckpt_load"):
            begin = self.t + dice.randint(0, 30)
            self.t = begin + dice.randint(0, 900)
            self._each(ranks, lambda rank, begin=begin, name=name: rank.span(name, begin, self.t))
        if attempt > 1:
            self._each(ranks, lambda rank: rank.restore(committed, self.t, dice.choice(("resume",))))
        first, visits, step = committed, {}, committed
        for _ in range(dice.randint(0, 15)):
            begin, self.t = self.t, self.t + STEP_NS
            visit = visits.get(step, 0)
            visits[step] = visit + 1
            skipped = int(dice.random() < 0.05)
            for rank in ranks:
                rank.step(step, begin, self.t, v=visit, x=skipped, **PHASES)
            step += 1
            self.boundaries.append(self.t)
            chance = dice.random()
            if chance < 0.2:
                committed = step
                begin, self.t = self.t, self.t + dice.randint(1, 400)
                self._each(ranks, lambda rank, at=begin, s=step: rank.ckpt(s, at, ph="start"))
                self._each(ranks, lambda rank, at=begin: rank.span("ckpt_block", at, self.t))
                self._each(ranks, lambda rank, s=step: rank.ckpt(s, self.t))
                self._shorten(ranks)
            elif chance < 0.3:
                begin, self.t = self.t, self.t + dice.randint(1, 400)
                self._each(ranks, lambda rank, at=begin: rank.span("eval", at, self.t, a={"forward": 1}))
                self._shorten(ranks)
            elif chance < 0.36 and step > first:
                step = dice.randint(committed, step)
                why = dice.choice(("nan", "operator", "failure"))
                self._each(ranks, lambda rank, s=step, why=why: rank.restore(s, self.t, why))
        if dice.random() < 0.5:
            died = [self.t + dice.randint(0, 900) for _ in ranks]
            for rank, at in zip(ranks, died, strict=True):
                rank.beat(at, step)
            self.t = max(died) + dice.randint(0, 700)
            agent.end(self.t, exit=70, signal=9)
        else:
            self._each(ranks, lambda rank: rank.close(self.t).beat(self.t, step))
            self.t += dice.randint(0, 300)
            agent.end(self.t, exit=dice.choice((0, 75)))
        return committed, step

    def _each(self, ranks: list[WrittenFile], write: Any) -> None:
        for rank in ranks:
            write(rank)

    def _shorten(self, ranks: list[WrittenFile]) -> None:
        """A window reaches from step to step; one record more than the boundary keeps the next one whole."""
        self.boundaries.pop()


def moved(run: WrittenRun, by: int) -> WrittenRun:
    """The same run on a monotonic clock that began `by` earlier."""
    other = copy.deepcopy(run)
    for row in (row for file in other.files for row in file.rows):
        for key in ("t", "t0", "t1", "proc_start"):
            if row.get(key) is not None:
                row[key] += by
    for row in other.paid_rows:
        row["t"] += by
    for file in other.files:
        if file.beat_at:
            file.beat_at = (file.beat_at[0] + by, *file.beat_at[1:])
    return other
