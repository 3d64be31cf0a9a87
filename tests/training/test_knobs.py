"""No knob of the recipe is without effect: another value changes program, plan, books or what is learned."""

from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from knob_effects import CHANGES, differences
from test_stops import SlowSteps

from argosy.recipe.knobs import knobs
from argosy.training.observers import Observer
from tiny_runs import SMALL, make_run, train

ELSEWHERE = {
    "model.rope_scaling": "a table; its fields are changed one by one",
    **{
        f"data.sources.{name}": "of a list: tests/data/test_mixture_commands.py"
        for name in ("name", "folder", "weight", "later", "later.tokens", "later.weight", "epochs")
    },
    "data.prefetch": "no outcome may depend on it: tests/data/test_prefetch.py",
    "precision.reduce": "needs ranks: test_equivalence.py",
    "resilience.collective_timeout_s": "needs ranks: below",
    **{
        f"resilience.{name}": "the supervisor's: tests/launch/test_local.py, tests/resilience/test_watch.py"
        for name in ("restarts_limit", "warm", "heartbeat_limit_s", "step_limit_factor", "step_limit_s", "grace_s")
    },
    "resilience.phase_limit_s": "the supervisor's: tests/resilience/test_watch.py",
    "resilience.digest_every_steps": "needs replicas: tests/chaos/test_faults.py",
    "resilience.roll_back_on_spike": "needs a spike: tests/chaos/test_faults.py",
    "resilience.check_collectives": "compares and changes nothing: tests/parallel/test_collective_guard.py",
    "budget.value_per_day": "the simulator's: tests/simulator/test_simulate_command.py",
    "layout.reshard_after_forward": "needs sharded weights: tests/parallel/matrix.py",
    "checkpoint.copy_every_s": "a matter of time: tests/checkpoint/test_copies.py",
    "layout.update_in_backward": "moves memory alone: tests/parallel/test_update_in_backward.py",
    "layout.compile": "needs a C++ compiler and half a minute: tests/models",
    "init.from": "needs another run: test_origin.py",
    "init.load": "needs another run: test_origin.py",
}
REFUSED = {"run.device", "data.source", "data.digest", "layout.dp", "layout.fsdp"} | {
    f"layout.{name}" for name in ("cp", "tp", "pp", "ep", "zero", "schedule", "virtual_stages", "stage_layers")
}
"""Other values of these are refused on one CPU rank, with a reason."""


def test_every_knob_has_a_change() -> None:
    assert set(CHANGES) | set(ELSEWHERE) == set(knobs())


@pytest.mark.dist
def test_each_change_is_seen(tmp_path: Path, run_ranks: Any) -> None:
    (found,) = run_ranks(1, differences, tmp_path, timeout_s=280)
    assert found.pop("nothing") == [], "two equal recipes give equal outcomes, or this test could not fail"
    assert [key for key, parts in found.items() if not parts] == []
    assert {key for key, parts in found.items() if parts == ["refused"]} == REFUSED


class LateRank(Observer):
    def on_phase(self, name: str, step: int) -> None:
        if dist.get_rank() == 1 and name == "forward" and step == 2:
            SlowSteps(4.0).on_step_end(step, 0.0)


@pytest.mark.dist
def test_a_collective_that_takes_longer_than_its_limit_ends_the_attempt(tmp_path: Path, run_ranks: Any) -> None:
    run = make_run(tmp_path / "run", *SMALL, "resilience.collective_timeout_s=2")
    with pytest.raises(RuntimeError, match=r"[Tt]imed? ?out"):
        train(run_ranks, run, 2, [LateRank()])
