"""The loader that a recipe asks for, over data that is ready."""

import math
from collections.abc import Callable
from pathlib import Path

from argosy.data.bins import Bins
from argosy.data.loader import Loader
from argosy.data.mixture import Mixture, Stage, stages_of
from argosy.data.packing import BestFit, Packing, Split
from argosy.data.position import Position
from argosy.data.prepare import Prepared
from argosy.data.samples import SampleOrder
from argosy.data.sources import Source
from argosy.errors import InputError
from argosy.recipe.schema import DataTable, Recipe


def open_loader(
    recipe: Recipe, data: Prepared, position: Position, say: Callable[[str], None] = lambda line: None
) -> Loader:
    """A loader for the recipe's mixture, packing and masks, as it has to go on at ``position``.

    Raises:
        InputError: there are fewer samples than one batch, or than the epochs of the sources allow the run.
    """
    table = recipe.data
    packings = [_packing(table, source, say) for source in data.sources]
    for source, packing in zip(data.sources, packings, strict=True):
        if packing.samples < 1:
            raise InputError(
                f"{source.train.tokens} tokens make no sample of {table.sequence_length}",
                where=str(source.folder),
                do="use more text or a shorter data.sequence_length",
            )
    samples = [packing.samples for packing in packings]
    order = sample_order(recipe, data, samples, position)
    _check_amount(recipe, data, samples, order)
    return Loader(packings, order, table.sequence_length, masks=table.document_masks)


def sample_order(recipe: Recipe, data: Prepared, samples: list[int], position: Position) -> SampleOrder:
    """Which sample comes when, given how many each source has."""
    limits = [
        None if one is None or one.epochs is None else max(1, math.floor(one.epochs * count))
        for one, count in zip(recipe.data.sources or [None], samples, strict=True)
    ]
    mixture = Mixture(position.schedule(schedule(recipe.data)), limits)
    return SampleOrder(recipe.run.seed, samples, [source.name for source in data.sources], mixture)


def schedule(table: DataTable) -> list[Stage]:
    """The recipe's weights, over global indices."""
    if not table.sources:
        return [Stage(0, (1.0,))]
    length = table.sequence_length
    later = [{-(-change.tokens // length): change.weight for change in one.later} for one in table.sources]
    return stages_of([one.weight for one in table.sources], later)


def _packing(table: DataTable, source: Source, say: Callable[[str], None]) -> Packing:
    if table.packing == "best_fit":
        cache = Path(table.cache).expanduser()
        return BestFit(source.train, table.sequence_length, Bins.of(source.train, table.sequence_length, cache, say))
    return Split(source.train, table.sequence_length, masks=table.document_masks)


def _check_amount(recipe: Recipe, data: Prepared, samples: list[int], order: SampleOrder) -> None:
    batch, length = recipe.batch_sequences, recipe.data.sequence_length
    if sum(samples) < batch:
        tokens = sum(source.train.tokens for source in data.sources)
        raise InputError(
            f"{tokens} tokens make {sum(samples)} samples of {length}, less than one batch of {batch}",
            where=str(data.folder),
            do="use more text, a smaller batch.tokens or a shorter data.sequence_length",
        )
    needed = recipe.total_steps * batch
    if order.end < needed:
        raise InputError(
            f"the epochs of all sources end after {order.end} samples of {length}, the run needs {needed}",
            where="data.sources",
            do="raise `epochs`, add a source, or lower objective.tokens",
        )
