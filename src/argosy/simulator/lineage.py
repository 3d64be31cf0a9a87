"""The line of steps that the model is made of, and the saved states that a job can go back to."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Steps:
    """Steps one after the other, all alike. Times are of one step."""

    first: int
    count: int
    work_s: float
    slow_s: float
    """Waiting for a slow machine."""
    eval_s: float
    devices: int

    @property
    def end(self) -> int:
        return self.first + self.count

    @property
    def step_s(self) -> float:
        return self.work_s + self.slow_s + self.eval_s


@dataclass(frozen=True)
class Saves:
    """Saves to storage at even distances."""

    first: int
    stride: int
    count: int
    durable_s: float
    """When the first of them counts."""
    period_s: float

    @property
    def counts_s(self) -> float:
        """When the last of them counts."""
        return self.durable_s + (self.count - 1) * self.period_s

    @property
    def last(self) -> int:
        return self.first + (self.count - 1) * self.stride

    def until(self, now_s: float) -> "Saves | None":
        """Those that count at `now_s`."""
        if now_s < self.durable_s:
            return None
        if now_s >= self.counts_s:
            return self
        return replace(self, count=min(self.count, 1 + int((now_s - self.durable_s) / self.period_s)))

    def below(self, step: int) -> "Saves | None":
        """Those of states with at most `step` updates."""
        if step < self.first:
            return None
        if step >= self.last:
            return self
        return replace(self, count=min(self.count, (step - self.first) // self.stride + 1))


class Lineage:
    """Grows by steps and saves; goes back on a restore. Steps that are undone are handed out, never forgotten."""

    def __init__(self) -> None:
        self.steps: list[Steps] = []
        self.storage: list[Saves] = []
        self.memory: list[tuple[int, float]] = []
        """The newest copies in memory: (step, when it counts), at most two."""

    def add(self, more: Steps) -> None:
        last = self.steps[-1] if self.steps else None
        if last and last.end == more.first and replace(more, first=last.first, count=last.count) == last:
            self.steps[-1] = replace(last, count=last.count + more.count)
        else:
            self.steps.append(more)

    def saved(self, saves: Saves) -> None:
        self.storage.append(saves)

    def copied(self, step: int, counts_s: float) -> None:
        self.memory = [*self.memory[-1:], (step, counts_s)]

    def newest_on_storage(self, now_s: float, at_most: int | None = None) -> int:
        """The newest state on storage that counts at `now_s`; 0 if there is none."""
        for saves in reversed(self.storage):
            found = saves.until(now_s)
            if found and at_most is not None:
                found = found.below(at_most)
            if found:
                return found.last
        return 0

    def newest_in_memory(self, now_s: float) -> int:
        return next((step for step, counts_s in reversed(self.memory) if counts_s <= now_s), 0)

    def steps_on_storage(self, now_s: float) -> list[int]:
        """All saved states of the line that count at `now_s`, oldest first."""
        return [
            saves.first + i * saves.stride
            for found in self.storage
            if (saves := found.until(now_s))
            for i in range(saves.count)
        ]

    def back_to(self, step: int, now_s: float) -> list[Steps]:
        """Undo the steps at and above `step`; they are returned, and saves in flight or above it are gone."""
        undone = []
        while self.steps and self.steps[-1].end > step:
            last = self.steps.pop()
            if last.first < step:
                self.steps.append(replace(last, count=step - last.first))
                last = replace(last, first=step, count=last.end - step)
            undone.append(last)
        whole = False
        while self.storage and not whole:  # what was saved earlier counts earlier, and holds less
            saves = self.storage.pop()
            held = saves.until(now_s)
            if held and (held := held.below(step)):
                self.storage.append(held)
                whole = True
        self.memory = [(at, counts_s) for at, counts_s in self.memory if at <= step and counts_s <= now_s]
        return undone
