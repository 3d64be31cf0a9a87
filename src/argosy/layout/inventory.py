"""What one rank of a layout holds, sends and computes in a step: exact counts, no prediction.

What depends on an allocator or on time is not here.
"""

from dataclasses import dataclass

from argosy.layout.activations import peak_bytes, recomputed_blocks
from argosy.layout.layout import Axis
from argosy.layout.stages import rank_stages, stage_blocks
from argosy.layout.traffic import FP32, Collective, traffic
from argosy.layout.weights import StageWeights, parameters_of, rank_weights, share
from argosy.layout.work import Work
from argosy.recipe.flops import forward_flops


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of one step, by the convention of :mod:`argosy.recipe.flops`."""

    forward: int
    backward: int
    recompute: int
    """Of products and attention that are computed again."""

    @property
    def total(self) -> int:
        return self.forward + self.backward + self.recompute


@dataclass(frozen=True)
class Inventory:
    """Of one rank."""

    rank: int
    coordinates: dict[Axis, int]
    stages: tuple[int, ...]
    """Pipeline stages of this rank."""
    blocks: tuple[int, ...]
    """Indices of the blocks on this rank's stages."""
    recomputed_blocks: tuple[int, ...]
    """Those that backward computes again."""
    parameters: int
    """Elements that this rank keeps, after all sharding (without padding); tied copies on one rank count once."""
    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    activation_bytes: int
    """Most that autograd keeps at once, see :mod:`argosy.layout.activations`."""
    flops: Flops
    collectives: tuple[Collective, ...]

    def by_axis(self) -> dict[Axis, int]:
        """Bytes per step on each axis."""
        out: dict[Axis, int] = {}
        for c in self.collectives:
            out[c.axis] = out.get(c.axis, 0) + c.total_bytes
        return out

    def counts(self) -> dict[tuple[str, str, int], int]:
        """Number of collectives of each (axis, op, bytes), as a recorder counts them."""
        out: dict[tuple[str, str, int], int] = {}
        for c in self.collectives:
            out[c.axis, c.op, c.bytes] = out.get((c.axis, c.op, c.bytes), 0) + c.count
        return out


def inventory(work: Work, rank: int = 0) -> Inventory:
    """What `rank` holds, sends and computes in one step of `work`. Weights, gradients and optimizer state are fp32."""
    layout = work.layout
    here = layout.coordinates(rank)
    stages = rank_weights(work.model, work.vocab_size, layout, rank)
    weights = parameters_of(stages)
    shards = layout.fsdp if layout.zero else 1
    updated = [weight.shard(shards, here["fsdp"]) for weight in weights]
    local = sum(updated) if layout.zero >= 2 else sum(weight.size for weight in weights)
    states = sum(size * weight.states(work.optimizer) for weight, size in zip(weights, updated, strict=True))
    numbers = rank_stages(layout, here["pp"])
    blocks = stage_blocks(layout, work.model.layers)
    recomputed = recomputed_blocks(work, rank)
    return Inventory(
        rank=rank,
        coordinates=here,
        stages=numbers,
        blocks=tuple(block for stage in numbers for block in blocks[stage]),
        recomputed_blocks=tuple(sorted(recomputed)),
        parameters=local,
        parameter_bytes=FP32 * local,
        gradient_bytes=FP32 * (_gradients_at_once(work, stages, here["fsdp"]) if layout.update_in_backward else local),
        optimizer_bytes=FP32 * states,
        activation_bytes=peak_bytes(work, rank, recomputed),
        flops=_flops(work, rank, len(recomputed)),
        collectives=tuple(traffic(work, stages, rank, len(recomputed))),
    )


def _gradients_at_once(work: Work, stages: list[StageWeights], index: int) -> int:
    """Elements of gradients that exist together when each weight is updated within backward: those of a group of FSDP2,
    which come together, or of one weight."""
    if work.layout.zero >= 2:
        sizes = [sum(w.shard(work.layout.fsdp, index) for w in unit) for stage in stages for unit in stage.units]
    else:
        sizes = [weight.size for weight in parameters_of(stages)]
    return max(sizes)


def _flops(work: Work, rank: int, recomputed: int) -> Flops:
    layout, model = work.layout, work.model
    here = layout.coordinates(rank)
    numbers = rank_stages(layout, here["pp"])
    blocks = sum(len(stage_blocks(layout, model.layers)[stage]) for stage in numbers)
    tokens = work.tokens * work.micro_batches
    per_token = forward_flops(model, work.vocab_size, work.sequence_length)
    head = per_token.pop("head") // work.vocab_size  # of one row
    block = sum(per_token.values()) // model.layers // layout.tp
    last_product = per_token["mlp.down"] // model.layers // layout.tp  # nothing in backward reads its result
    forward = tokens * blocks * block
    if layout.stages - 1 in numbers:
        forward += tokens * head * share(work.vocab_size, layout.tp, here["tp"])
    again = block - last_product if layout.recompute == "full" else 0
    return Flops(forward, 2 * forward, tokens * recomputed * again)
