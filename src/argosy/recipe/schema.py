"""The recipe: every knob of a training run, typed and strict.

Each field says its unit and meaning, and what a change of it affects:

``learn``  what is learned changes: the run becomes another run
``run``    only how it runs changes: a run may continue with another value
``books``  only prices and names change

Sizes are checked here as far as one table can know them; what needs two tables is checked in
:class:`Recipe`. Unknown keys are errors (:mod:`argosy.recipe.load` adds the nearest known key).
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from argosy.recipe.field import Exact, Several, Table, knob
from argosy.recipe.model_table import ModelTable


class RunTable(Table):
    name: str = knob("run", "books", "name shown in reports", min_length=1)
    seed: int = knob(0, "learn", "root of all counter-based randomness", ge=0, lt=2**63)
    device: Literal["auto", "cpu", "cuda"] = knob("auto", "run", "where to train; auto takes all GPUs, else the CPU")


class InitTable(Table):
    from_: str | None = knob(
        None,
        "learn",
        "start from the weights of a run (RUN or RUN@STEP), a checkpoint, an imported folder or one of Hugging Face; "
        "empty: random. [model] and [tokenizer] are taken from there where the recipe leaves them out",
        alias="from",
    )
    load: Literal["weights", "weights+optimizer", "all"] = knob(
        "weights", "learn", "what to take from `from`; all: also step, data position and random state"
    )

    @model_validator(mode="after")
    def _load_needs_from(self) -> "InitTable":
        if self.load != "weights" and self.from_ is None:
            raise ValueError(f"load = {self.load!r} needs `from`: what to load it from")
        return self


class LaterWeight(Table):
    """Another weight of a source from some point of the run on."""

    tokens: int = knob(..., "learn", "from the sample at this many tokens on", unit="tokens", ge=1)
    weight: float = knob(..., "learn", "share of samples from then on, relative to the other sources", ge=0)


class SourceTable(Table):
    """One source of a mixture."""

    name: str = knob(..., "learn", "name in records; it also keys the order of the source's samples", min_length=1)
    folder: str = knob(..., "learn", "'stdlib', or a folder made by `argosy data build`")
    weight: float = knob(1.0, "learn", "share of samples, relative to the other sources", ge=0)
    later: Several[LaterWeight] = knob((), "learn", "weights further on in the run, such as for annealing")
    epochs: float | None = knob(
        None, "learn", "most passes over the source, then the others share its weight; empty: no limit", gt=0
    )

    def weight_at(self, tokens: int) -> float:
        """The weight in force after that many tokens of the run."""
        return next((change.weight for change in reversed(self.later) if change.tokens <= tokens), self.weight)

    @model_validator(mode="after")
    def _later_ascends(self) -> "SourceTable":
        at = [change.tokens for change in self.later]
        if at != sorted(set(at)):
            raise ValueError(f"later weights of {self.name!r} must ascend in tokens, not {at}")
        return self


class DataTable(Table):
    source: str = knob(
        "stdlib",
        "learn",
        "'stdlib' (the Python standard library's source), or a folder made by `argosy data build`",
    )
    sources: Several[SourceTable] = knob((), "learn", "a mixture of sources, instead of `source`")
    sequence_length: int = knob(256, "learn", "tokens that one sample trains on", unit="tokens", ge=2)
    packing: Literal["split", "best_fit"] = knob(
        "split", "learn", "cut the stream of documents, or fit whole documents into samples and pad"
    )
    document_masks: bool = knob(
        False, "learn", "documents in a sample do not see each other, positions restart, no loss across the border"
    )
    held_out_share: float = knob(0.05, "learn", "share of stdlib files kept for evaluation, chosen by hash", gt=0, lt=1)
    prefetch: int = knob(2, "run", "steps whose batches are read ahead in the background; 0: none", unit="steps", ge=0)
    cache: str = knob("~/.cache/argosy/data", "books", "folder for data sets that are built on first use")
    digest: str | None = knob(None, "learn", "expected digest of the token shards; empty accepts what is there")

    @model_validator(mode="after")
    def _sources_fit(self) -> "DataTable":
        if not self.sources:
            return self
        if "source" in self.model_fields_set and self.source != "stdlib":
            raise ValueError("give data.source or data.sources, not both")
        names = [one.name for one in self.sources]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two sources are called {twice[0]!r}")
        for tokens in sorted({0, *(change.tokens for one in self.sources for change in one.later)}):
            if not sum(one.weight_at(tokens) for one in self.sources):
                raise ValueError(f"the weights of all sources sum to 0 from {tokens} tokens on")
        return self


class TokenizerTable(Table):
    kind: Literal["bpe", "bytes", "file"] = knob("bpe", "learn", "train a BPE, use raw bytes, or read a tokenizer.json")
    vocab_size: int = knob(4096, "learn", "size of a trained BPE", unit="tokens", ge=257, le=2**31 - 1)
    path: str | None = knob(None, "learn", "tokenizer.json for kind = 'file'")

    @model_validator(mode="after")
    def _path_when_file(self) -> "TokenizerTable":
        if (self.kind == "file") != (self.path is not None):
            raise ValueError("`path` goes with kind = 'file', and only with it")
        return self


class OptimizerTable(Table):
    kind: Literal["adamw", "muon", "sgd"] = knob(
        "adamw", "learn", "update rule; muon takes AdamW outside the blocks; sgd is for equivalence checks"
    )
    learning_rate: float = knob(3e-3, "learn", "peak learning rate", gt=0)
    momentum: float = knob(0.95, "learn", "decay of Muon's momentum", ge=0, lt=1)
    beta1: float = knob(0.9, "learn", "decay of the first moment", ge=0, lt=1)
    beta2: float = knob(0.95, "learn", "decay of the second moment", ge=0, lt=1)
    eps: float = knob(1e-8, "learn", "added to the root of the second moment", gt=0)
    weight_decay: float = knob(0.1, "learn", "decoupled decay of matrices (norms and biases are not decayed)", ge=0)
    clip_norm: float = knob(1.0, "learn", "clip the global gradient norm to this; 0 does not clip", ge=0)


class ScheduleTable(Table):
    kind: Literal["wsd", "cosine", "constant"] = knob("wsd", "learn", "shape of the learning rate over tokens")
    warmup_tokens: int = knob(0, "learn", "linear warm-up from 0", unit="tokens", ge=0)
    decay_share: float = knob(0.2, "learn", "last share of the horizon in which wsd decays", ge=0, le=1)
    final_share: float = knob(0.0, "learn", "learning rate at the end ÷ peak", ge=0, le=1)


class BatchTable(Table):
    tokens: int = knob(8192, "learn", "global batch of one step", unit="tokens", ge=1)


class PrecisionTable(Table):
    compute: Literal["fp32", "bf16"] = knob(
        "fp32", "learn", "dtype of activations and matrix products; weights stay fp32"
    )
    reduce: Literal["fp32", "bf16"] = knob("fp32", "learn", "dtype in which gradients are summed over ranks")


class ObjectiveTable(Table):
    tokens: int = knob(..., "learn", "horizon of the run and of the schedule", unit="tokens", ge=1)
    z_loss: float = knob(0.0, "learn", "weight of the squared log-partition penalty", ge=0)
    target_loss: float | None = knob(
        None, "run", "stop once the evaluation loss is at or below this", unit="nats per token", gt=0
    )
    patience_evals: int | None = knob(
        None, "run", "stop after this many evaluations without a new best by `min_gain`", unit="evaluations", ge=1
    )
    min_gain: float = knob(
        0.0, "run", "smallest improvement that counts for `patience_evals`", unit="nats per token", ge=0
    )


class EvalTable(Table):
    every_steps: int = knob(0, "run", "evaluate at these steps and at the end; 0 only at the end", unit="steps", ge=0)
    tokens: int | None = knob(
        None, "run", "held-out tokens used by the evaluations in between; empty uses all", unit="tokens", ge=1
    )
    final_tokens: int | None = knob(
        None, "run", "held-out tokens used by the evaluation at the end; empty uses all", unit="tokens", ge=1
    )
    stride_share: float = knob(
        1.0, "run", "new tokens per window ÷ sequence length: below 1 every token has context", gt=0, le=1
    )
    sample_prompt: str | None = knob(None, "run", "text that the model continues at the end, for the report")
    sample_tokens: int = knob(64, "run", "length of that continuation", unit="tokens", ge=1)


class CheckpointTable(Table):
    every_steps: int | None = knob(
        None, "run", "steps between checkpoints; empty with every_s empty: interval by Daly", unit="steps", ge=1
    )
    every_s: float | None = knob(None, "run", "seconds between checkpoints", unit="s", gt=0)
    failures_per_day: float = knob(
        1.0, "run", "expected failures of one device, for the Daly interval", unit="1/day", gt=0
    )
    background: bool = knob(False, "run", "write checkpoints beside training, from a copy in shared memory")
    snapshot_every_steps: int | None = knob(
        0,
        "run",
        "steps between snapshots in memory that outlives the ranks; 0: none; empty: each step while that takes less "
        "than 2 % of it, else by Daly",
        unit="steps",
        ge=0,
    )
    copy_to: str | None = knob(None, "run", "folder or URL (of fsspec) that checkpoints are copied to")
    copy_every_s: float = knob(0.0, "run", "seconds between copies, at least", unit="s", ge=0)
    keep_last: int = knob(2, "run", "newest checkpoints kept", ge=1)
    keep_every_steps: int | None = knob(None, "run", "also keep checkpoints at multiples of this", unit="steps", ge=1)
    keep_best: int = knob(0, "run", "also keep those of the lowest evaluation loss", ge=0)
    keep_before_steps: int | None = knob(
        None, "run", "also keep one that is older: corruption can go unnoticed for so long", unit="steps", ge=1
    )

    @model_validator(mode="after")
    def _one_interval(self) -> "CheckpointTable":
        if self.every_steps is not None and self.every_s is not None:
            raise ValueError("give every_steps or every_s, not both")
        return self


class ResilienceTable(Table):
    skipped_updates_limit: int = knob(8, "run", "non-finite updates in a row before the run stops", unit="steps", ge=1)
    collective_timeout_s: float = knob(600.0, "run", "a collective that takes longer ends the attempt", unit="s", gt=0)
    restarts_limit: int = knob(
        3, "run", "restarts of all ranks without a new checkpoint in between before a person is needed; 0: none", ge=0
    )
    warm: bool = knob(True, "run", "fork ranks from a process that has torch loaded, so that they start in moments")
    heartbeat_limit_s: float = knob(
        5.0, "run", "a rank that has not beaten for longer (it beats each 0.5 s) is ended", unit="s", ge=1
    )
    step_limit_factor: float = knob(10.0, "run", "a step may take this many times the median of the last ones", ge=2)
    step_limit_s: float = knob(5.0, "run", "and always this long", unit="s", gt=0)
    phase_limit_s: float = knob(
        600.0, "run", "limit of start-up, compilation, first steps, evaluation and save, each", unit="s", gt=0
    )
    digest_every_steps: int = knob(
        20, "run", "steps between comparisons of the replicas' state, where there are replicas; 0: none", ge=0
    )
    check_collectives: bool = knob(
        False,
        "run",
        "before each collective compare what all its ranks are about to do (for debugging; slow, CPU only)",
    )
    roll_back_on_spike: bool = knob(
        True, "run", "go back before a loss spike and leave its batches out; false: train through it"
    )
    grace_s: float = knob(
        30.0, "run", "from SIGTERM to the launcher until its ranks must have saved and ended", unit="s", gt=0
    )

    @model_validator(mode="after")
    def _limits_agree(self) -> "ResilienceTable":
        if self.phase_limit_s < self.step_limit_s:
            raise ValueError("phase_limit_s is below step_limit_s: a slow phase cannot have less time than a step")
        return self


class BudgetTable(Table):
    money: Exact | None = knob(None, "run", "stop before the run has cost more", unit="currency", gt=0)
    device_hours: float | None = knob(None, "run", "stop before the run has been paid more", unit="h", gt=0)
    deadline_s: float | None = knob(None, "run", "stop before this long after the run was created", unit="s", gt=0)
    price_per_device_hour: Exact | None = knob(
        None,
        "books",
        "price of one device (on a CPU: of one rank's slot); empty: unknown, 0: free",
        unit="currency/h",
        ge=0,
    )
    value_per_day: Exact | None = knob(
        None, "books", "worth of being done a day earlier, for the simulator; empty: 0", unit="currency/d", ge=0
    )
    currency: str = knob("USD", "books", "currency of prices", pattern="^[A-Z]{3}$")
    hold: Literal["released", "reserved"] = knob("released", "books", "reserved: devices are paid between attempts too")


MeshAxis = Literal["pp", "dp", "fsdp", "cp", "tp"]
PipelineSchedule = Literal[
    "gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "zero_bubble", "interleaved_zero_bubble", "zbv", "dualpipev"
]


class LayoutTable(Table):
    dp: int = knob(1, "run", "data-parallel replicas", ge=1)
    fsdp: Annotated[int, Field(ge=1)] | Literal["auto"] = knob(
        "auto",
        "run",
        "ranks that share one copy of the state; auto takes all that are left, or makes them replicas while one copy "
        "of weights, gradients and moments is at most 512 MiB (then dp and zero must be left out)",
    )
    cp: int = knob(1, "run", "context-parallel degree", ge=1, le=1)
    tp: int = knob(1, "run", "tensor-parallel degree, with the sequence split between the products", ge=1)
    pp: int = knob(1, "run", "pipeline ranks", ge=1)
    ep: int = knob(1, "run", "expert-parallel degree", ge=1, le=1)
    order: Several[MeshAxis] = knob(
        ("pp", "dp", "fsdp", "cp", "tp"), "run", "axes from the outermost to that of neighbouring ranks"
    )
    zero: Literal[1, 2, 3] | None = knob(
        None,
        "run",
        "what fsdp shards: 1 optimizer state, 2 also gradients, 3 also weights; empty: 3, or 2 without "
        "reshard_after_forward",
    )
    schedule: PipelineSchedule | None = knob(None, "run", "order of work in the pipeline; empty: 1f1b")
    virtual_stages: int | None = knob(
        None, "run", "stages on each pipeline rank; empty: as few as the schedule has", ge=1
    )
    stage_layers: Several[int] | None = knob(
        None, "run", "blocks of each stage; empty: evenly, the first stages one more"
    )
    micro_batch_sequences: int | None = knob(
        None, "run", "sequences of one forward on one rank; empty: all of the rank's share", unit="sequences", ge=1
    )
    recompute: Literal["none", "selective", "full"] = knob(
        "none", "run", "what a block computes again in backward: nothing, its cheap operators, or all of it"
    )
    recompute_budget_bytes: int | None = knob(
        None, "run", "room for saved activations on a rank: no more blocks than needed are recomputed; empty: all are",
        unit="bytes", ge=0,
    )  # fmt: skip
    reshard_after_forward: bool = knob(True, "run", "free gathered parameters between forward and backward")
    prefetch: int = knob(1, "run", "blocks whose parameters are gathered ahead of use", unit="blocks", ge=1)
    update_in_backward: bool = knob(
        False, "run", "update each weight once its gradient is there, and free that (needs optimizer.clip_norm = 0)"
    )
    compile: bool = knob(False, "run", "torch.compile each block (needs a C++ compiler on a CPU)")


class JournalTable(Table):
    sample_every: int = knob(
        100, "run", "steps between those of which order, collectives and memory are recorded", unit="steps", ge=1
    )
    profile_share: float = knob(
        0.005, "run", "most share of the time of steps that profiling sampled ones may take; 0: none", ge=0, le=0.5
    )


class Recipe(Table):
    """A whole recipe; `argosy recipe explain TABLE.KEY` prints any field's meaning."""

    run: RunTable = RunTable()
    init: InitTable = InitTable()
    model: ModelTable = ModelTable()
    data: DataTable = DataTable()
    tokenizer: TokenizerTable = TokenizerTable()
    optimizer: OptimizerTable = OptimizerTable()
    schedule: ScheduleTable = ScheduleTable()
    batch: BatchTable = BatchTable()
    precision: PrecisionTable = PrecisionTable()
    objective: ObjectiveTable
    eval: EvalTable = EvalTable()
    checkpoint: CheckpointTable = CheckpointTable()
    resilience: ResilienceTable = ResilienceTable()
    budget: BudgetTable = BudgetTable()
    layout: LayoutTable = LayoutTable()
    journal: JournalTable = JournalTable()

    @model_validator(mode="after")
    def _tables_fit(self) -> "Recipe":
        length = self.data.sequence_length
        if self.batch.tokens % length:
            below = self.batch.tokens // length * length
            raise ValueError(
                f"batch.tokens {self.batch.tokens} is not a multiple of data.sequence_length {length}; "
                f"nearest: {', '.join(str(n) for n in (below, below + length) if n)}"
            )
        if length > self.model.max_positions:
            raise ValueError(f"data.sequence_length {length} is above model.max_positions {self.model.max_positions}")
        of_tokenizer = self._tokenizer_vocab_size
        if self.model.vocab_size is not None and of_tokenizer is not None and self.model.vocab_size < of_tokenizer:
            raise ValueError(f"model.vocab_size {self.model.vocab_size} is below the tokenizer's {of_tokenizer}")
        if self.layout.update_in_backward and self.optimizer.clip_norm:
            raise ValueError(
                "layout.update_in_backward needs optimizer.clip_norm = 0: the norm is known only after all updates"
            )
        if self.schedule.warmup_tokens > self.objective.tokens:
            raise ValueError(
                f"schedule.warmup_tokens {self.schedule.warmup_tokens} is above "
                f"objective.tokens {self.objective.tokens}"
            )
        if (self.objective.target_loss or self.objective.patience_evals) and not self.eval.every_steps:
            raise ValueError("objective.target_loss and objective.patience_evals need eval.every_steps above 0")
        if self.budget.money is not None and not self.budget.price_per_device_hour:
            raise ValueError("budget.money needs budget.price_per_device_hour above 0")
        return self

    @property
    def vocab_size(self) -> int | None:
        """Rows of the embedding, or None when only the tokenizer file knows."""
        return self.model.vocab_size if self.model.vocab_size is not None else self._tokenizer_vocab_size

    @property
    def _tokenizer_vocab_size(self) -> int | None:
        return {"bpe": self.tokenizer.vocab_size, "bytes": 257, "file": None}[self.tokenizer.kind]

    @property
    def batch_sequences(self) -> int:
        """Sequences of one global batch."""
        return self.batch.tokens // self.data.sequence_length

    @property
    def total_steps(self) -> int:
        """Steps to the horizon; the last one may pass it."""
        return -(-self.objective.tokens // self.batch.tokens)
