"""The layouts that are compared with one process, on 1 to 8 ranks: each axis alone, and how they go together.

What a row trains on follows from its layout: as many micro-batches as its schedule needs, in a model with as many
blocks as it has stages.
"""

from dataclasses import dataclass

from equivalence import Form

from programs import Split


@dataclass(frozen=True)
class Row:
    """A layout with the steps to take on it."""

    split: Split
    forms: tuple[Form, ...]

    def __str__(self) -> str:
        return str(self.split)


# An odd vocabulary, and widths that 3 and mostly 4 do not divide; enough heads for the tensor-parallel rows.
WIDE = (("heads", 4), ("kv_heads", 4), ("hidden_size", 20), ("head_dim", 6), ("ffn_size", 28))
DEEP = (*WIDE, ("layers", 4))
DEEPER = (*WIDE, ("layers", 6))
GPT2 = (
    *WIDE,
    ("kv_heads", 4),
    ("bias", "all"),
    ("norm", "layernorm"),
    ("activation", "gelu"),
    ("positions", "learned"),
)


def _forms(*micro_batches: int, fields: tuple = WIDE, steps: int = 3) -> tuple[Form, ...]:
    """Untied and tied in turn."""
    return tuple(Form(m, tied=bool(i % 2), steps=steps, fields=fields) for i, m in enumerate(micro_batches))


def _pipe(schedule: str | None, micro_batches: int, *, fields: tuple = DEEP, **degrees: object) -> Row:
    split = Split(schedule=schedule, **degrees)  # type: ignore[arg-type]
    return Row(split, _forms(micro_batches, micro_batches, fields=fields))


