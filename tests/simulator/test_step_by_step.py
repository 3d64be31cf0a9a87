"""What is worked out between two events at once is what step after step gives, with every policy asked each time."""

from dataclasses import replace

from courses import At, every_node
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.policy.action import Save
from argosy.policy.event import StepDone
from argosy.policy.recovery import RecoveryPolicy
from argosy.policy.save import SavePolicy
from argosy.policy.view import Tier
from argosy.simulator.course import Course
from argosy.simulator.failures import Fault
from argosy.simulator.job import Job, SaveTimes, restart_phases
from argosy.simulator.policies import Policies

CRASH = Fault("crash", "process", 1.0, 7.0)
RESTART = {rung: {"reschedule": 20.0, "import": 10.0} for rung in restart_phases(8)}
ALWAYS = RecoveryPolicy(rungs=("restart_workers",), restarts_limit=10**6)


def job(step_s: float, block_s: float, durable_s: float, memory_s: float | None) -> Job:
    saves: dict[Tier, SaveTimes] = {"storage": SaveTimes(block_s, block_s + durable_s, 11.0)}
    if memory_s is not None:
        saves["memory"] = SaveTimes(memory_s, memory_s, 3.0)
    return Job(8, step_s, saves, RESTART)


def stepwise(job: Job, policies: Policies, faults: list[float], horizon_s: float, rate: float) -> tuple[int, int, int]:
    """(steps of the line, steps lost, saves to storage) by a loop over single steps."""
    course = Course(job, every_node(rate), policies, horizon_s=horizon_s, strikes=At((), CRASH))  # only for its view
    now, step, lost, count = 30.0, 0, 0, 0
    saved: dict[Tier, int] = {}
    storage: list[tuple[int, float]] = []
    memory: list[tuple[int, float]] = []
    faults = sorted(faults)
    while faults and faults[0] < now:  # while it starts
        now = faults.pop(0) + 37.0

    def die() -> None:
        nonlocal now, step, lost, saved
        at = faults.pop(0)
        on_storage = max([s for s, t in storage if t <= at], default=0)
        in_memory = max([s for s, t in memory if t <= at], default=0)
        storage[:] = [(s, t) for s, t in storage if t <= at]
        memory[:] = [(s, t) for s, t in memory if t <= at]
        to = max(on_storage, in_memory)
        lost += step - to
        now = at + 37.0 + ((3.0 if in_memory > on_storage else 11.0) if to else 0.0)
        while faults and faults[0] < now:
            again = faults.pop(0)
            now = again + 37.0 + ((3.0 if in_memory > on_storage else 11.0) if to else 0.0)
        step = to
        saved = {t: s for t, s in (("storage", on_storage), ("memory", to)) if s and t in job.saves}

    while now < horizon_s - 1e-9:
        if faults and faults[0] < now + job.step_time_s:
            die()
            continue
        now += job.step_time_s
        step += 1
        course.tries = 0
        for policy in policies.saves:
            action = policy.decide(course.view(step, saved, job.step_time_s), StepDone())
            if not isinstance(action, Save):
                continue
            if now >= horizon_s - 1e-9:
                break
            begin, times = now, job.saves[action.tier]
            # the save is under way from here on; only its end is in doubt
            if faults and faults[0] < begin + times.block_s:
                die()
                break
            now += times.block_s
            saved[action.tier] = step
            if action.tier == "storage":
                count += 1
                storage.append((step, begin + times.durable_s))
                saved = dict.fromkeys(job.saves, step)
                if "memory" in job.saves:
                    memory.append((step, now))
            else:
                memory.append((step, begin + times.durable_s))
            break
    return step, lost, count


@given(
    st.integers(1, 40),
    st.none() | st.integers(1, 30),
    st.integers(0, 9),
    st.integers(0, 30),
    st.none() | st.integers(1, 9),
    st.lists(st.integers(0, 4000), max_size=9, unique=True),
)
@settings(max_examples=150, deadline=None)
def test_one_stretch_is_many_steps(
    step_s: int, every: int | None, block_s: int, durable_s: int, memory_every: int | None, faults: list[int]
) -> None:
    # odd fractions keep faults away from the ends of steps, where the order of two things is open
    one = job(step_s + 0.33371, block_s + 0.14319, float(durable_s), None if memory_every is None else 0.25)
    saves = [SavePolicy(every_steps=every) if every else SavePolicy()]
    if memory_every is not None:
        saves.append(SavePolicy(every_steps=memory_every, tier="memory"))
    policies = Policies(saves=tuple(saves), recovery=ALWAYS)
    rate, horizon_s = 86_400 / 2000.0, 4321.0
    times = [t + 0.0123 for t in faults]
    course = Course(one, every_node(rate), policies, horizon_s=horizon_s, strikes=At(times, CRASH))
    outcome = course.run()
    steps, lost, saved = stepwise(one, policies, times, horizon_s, rate)
    assert outcome.steps + outcome.record.lost_steps == steps + lost
    # the run ends with a save of what is not saved yet, unless it ends in a restart
    assert outcome.record.saves["storage"] - saved in (0, 1)
    if outcome.record.saves["storage"] > saved:
        assert outcome.steps == steps


def test_a_policy_that_always_waits_is_asked_and_obeyed(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    from argosy.policy.action import Wait

    monkeypatch.setattr(SavePolicy, "decide", lambda self, view, event: Wait())
    policies = Policies(saves=(SavePolicy(every_steps=5),), recovery=ALWAYS)
    outcome = Course(
        replace(job(1.0, 1.0, 0.0, None), steps=500),
        every_node(1.0),
        policies,
        horizon_s=1e4,
        strikes=At([200.5], CRASH),
    ).run()
    assert outcome.record.lost_steps == 170  # from 30 s of start until 200.5 s
    assert outcome.record.saves["storage"] == 1  # the one at the end, which nobody has to decide
