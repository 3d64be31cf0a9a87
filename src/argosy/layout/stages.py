"""Which blocks a pipeline stage has, which stages a rank has, and in what order they work."""

from collections.abc import Sequence

from argosy.errors import UsageError
from argosy.layout.layout import Layout
from argosy.layout.schedule import Schedule
from argosy.layout.schedules import SCHEDULES, build
from argosy.recipe.flops import forward_flops
from argosy.recipe.model_table import ModelTable


def schedule_of(layout: Layout, micro_batches: int) -> Schedule:
    """The schedule of a pipeline for a step of so many micro-batches. Needs pp > 1.

    Raises UsageError when it does not exist for so few.
    """
    return build(layout.schedule, layout.pp, layout.virtual_stages, micro_batches)


def stage_blocks(layout: Layout, layers: int) -> list[range]:
    """Blocks of each stage: as the layout says, or even with the first stages one longer."""
    if layout.stage_layers is not None:
        sizes = list(layout.stage_layers)
    else:
        short, longer = divmod(layers, layout.stages)
        sizes = [short + (stage < longer) for stage in range(layout.stages)]
    starts = [sum(sizes[:stage]) for stage in range(layout.stages)]
    return [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]


def rank_stages(layout: Layout, pipeline_rank: int) -> tuple[int, ...]:
    """Stages of a pipeline rank: dealt out in a loop, or in a V."""
    if layout.pp > 1 and SCHEDULES[layout.schedule].v_shaped:
        return (pipeline_rank, 2 * layout.pp - 1 - pipeline_rank)
    return tuple(range(pipeline_rank, layout.stages, layout.pp))


def stage_work(
    model: ModelTable, vocab_size: int, blocks: Sequence[int], *, sequence_length: int, embedding: float = 0.0
) -> list[float]:
    """Work of stages with so many blocks each, in units of one block: the last one also computes the loss.

    `embedding` is the work of the first stage's look-up in the same unit: it has no products, but on some machines
    the memory traffic of its gradient shows.
    """
    flops = forward_flops(model, vocab_size, sequence_length)
    loss = flops.pop("head") / (sum(flops.values()) / model.layers)
    work = [float(count) for count in blocks]
    work[0] += embedding
    work[-1] += loss
    return work


def balanced_stage_layers(
    model: ModelTable, vocab_size: int, stages: int, *, sequence_length: int, embedding: float = 0.0
) -> tuple[int, ...]:
    """Blocks of each stage, at least one, such that the stage with most work, embedding and loss included, has least.

    Raises UsageError for more stages than layers.
    """
    if stages > model.layers:
        raise UsageError(f"{stages} stages need at least as many layers, not {model.layers}", where="layout.pp")
    counts = [1] * stages
    work = stage_work(model, vocab_size, counts, sequence_length=sequence_length, embedding=embedding)
    for _ in range(model.layers - stages):
        least = min(range(stages), key=lambda stage: work[stage])
        counts[least] += 1
        work[least] += 1.0
    return tuple(counts)
