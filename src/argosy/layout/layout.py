"""How a run is split over ranks: degrees and order of the parallel axes, and which are possible.

A layout changes speed and memory, never what is learned.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from argosy.errors import UsageError
from argosy.layout.near import divisors, listed, near
from argosy.layout.schedules import SCHEDULES
from argosy.recipe.flops import parameter_count
from argosy.recipe.schema import LayoutTable, Recipe

Axis = Literal["dp", "fsdp", "cp", "tp", "pp", "ep"]
MESH_AXES: tuple[Axis, ...] = ("pp", "dp", "fsdp", "cp", "tp")
"""Axes that multiply to the world size, outermost first by default: the axis that talks most is innermost,
where neighbours share the fastest link. `ep` is carved out of dp·fsdp."""
REPLICATED_STATE_BYTES = 512 << 20
"""Up to here each rank holds a whole copy of the state by default. Sharding it saves memory that nobody misses, for
three transfers a block in place of one a step (bench/speed.py compares them)."""
_STATE_BYTES_PER_PARAMETER = 16  # fp32 weight, gradient and two moments


@dataclass(frozen=True)
class Layout:
    """Degrees and order of the axes, and how each rank runs its part (INTERFACES 1)."""

    dp: int = 1
    """Replicas; together with fsdp > 1 this is HSDP."""
    fsdp: int = 1
    """Ranks that share one copy of the state."""
    cp: int = 1
    """Ranks that share one sequence."""
    tp: int = 1
    """Ranks that share each matrix."""
    pp: int = 1
    """Pipeline ranks."""
    ep: int = 1
    """Ranks of dp·fsdp that share the experts."""
    order: tuple[Axis, ...] = MESH_AXES
    """Outermost first; neighbours in rank differ in the last axis."""
    zero: Literal[0, 1, 2, 3] = 0
    """What the fsdp axis shards: nothing, optimizer state, and gradients, and parameters."""
    schedule: str = "none"
    """A name of :data:`argosy.layout.schedules.SCHEDULES`; ``none`` without a pipeline."""
    virtual_stages: int = 1
    """Stages of the model on one pipeline rank."""
    stage_layers: tuple[int, ...] | None = None
    """Blocks of each stage, or None for an even split."""
    micro_batch_sequences: int | None = None
    """Sequences of one forward on one rank; None means all of the rank's share."""
    recompute: Literal["none", "selective", "full"] = "none"
    """What a block computes again in backward: nothing, its cheap operators, all."""
    recompute_budget_bytes: int | None = None
    """Room for saved activations on a rank; just as many blocks as needed are recomputed. None: all are."""
    compile: bool = False
    update_in_backward: bool = False
    """Update each weight once its gradient is summed, and free that."""
    reshard_after_forward: bool = True
    prefetch: int = 1
    """Blocks whose parameters are gathered ahead of use."""

    def __post_init__(self) -> None:
        if wrong := list(self._contradictions()):
            raise UsageError("; ".join(wrong), where="layout")

    @classmethod
    def for_recipe(cls, recipe: Recipe, world_size: int) -> "Layout":
        """The layout of a run of `recipe` on `world_size` ranks; see :meth:`from_recipe`."""
        vocabulary = recipe.vocab_size
        count = None if vocabulary is None else parameter_count(recipe.model, vocabulary)
        return cls.from_recipe(recipe.layout, world_size, count)

    @classmethod
    def from_recipe(cls, table: LayoutTable, world_size: int, parameters: int | None = None) -> "Layout":
        """The layout that `table` asks for on `world_size` ranks.

        ``fsdp = "auto"`` takes the ranks that are left. If `table` says nothing else about data parallelism and a
        rank's share of the `parameters` has a state of at most :data:`REPLICATED_STATE_BYTES`, they become replicas
        (dp) instead. Raises UsageError that says which values would do.
        """
        dp, others = table.dp, table.cp * table.tp * table.pp
        fsdp = max(1, world_size // (dp * others)) if table.fsdp == "auto" else table.fsdp
        if _replicates(table, parameters):
            dp, fsdp = fsdp, dp
        if dp * fsdp * others != world_size:
            degrees = " · ".join(f"{axis} {getattr(table, axis)}" for axis in MESH_AXES)
            raise UsageError(
                f"{degrees} does not make a world size of {world_size}", where="layout", do=_remedy(table, world_size)
            )
        zero: Any = table.zero or (3 if table.reshard_after_forward else 2)
        if zero == 3 and not table.reshard_after_forward:
            raise UsageError(
                "zero 3 frees weights after the forward, which reshard_after_forward = false forbids",
                where="layout.zero",
                do="use zero 2, or leave reshard_after_forward out",
            )
        if fsdp == 1 and (table.fsdp == "auto" or table.zero is None):
            zero = 0  # nothing to share the state with
        schedule = table.schedule or ("none" if table.pp == 1 else "1f1b")
        return cls(
            dp=dp,
            fsdp=fsdp,
            cp=table.cp,
            tp=table.tp,
            pp=table.pp,
            ep=table.ep,
            order=table.order,
            zero=zero,
            schedule=schedule,
            virtual_stages=_virtual_stages(table, schedule),
            stage_layers=table.stage_layers,
            micro_batch_sequences=table.micro_batch_sequences,
            recompute=table.recompute,
            recompute_budget_bytes=table.recompute_budget_bytes,
            update_in_backward=table.update_in_backward,
            compile=table.compile,
            reshard_after_forward=zero in (0, 3),
            prefetch=table.prefetch,
        )

    # -- sizes -------------------------------------------------------------------------------------

    @property
    def axis_sizes(self) -> dict[Axis, int]:
        """Degree of each mesh axis, in `order`."""
        return {axis: getattr(self, axis) for axis in self.order}

    @property
    def world_size(self) -> int:
        """Ranks that the layout needs."""
        return math.prod(self.axis_sizes.values())

    @property
    def data_ranks(self) -> int:
        """Ranks that read different sequences: dp·fsdp."""
        return self.dp * self.fsdp

    @property
    def stages(self) -> int:
        """Stages of the pipeline over all its ranks."""
        return self.pp * self.virtual_stages

    def micro_batches(self, batch_sequences: int) -> int:
        """Micro-batches of one step on one rank, for a global batch of so many sequences."""
        share = batch_sequences // self.data_ranks
        return share // (self.micro_batch_sequences or share)

    # -- rank placement ----------------------------------------------------------------------------

    def coordinates(self, rank: int) -> dict[Axis, int]:
        """Position of `rank` on each mesh axis; as torch numbers the ranks of a DeviceMesh of this order."""
        if not 0 <= rank < self.world_size:
            raise ValueError(f"rank {rank} is outside a world of {self.world_size}")
        position: dict[Axis, int] = {}
        for axis in reversed(self.order):
            rank, position[axis] = divmod(rank, getattr(self, axis))
        return {axis: position[axis] for axis in self.order}

    def rank(self, coordinates: dict[Axis, int]) -> int:
        """The rank at `coordinates`; the inverse of :meth:`coordinates`. Absent axes count as 0."""
        rank = 0
        for axis in self.order:
            index, size = coordinates.get(axis, 0), getattr(self, axis)
            if not 0 <= index < size:
                raise ValueError(f"{axis} {index} is outside an axis of {size}")
            rank = rank * size + index
        return rank

    def data_rank(self, rank: int) -> int:
        """Index of the share of the global batch that `rank` reads, in 0 … data_ranks - 1."""
        here = self.coordinates(rank)
        return here["dp"] * self.fsdp + here["fsdp"]

    def group(self, axis: Axis, rank: int) -> list[int]:
        """Ranks that differ from `rank` only along `axis`, in order."""
        here = self.coordinates(rank)
        return [self.rank(here | {axis: index}) for index in range(getattr(self, axis))]

    # -- files -------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """One line of JSON; :meth:`from_json` gives an equal layout."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Layout":
        """The layout in `text`. Raises UsageError when it is no layout."""
        try:
            content: dict[str, Any] = json.loads(text)
            known = {field.name for field in fields(cls)}
            if unknown := sorted(content.keys() - known):
                raise UsageError(f"unknown keys {', '.join(unknown)}", where="layout")
            content["order"] = tuple(content.get("order", MESH_AXES))
            if content.get("stage_layers") is not None:
                content["stage_layers"] = tuple(content["stage_layers"])
            return cls(**content)
        except (ValueError, TypeError, AttributeError) as error:
            raise UsageError(f"is no layout: {error}", where="layout") from None

    # -- validity ----------------------------------------------------------------------------------

    def _contradictions(self) -> Iterator[str]:
        """What is wrong with the layout by itself, whatever the model."""
        for name in ("dp", "fsdp", "cp", "tp", "pp", "ep", "virtual_stages"):
            if getattr(self, name) < 1:
                yield f"{name} is {getattr(self, name)}, but must be at least 1"
                return
        if sorted(self.order) != sorted(MESH_AXES):
            yield f"order {', '.join(self.order)} must name each of {', '.join(MESH_AXES)} once"
        if self.data_ranks % self.ep:
            choices = listed(near(divisors(self.data_ranks), self.ep))
            yield f"ep {self.ep} does not divide dp·fsdp {self.data_ranks}; it may be {choices}"
        form = SCHEDULES.get(self.schedule)
        if form is None and self.schedule != "none":
            yield f"schedule {self.schedule!r} is unknown; it may be {listed(list(SCHEDULES))}"
        elif (self.pp > 1) != (form is not None):
            yield f"schedule {self.schedule!r} does not go with pp {self.pp}"
        elif form is None and self.virtual_stages > 1:
            yield "virtual_stages above 1 needs pp above 1"
        elif form is not None and not form.has(self.virtual_stages):
            yield f"schedule {self.schedule!r} {form.stages_per_rank}, not virtual_stages {self.virtual_stages}"
        if self.stage_layers is not None and (len(self.stage_layers) != self.stages or min(self.stage_layers) < 1):
            yield f"stage_layers must give at least 1 block for each of {self.stages} stages"
        if self.update_in_backward and (
            self.tp > 1 or self.pp > 1 or (self.dp > 1 and self.zero < 2) or self.zero == 1
        ):
            yield (
                "update_in_backward goes with one rank and with fsdp that shards gradients (zero 2 or 3): elsewhere "
                "gradients are summed after the backward pass"
            )
        if self.micro_batch_sequences is not None and self.micro_batch_sequences < 1:
            yield "micro_batch_sequences must be at least 1"
        if self.zero and self.fsdp == 1:
            yield f"zero {self.zero} needs fsdp above 1"
        if self.recompute_budget_bytes is not None and self.recompute == "none":
            yield "recompute_budget_bytes needs recompute 'selective' or 'full': what a block may compute again"


def _replicates(table: LayoutTable, parameters: int | None) -> bool:
    """Whether `table` leaves the choice open and the model is small."""
    open_choice = table.fsdp == "auto" and table.dp == 1 and table.zero is None and table.reshard_after_forward
    if parameters is None or not open_choice:
        return False
    return parameters * _STATE_BYTES_PER_PARAMETER <= REPLICATED_STATE_BYTES * table.tp * table.pp


def _remedy(table: LayoutTable, world_size: int) -> str:
    rest = table.cp * table.tp * table.pp
    if world_size % rest:
        lower = world_size // rest * rest
        return f"use {listed([n for n in (lower, lower + rest) if n])} ranks, or other cp, tp or pp"
    left = world_size // rest
    pairs = [f"dp {dp} fsdp {left // dp}" for dp in near(divisors(left), table.dp)]
    return f"use {listed(pairs)}, or {table.dp * rest * (1 if table.fsdp == 'auto' else table.fsdp)} ranks"


def _virtual_stages(table: LayoutTable, schedule: str) -> int:
    if table.virtual_stages is not None:
        return table.virtual_stages
    return SCHEDULES[schedule].least_virtual_stages if schedule in SCHEDULES else 1
