"""The detectors of :mod:`argosy.resilience` as observers of the training loop: the door wires the two."""

import math
import socket
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch.distributed as dist
from torch import nn

from argosy.data.batch import Batch
from argosy.journal.clock import mono_ns
from argosy.recipe.schema import ResilienceTable
from argosy.registry.run_folder import RunFolder
from argosy.resilience.digests import StateDigests
from argosy.resilience.incident import Incident, new_incident
from argosy.resilience.local_gradients import LocalGradients
from argosy.resilience.spikes import SpikeDetector
from argosy.training.observers import Observer, Ready


class Digests(Observer):
    """Compares replicas every some steps, and before a save."""

    def __init__(self, every_steps: int):
        self._every_steps = every_steps
        self._digests: StateDigests | None = None

    def on_ready(self, ready: Ready) -> None:
        if ready.group is None or ready.layout.dp == 1:
            return
        replicas = [ready.layout.rank(here | {"dp": 0}) for here in map(ready.layout.coordinates, range(ready.world))]
        tensors = [tensor for part in ("model", "optimizer") for tensor in ready.tree[part].values()]
        self._digests = StateDigests(self._every_steps, tensors, replicas, ready.group, ready.step)
        self._digests.check_start()

    def on_phase(self, name: str, step: int) -> None:
        if name == "ckpt_block" and self._digests is not None:
            self._digests.check(step)

    def on_step_end(self, step: int, loss: float) -> None:
        if self._digests is not None:
            self._digests.after_step(step + 1)


class Gradients(Observer):
    """Names the rank whose own gradient is not finite, with the samples that it had."""

    def __init__(self, run: RunFolder, attempt: int, rank: int):
        self._run, self._attempt, self._rank = run, attempt, rank
        self._group: dist.ProcessGroup | None = None
        self._local: LocalGradients | None = None
        self._norm = 0.0
        self._samples: list[int] = []
        self._ready: Ready | None = None

    def on_ready(self, ready: Ready) -> None:
        self._ready = ready
        self._local = LocalGradients(ready.models)

    def on_batch(self, step: int, batches: Sequence[Batch]) -> None:
        self._batches = batches

    def on_local_grads(self, step: int, parameters: Iterable[nn.Parameter]) -> None:
        if self._local is not None:
            self._norm = self._local.norm(parameters)

    def on_update(self, step: int, applied: bool) -> None:
        if applied or self._ready is None:
            return
        samples = [int(sample) for batch in self._batches for sample in batch.sample_ids.tolist()]
        mine = (math.isfinite(self._norm), samples)
        ranks = [mine]
        if self._ready.group is not None:
            ranks = [mine] * self._ready.world
            dist.all_gather_object(ranks, mine, group=self._ready.group)
        if self._rank == 0:
            self._tell(step, [rank for rank, (finite, _) in enumerate(ranks) if not finite], [ids for _, ids in ranks])

    def _tell(self, step: int, guilty: list[int], samples: list[list[int]]) -> None:
        who = f"own gradient of rank {', '.join(map(str, guilty))}" if guilty else "the sum of finite gradients"
        incident = Incident(
            run=self._run.info.id,
            attempt=self._attempt,
            kind="non_finite",
            rank=guilty[0] if len(guilty) == 1 else None,
            cause=f"{who} is not finite in step {step}",
            host=socket.gethostname(),
            step=step,
            phase="backward",
            detected_by="local gradient",
            verdict_ns=mono_ns(),
            verdict_wall_ns=time.time_ns(),
            silent_s=None,
            rung="Skip",
            lost_steps=1,
            sample_ids=tuple(sample for ids in samples for sample in ids),
        )
        new_incident(self._run.incidents, incident)


class Spikes(Observer):
    """Ends the attempt when the loss spikes: all ranks see the same loss."""

    def __init__(self) -> None:
        self._detector = SpikeDetector()

    def on_step_end(self, step: int, loss: float) -> None:
        self._detector.look(step, loss)


def detectors(
    run_dir: Path, attempt: int, rank: int, table: ResilienceTable, *, supervised: bool = True
) -> list[Observer]:
    """Those that work inside a rank. Without a supervisor nobody can go back before a spike: it is trained through."""
    found: list[Observer] = [Gradients(RunFolder(run_dir), attempt, rank)]
    if table.digest_every_steps:
        found.append(Digests(table.digest_every_steps))
    if table.roll_back_on_spike and supervised:
        found.append(Spikes())
    return found
