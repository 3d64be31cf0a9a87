"""Which blocks a pipeline stage has, which stages a rank has, and in what order they work."""

from argosy.layout.layout import Layout
from argosy.layout.schedule import Schedule
from argosy.layout.schedules import SCHEDULES, build


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
