"""What a simulated job came to, in the accounts of the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from argosy.ledger.accounts import account
from argosy.simulator.record import Record

if TYPE_CHECKING:
    from argosy.simulator.course import Course


@dataclass(frozen=True)
class Outcome:
    """One course. Times are device-seconds unless the name says wall."""

    wall_s: float
    paid_s: float
    accounts: dict[str, float]
    """Sum to `paid_s`."""
    steps: int
    """Kept."""
    kept_s: float
    """Device-time of the kept steps at their undisturbed speed."""
    job_devices: int
    """Of the job, without spares."""
    money: Fraction | None
    finished: bool
    """All its work is done."""
    end: str
    """Why it ended."""
    record: Record

    @property
    def useful_share(self) -> float:
        """Kept steps at their undisturbed speed ÷ what was paid."""
        return self.kept_s / self.paid_s

    @property
    def effective_share(self) -> float:
        """The same ÷ wall time of the job's own devices: effective training time as papers state it, without spares."""
        return self.kept_s / (self.wall_s * self.job_devices)


def settle(course: Course) -> Outcome:
    """Close the books of a course that has ended."""
    job, record = course.job, course.record
    accounts = dict(record.spent_s)

    def add(name: str, seconds: float) -> None:
        if seconds:
            accounts[name] = accounts.get(name, 0.0) + seconds

    for steps in course.line.steps:
        for phys, share in job.step_phys.items():
            add(account(phys, "kept"), steps.count * steps.work_s * share * steps.devices)
        add("comm.exposed.dp", steps.count * steps.slow_s * steps.devices)
        add("compute.eval", steps.count * steps.eval_s * steps.devices)
    paid_s, money = course._paid_until(course.now_s)
    idle_s = paid_s - sum(accounts.values())
    assert idle_s > -1e-6 * paid_s - 1e-3, f"{-idle_s} s more than were paid are booked"
    if idle_s > 1e-6 * paid_s:  # below, it is rounding
        add("stability.spare", idle_s)
    return Outcome(
        wall_s=course.now_s,
        paid_s=paid_s,
        accounts={name: s for name, s in sorted(accounts.items()) if s > 0},
        steps=course.step,
        kept_s=course.step * job.step_time_s * job.gpus,
        job_devices=job.gpus,
        money=money,
        finished=job.steps is not None and course.step >= job.steps,
        end=course.ended.reason if course.ended else "",
        record=record,
    )