PLAIN = [
    Row(Split(), (*_forms(1, 3, steps=10), *_forms(1, fields=GPT2))),
    Row(Split(dp=2), _forms(1, 3, steps=10)),
    Row(Split(dp=3), _forms(2, 1)),
    Row(Split(dp=4), _forms(1, 3)),
    Row(Split(fsdp=2), (*_forms(1, 3, steps=10), *_forms(3, fields=GPT2))),
    Row(Split(fsdp=2, reshard=False), _forms(1, 3)),
    Row(Split(fsdp=2, prefetch=2), _forms(1, 3)),
    Row(Split(fsdp=3), _forms(1, 2)),
    Row(Split(fsdp=4), _forms(3, 1)),
    Row(Split(fsdp=6), _forms(2, 1)),
    Row(Split(dp=2, fsdp=2), _forms(1, 3)),
    Row(Split(dp=2, fsdp=2, reshard=False), _forms(3, 1)),
    Row(Split(dp=2, fsdp=3), _forms(1, 2)),
    Row(Split(dp=3, fsdp=2), _forms(2, 1)),
    Row(Split(fsdp=2, order=("fsdp", "pp", "dp", "cp", "tp")), _forms(1, 3)),
    Row(Split(dp=2, fsdp=2, order=("pp", "fsdp", "dp", "cp", "tp")), _forms(1, 3)),
]
OPTIMIZER_STATE = [
    Row(Split(fsdp=2, zero=1), _forms(1, 3, steps=10)),
    Row(Split(fsdp=3, zero=1), _forms(2, 1)),
    Row(Split(dp=2, fsdp=2, zero=1), _forms(1, 3)),
    Row(Split(fsdp=3, tp=2, zero=1), (*_forms(1, 3), *_forms(1, fields=GPT2))),
    _pipe("1f1b", 3, pp=2, fsdp=2, zero=1),
    _pipe("zbv", 6, pp=2, fsdp=2, zero=1),
]
TENSOR = [
    Row(Split(tp=2), (*_forms(1, 3, steps=10), *_forms(1, 3, fields=GPT2))),
    Row(Split(tp=4), (*_forms(1, 3), *_forms(1, fields=GPT2))),
    Row(Split(dp=2, tp=2), (*_forms(1, 3), *_forms(3, fields=GPT2))),
    Row(Split(dp=3, tp=2), _forms(1, 2)),
    Row(Split(fsdp=2, tp=2), (*_forms(1, 3), *_forms(3, fields=GPT2))),
    Row(Split(fsdp=2, tp=2, reshard=False), _forms(3, 1)),
    Row(Split(fsdp=3, tp=2), _forms(1, 2)),
    Row(Split(fsdp=2, tp=4), _forms(3, 1)),
    Row(Split(dp=2, fsdp=2, tp=2), _forms(1, 3)),
    Row(Split(fsdp=2, tp=2, order=("tp", "pp", "dp", "fsdp", "cp")), _forms(1, 3)),
]
RECOMPUTED = [
    Row(Split(recompute="full"), _forms(1, 3)),
    Row(Split(recompute="selective"), _forms(1, 3)),
    Row(Split(fsdp=2, recompute="full"), _forms(3, 1)),
    Row(Split(fsdp=2, recompute="selective"), _forms(1, 3)),
    Row(Split(tp=2, recompute="full"), _forms(1, 3)),
    Row(Split(tp=2, recompute="selective"), _forms(3, 1)),
    Row(Split(fsdp=2, tp=2, recompute="full"), _forms(1, 3)),
    _pipe("1f1b", 4, pp=2, recompute="full"),
    _pipe("zbv", 4, pp=2, recompute="full"),
]
PIPELINE = [
    _pipe("1f1b", 1, pp=2),
    _pipe("1f1b", 3, pp=2),
    _pipe("1f1b", 6, pp=2),
    _pipe("1f1b", 6, pp=3),
    _pipe("1f1b", 4, pp=4),
    _pipe("1f1b", 3, pp=3, stage_layers=(1, 3, 2), fields=DEEPER),
    _pipe("1f1b", 3, pp=2, fields=(*GPT2, ("layers", 3))),
    _pipe("1f1b", 3, pp=2, tp=2),
    _pipe("1f1b", 3, pp=2, dp=2),
    _pipe("1f1b", 3, pp=2, fsdp=2),
    _pipe("1f1b", 3, pp=2, fsdp=2, tp=2),
    _pipe("1f1b", 3, pp=2, dp=2, tp=2),
    _pipe("1f1b", 3, pp=2, dp=2, fsdp=2),
    _pipe("1f1b", 3, pp=2, fsdp=2, order=("fsdp", "dp", "cp", "tp", "pp")),
    _pipe("interleaved_1f1b", 4, pp=2),
    _pipe("interleaved_1f1b", 6, pp=3, fields=DEEPER),
    _pipe("interleaved_1f1b", 2, pp=2, tp=2),
    _pipe("interleaved_1f1b", 2, pp=2, fsdp=2),
    _pipe("interleaved_1f1b", 2, pp=2, fsdp=2, tp=2),
    _pipe("interleaved_1f1b", 2, pp=2, dp=2),
    _pipe("zbv", 4, pp=2),
    _pipe("zbv", 6, pp=3, fields=DEEPER),
    _pipe("zbv", 4, pp=2, tp=2),
    _pipe("zbv", 6, pp=2, fsdp=2),
    _pipe("zbv", 6, pp=2, fsdp=2, tp=2),
    _pipe("zbv", 6, pp=2, dp=2),
    _pipe("gpipe", 3, pp=2),
    _pipe("looped_bfs", 3, pp=2),
    _pipe("zero_bubble", 4, pp=2),
    _pipe("interleaved_zero_bubble", 4, pp=2),
    _pipe("dualpipev", 4, pp=2),
]
DOCUMENTS = [
    Row(split, (Form(3, steps=3, fields=DEEP, documents=True), Form(3, fields=GPT2, documents=True)))
    for split in (Split(), Split(tp=2), Split(fsdp=2, tp=2), Split(pp=2, schedule="1f1b"))
]
"""Several texts in each sequence, which must not see each other."""
ROWS = PLAIN + OPTIMIZER_STATE + TENSOR + RECOMPUTED + PIPELINE + DOCUMENTS
