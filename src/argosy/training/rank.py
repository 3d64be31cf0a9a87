"""One rank of one attempt: find the others, build, load, train.

Start-up is booked phase by phase; what happened before there was a journal (process start, imports) is backdated.
"""

import gc
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from argosy import __version__
from argosy.checkpoint.manifest import Manifest
from argosy.checkpoint.state import Tree, state_tree
from argosy.data.open_loader import open_loader
from argosy.data.position import Position
from argosy.data.prepare import Prepared, open_data, prepare
from argosy.data.windows import EvaluationWindows
from argosy.errors import Exit, UsageError
from argosy.hardware.machine import this_machine
from argosy.hardware.peaks import PeakCache
from argosy.journal.heartbeat import HeartbeatPage
from argosy.journal.off_cpu import OffCpu
from argosy.journal.phys import INDEX, MATH
from argosy.journal.reader import read_rows
from argosy.journal.recorder import Recorder
from argosy.journal.schema import Header
from argosy.layout.fits import check_batch, check_model
from argosy.layout.layout import Layout
from argosy.layout.work import Work
from argosy.optim.build import build_optimizer
from argosy.parallel.compiling import compilation_booked
from argosy.parallel.groups import control_group, use_stamped_groups
from argosy.parallel.guard import CollectiveGuard
from argosy.parallel.mesh import build_mesh
from argosy.parallel.precision import DTYPES
from argosy.parallel.program import Program
from argosy.parallel.rendezvous import meet
from argosy.parallel.translate import translate
from argosy.recipe.schema import Recipe
from argosy.registry.run_folder import RunFolder
from argosy.training.guarding import Guarding
from argosy.training.loop import Ranks, Trainer
from argosy.training.memory import MemoryWatch
from argosy.training.memory_tier import open_memory
from argosy.training.noise import NoiseWatch
from argosy.training.observers import Observer, Ready
from argosy.training.peak import matmul_peak
from argosy.training.phases import Phases
from argosy.training.profiler import StepProfiler
from argosy.training.resume import resume
from argosy.training.saving import open_saving
from argosy.training.steering import Account, Pace, Signals, Steering
from argosy.training.step_over import step_over


@dataclass(frozen=True)
class Place:
    """What the launcher (or torchrun, or srun) told this process."""

    run_dir: Path
    attempt: int
    rank: int
    world_size: int
    local_rank: int
    paid_before_ns: int
    data_folder: Path | None = None
    """Where the launcher prepared the data; None: this process looks for itself."""
    first_line_ns: int = 0
    """Monotonic clock when the process ran its first own line."""
    imported_ns: int = 0
    """Monotonic clock when torch was imported."""


def train_rank(place: Place, observers: Sequence[Observer] = (), store: dist.Store | None = None) -> Exit:
    """Run one rank to its end; its exit code. Raises ArgosyError for what a user can act on.

    `store` is where the ranks meet; None: at the file of the attempt where rank 0 says so.
    """
    run = RunFolder.open(place.run_dir)
    recipe = run.recipe()
    layout = Layout.for_recipe(recipe, place.world_size)
    check_batch(layout, recipe.batch_sequences)
    check_model(layout, recipe.model, recipe.data.sequence_length)
    device = _device(recipe, place)
    torch.manual_seed(recipe.run.seed)  # nothing of training draws from it, but by itself it begins anywhere
    recorder = _open_journal(run, recipe, layout, place, device)
    try:
        compiling = compilation_booked(recorder) if layout.compile else nullcontext()
        with Signals() as signals, compiling:
            trainer = _build(run, recipe, layout, place, device, store, recorder, signals, observers)
            gc.freeze()
            gc.enable()
            end = trainer.run()
        with recorder.span("teardown"):
            trainer.saving.close()
            if dist.is_initialized():
                dist.destroy_process_group()
    finally:
        recorder.close()
    return end.exit_code


def _device(recipe: Recipe, place: Place) -> torch.device:
    if recipe.run.device == "cpu" or (recipe.run.device == "auto" and not torch.cuda.is_available()):
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 0)) or _fair_threads(place))
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UsageError("no CUDA device here", where="run.device", do="set run.device to 'auto' or 'cpu'")
    device = torch.device("cuda", place.local_rank)
    torch.cuda.set_device(device)
    return device


