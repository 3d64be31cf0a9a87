"""Reading from data sets, for people: samples as text, and what a mixture will give."""

from typing import Any

import numpy as np

from argosy.data.mixture import FOREVER
from argosy.data.open_loader import open_loader
from argosy.data.position import Position
from argosy.data.prepare import Prepared
from argosy.recipe.schema import Recipe


def samples(recipe: Recipe, data: Prepared, first: int, count: int) -> list[dict[str, Any]]:
    """What stands at the global indices ``first … first + count - 1`` of a run of the recipe.

    Returns:
        For each: ``index``, ``source``, ``epoch``, ``sample``, ``documents``, ``loss_tokens``, ``pad_tokens``,
        ``text``.
    """
    loader = open_loader(recipe, data, Position())
    batch = loader.batch(((first, count),))
    assert batch.rows is not None
    found = []
    for row, (source, epoch, sample, loss, pad) in enumerate(batch.rows.tolist()):
        tokens = batch.tokens[row].numpy()
        segments = None if batch.segments is None else batch.segments[row].numpy()
        documents = None if segments is None else len(np.unique(segments[: len(tokens) - pad]))
        found.append(
            {
                "index": first + row,
                "source": data.sources[source].name,
                "epoch": epoch,
                "sample": sample,
                "documents": documents,
                "loss_tokens": loss,
                "pad_tokens": pad,
                "text": data.tokenizer.decode(tokens[: len(tokens) - pad].tolist()),
            }
        )
    return found


def mix(recipe: Recipe, data: Prepared) -> dict[str, Any]:
    """What a run of the recipe will draw from each source.

    Returns:
        ``samples``, ``tokens`` of the run; per source its weights (from which token on), what will be ``drawn``, the
        ``target``, ``epochs``, and which share of it is ``repeated``; ``furthest``: how far a source can be from its
        target at any moment, in samples.
    """
    loader = open_loader(recipe, data, Position())
    mixture, length = loader.order.mixture, recipe.data.sequence_length
    index = recipe.total_steps * recipe.batch_sequences
    counts, targets = mixture.counts(index).tolist(), mixture.targets(index).tolist()
    changes = [stage for stage in mixture.changes() if stage.first < index]
    sources = []
    for number, (source, packing) in enumerate(zip(data.sources, loader.packings, strict=True)):
        drawn = counts[number]
        sources.append(
            {
                "name": source.name or str(source.folder),
                "folder": str(source.folder),
                "samples": packing.samples,
                "unique_tokens": source.train.unique_tokens,
                "weights": [[stage.first * length, stage.weights[number] / sum(stage.weights)] for stage in changes],
                "drawn": drawn,
                "target": targets[number],
                "epochs": drawn / packing.samples,
                "repeated": max(0, drawn - packing.samples) / drawn if drawn else 0.0,
            }
        )
    return {
        "schema": 1,
        "samples": index,
        "tokens": index * length,
        "enough_for": None if mixture.end == FOREVER else mixture.end,
        "furthest": mixture.bound(),
        "sources": sources,
    }
