"""Whether a model and a batch can be split as a layout says: found before any process starts."""

import math

from argosy.errors import UsageError
from argosy.layout.layout import Layout
from argosy.layout.near import divisors, listed, near
from argosy.layout.schedules import SCHEDULES
from argosy.recipe.model_table import ModelTable


def check_model(layout: Layout, model: ModelTable, sequence_length: int, vocab_size: int | None = None) -> None:
    """Raise UsageError when `model` cannot be split this way; the message names the degrees that would do.

    `vocab_size` is None where only the tokenizer will tell.
    """
    assert model.kv_heads is not None
    if model.heads % layout.tp or model.kv_heads % layout.tp or model.ffn_size % layout.tp:
        common = math.gcd(model.heads, model.kv_heads, model.ffn_size)
        raise UsageError(
            f"tp {layout.tp} does not divide heads {model.heads}, kv_heads {model.kv_heads} and "
            f"ffn_size {model.ffn_size}",
            where="layout.tp",
            do=f"use {listed(near(divisors(common), layout.tp))}",
        )
    if vocab_size is not None and not _reaches_all(vocab_size, layout.tp):
        raise UsageError(
            f"a vocabulary of {vocab_size} in shares of {-(-vocab_size // layout.tp)} leaves ranks of tp {layout.tp} "
            "without any",
            where="layout.tp",
            do=f"use {listed(near([d for d in range(1, layout.tp) if _reaches_all(vocab_size, d)], layout.tp))}",
        )
    if layout.stages > model.layers:
        raise UsageError(
            f"{layout.stages} pipeline stages need at least as many layers, not {model.layers}",
            where="layout.pp",
            do=f"use {_fewer_stages(layout, model.layers)}",
        )
    if layout.stage_layers is not None and sum(layout.stage_layers) != model.layers:
        raise UsageError(
            f"stage_layers sum to {sum(layout.stage_layers)}, but the model has {model.layers} layers",
            where="layout.stage_layers",
        )
    if layout.cp > 1 and sequence_length % (2 * layout.cp):  # two pieces per rank balance causal attention
        raise UsageError(
            f"sequence_length {sequence_length} is not divisible by 2·cp = {2 * layout.cp}",
            where="layout.cp",
            do=f"use {listed(near(divisors(sequence_length // 2), layout.cp))}",
        )
    if sequence_length % (layout.cp * layout.tp):  # between products each tensor-parallel rank has a piece of it
        raise UsageError(
            f"sequence_length {sequence_length} is not divisible by cp·tp = {layout.cp * layout.tp}",
            where="layout.tp",
            do=f"use {listed(near(divisors(sequence_length // layout.cp), layout.tp))}",
        )


def check_batch(layout: Layout, batch_sequences: int) -> None:
    """Raise UsageError when a global batch cannot be dealt out evenly; the message names batches that would do.

    `batch_sequences` is the global batch in sequences.
    """
    if batch_sequences % layout.data_ranks:
        below = batch_sequences // layout.data_ranks * layout.data_ranks
        batches = [n for n in (below, below + layout.data_ranks) if n]
        raise UsageError(
            f"a batch of {batch_sequences} sequences is not divisible by {layout.data_ranks} data-parallel ranks",
            where="batch.tokens",
            do=f"use {listed(batches)} sequences (times data.sequence_length), "
            f"or {listed(near(divisors(batch_sequences), layout.data_ranks))} ranks",
        )
    share = batch_sequences // layout.data_ranks
    if layout.micro_batch_sequences is not None and share % layout.micro_batch_sequences:
        raise UsageError(
            f"a rank's share of {share} sequences is not divisible by {layout.micro_batch_sequences}",
            where="layout.micro_batch_sequences",
            do=f"use {listed(near(divisors(share), layout.micro_batch_sequences))}",
        )
    if layout.update_in_backward and layout.micro_batches(batch_sequences) > 1:
        raise UsageError(
            f"update_in_backward takes one micro-batch per step, not {layout.micro_batches(batch_sequences)}",
            where="layout.update_in_backward",
            do=f"leave layout.micro_batch_sequences out, or use {share}",
        )
    if layout.pp > 1:
        _check_micro_batches(layout, share)


def _check_micro_batches(layout: Layout, share: int) -> None:
    """Raise UsageError when a rank's `share` of sequences makes no number of micro-batches that the schedule has."""
    form = SCHEDULES[layout.schedule]
    micro_batches = share // (layout.micro_batch_sequences or share)
    if form.accepts(layout.pp, micro_batches):
        return
    sizes = [size for size in divisors(share) if form.accepts(layout.pp, share // size)]
    others = [name for name, other in SCHEDULES.items() if other.has(layout.virtual_stages)
              and other.accepts(layout.pp, micro_batches)]  # fmt: skip
    remedies = [f"micro-batches of {listed(near(sizes, layout.micro_batch_sequences or share))} sequences"] * bool(
        sizes
    )
    remedies += [f"layout.schedule {listed(others)}"] * bool(others)
    remedies += [f"a batch of {form.rounds * layout.pp * layout.data_ranks} sequences"] * (not remedies)
    raise UsageError(
        f"schedule {layout.schedule!r} on {layout.pp} ranks needs {form.needs(layout.pp)}; "
        f"{share} sequences per rank make {micro_batches}",
        where="layout.micro_batch_sequences",
        do=f"use {', or '.join(remedies)}",
    )


def _reaches_all(vocab_size: int, tp: int) -> bool:
    """Whether shares of ceil(vocab_size / tp) rows leave some for the last rank."""
    return -(-vocab_size // tp) * (tp - 1) < vocab_size


def _fewer_stages(layout: Layout, layers: int) -> str:
    most = layers // layout.virtual_stages
    return (
        f"at most {most}" if most > 1 else "no pipeline" if layout.virtual_stages == 1 else "a schedule of fewer stages"
    )