def _fair_threads(place: Place) -> int:
    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", place.world_size))
    return max(1, this_machine().cores // local_ranks)


def _open_journal(run: RunFolder, recipe: Recipe, layout: Layout, place: Place, device: torch.device) -> Recorder:
    slot = f"{device.type}:{place.local_rank}"
    header = Header.of_this_process(
        run.info.id,
        place.attempt,
        place.rank,
        place.world_size,
        slot,
        seed=recipe.run.seed,
        sample_every=recipe.journal.sample_every,
        layout=asdict(layout),
    )
    page = HeartbeatPage(
        run.heartbeat_file(place.attempt, place.rank), attempt=place.attempt, rank=place.rank, boot_id=header.boot_id
    )
    page.start_beating()
    # With one thread the host is the device: math without a processor is no math.
    watched = device.type == "cpu" and torch.get_num_threads() == 1
    off_cpu = OffCpu(frozenset(INDEX[name] for name in MATH)) if watched else None
    recorder = Recorder(run.rank_file(place.attempt, place.rank), header, page, off_cpu=off_cpu)
    recorder.span_closed("startup.process_start", header.proc_start, place.first_line_ns)
    recorder.span_closed("startup.import", place.first_line_ns, place.imported_ns)
    return recorder


def _build(
    run: RunFolder,
    recipe: Recipe,
    layout: Layout,
    place: Place,
    device: torch.device,
    store: dist.Store | None,
    recorder: Recorder,
    signals: Signals,
    observers: Sequence[Observer],
) -> Trainer:
    say = _Voice(place.rank)
    with recorder.span("startup.rendezvous"):
        guard = CollectiveGuard() if recipe.resilience.check_collectives else None
        group = _join(run, recipe, place, device, store, recorder, guard)
    with recorder.span("startup.comm_init"):
        mesh = build_mesh(layout, device.type) if group is not None else None
    ranks = Ranks(place.rank, layout.data_rank(place.rank), layout.data_ranks, group, device)
    with recorder.span("startup.calibrate"):
        compute = recipe.precision.compute
        peak = matmul_peak(compute, DTYPES[compute], device, group, PeakCache())
        recorder.event("peak", **peak.record())
    with recorder.span("startup.data_seek"):
        data = prepare(recipe) if place.data_folder is None else open_data(place.data_folder, recipe)
        recorder.event("corpus", **_corpus(recipe, data))
    with recorder.span("startup.model_init"):
        work = Work.from_recipe(recipe, layout, data.vocab_size, "cuda" if device.type == "cuda" else "cpu")
        program = translate(work, mesh, recipe.precision, seed=recipe.run.seed, device=device)
        optimizer = build_optimizer(program.named_parameters(), recipe.optimizer)
        if layout.update_in_backward:
            program.update_in_backward(optimizer)
        tree = state_tree(program.named_parameters(), optimizer, place.rank)
    with recorder.span("startup.ckpt_load"):
        manifest = _manifest(run, recipe, layout, place, data)
        memory = open_memory(recipe.checkpoint, run, manifest, tree, group, say)
        state, committed_step = resume(run, recipe, data, manifest, tree, group, memory, recorder)
        program.after_change()
    with recorder.span("startup.data_seek"):
        position = state.position or Position(state.step * recipe.batch_sequences)
        loader = open_loader(recipe, data, position, say)
        if recipe.data.sources:
            position = replace(position, weights=loader.order.mixture.stages)
        state.position = position
        for first, count in step_over(run, state, recipe.batch_sequences):
            samples = loader.order.draw(first, count).sample.tolist()
            recorder.event("decision", what="step_over", s=state.step, first=first, count=count, samples=samples)
    pace = Pace(sum(tensor.nbytes for part in tree.values() for tensor in part.values()))
    account = Account(
        paid_before_ns=place.paid_before_ns,
        opened_ns=_paid_since_ns(run, place),
        devices=place.world_size,
        created_wall_ns=run.info.created_wall_ns,
        price_per_hour=recipe.budget.price_per_device_hour,
    )
    guarding = [] if guard is None else [Guarding(guard)]
    phases = Phases(
        recorder, [*guarding, *_instruments(recipe, layout, recorder, program, tree, state.step, device), *observers]
    )
    models = list(program.models.values())
    phases.ready(Ready(place.rank, place.world_size, group, layout, models, tree, state.step))
    return Trainer(
        recipe=recipe,
        ranks=ranks,
        program=program,
        optimizer=optimizer,
        loader=loader,
        windows=_windows(recipe, data, recipe.eval.tokens),
        final_windows=_windows(recipe, data, recipe.eval.final_tokens),
        tokenizer=data.tokenizer,
        state=state,
        saving=open_saving(
            recipe.checkpoint,
            run.checkpoints,
            manifest,
            tree,
            group,
            memory,
            committed_step,
            pace,
            recorder,
            phases,
            say,
        ),
        steering=Steering(recipe, run.control, account, signals, pace, leads=place.rank == 0),
        pace=pace,
        recorder=recorder,
        phases=phases,
        say=say,
    )


def _manifest(run: RunFolder, recipe: Recipe, layout: Layout, place: Place, data: Prepared) -> Manifest:
    """What is the same in all checkpoints of this attempt."""
    return Manifest(
        run_id=run.info.id,
        step=0,
        generation=place.attempt,
        world_size=place.world_size,
        layout=asdict(layout),
        recipe_hash=run.info.recipe_hash,
        learning_hash=run.info.learning_hash,
        running_hash=run.info.running_hash,
        data_digest=data.digest,
        vocabulary_digest=data.tokenizer.vocabulary_digest,
        code_version=__version__,
        created_wall_s=0.0,
        training={},
        model=recipe.model.model_copy(update={"vocab_size": recipe.vocab_size}).model_dump(
            mode="json", by_alias=True, exclude_none=True
        ),
    )


def _instruments(
    recipe: Recipe,
    layout: Layout,
    recorder: Recorder,
    program: Program,
    tree: Tree,
    first_step: int,
    device: torch.device,
) -> list[Observer]:
    """What looks at sampled steps more closely."""
    seed, every = recipe.run.seed, recipe.journal.sample_every
    profiler = StepProfiler(
        recorder,
        [] if layout.compile else list(program.models.values()),
        device,
        seed=seed,
        every=every,
        share=recipe.journal.profile_share,
        first_step=first_step,
    )
    memory = MemoryWatch(recorder, tree, device, seed=seed, every=every)
    whole_replicas = layout.dp == layout.world_size > 1
    return [profiler, memory, *([NoiseWatch(recorder, seed=seed, every=every)] if whole_replicas else [])]


class _Voice:
    """Rank 0 speaks; the launcher shows its log."""

    def __init__(self, rank: int):
        self._rank = rank

    def __call__(self, line: str) -> None:
        if self._rank == 0:
            print(line, file=sys.stderr, flush=True)


def _join(
    run: RunFolder,
    recipe: Recipe,
    place: Place,
    device: torch.device,
    store: dist.Store | None,
    recorder: Recorder,
    guard: CollectiveGuard | None,
) -> dist.ProcessGroup | None:
    """The control group of all ranks; None for a single rank, which needs none."""
    if place.world_size == 1:
        return None
    timeout_s = recipe.resilience.collective_timeout_s
    if store is None:
        store = meet(run.attempt_folder(place.attempt) / "store", place.rank, place.world_size, timeout_s)
    stamped = use_stamped_groups(recorder, guard=guard)
    dist.init_process_group(
        stamped if device.type == "cpu" else f"cpu:{stamped},cuda:nccl",
        store=dist.PrefixStore(f"{run.info.id}/{place.attempt}", store),
        rank=place.rank,
        world_size=place.world_size,
        timeout=timedelta(seconds=timeout_s),
    )
    return control_group()


def _windows(recipe: Recipe, data: Prepared, tokens: int | None) -> EvaluationWindows:
    return EvaluationWindows(
        data.held_out,
        recipe.data.sequence_length,
        stride_share=recipe.eval.stride_share,
        token_bytes=data.tokenizer.token_bytes,
        tokens=tokens,
    )


def _corpus(recipe: Recipe, data: Prepared) -> dict[str, object]:
    return {
        "source": ", ".join(source.name for source in data.sources) or recipe.data.source,
        "digest": data.digest,
        "train_tokens": data.train_tokens,
        "held_out_tokens": data.held_out.tokens,
        "held_out_bytes": data.held_out_bytes,
        "gzip_bpb": data.gzip_bits_per_byte,
        "xz_bpb": data.xz_bits_per_byte,
    }


def _paid_since_ns(run: RunFolder, place: Place) -> int:
    """When the devices of this host began to be paid for this attempt (monotonic clock)."""
    host = socket.gethostname()
    opened = 0
    for row in read_rows(run.paid_file):
        if row.get("ph") == "open" and row.get("host") == host and row.get("state") == "allocated":
            opened = row["t"]
    return opened
