"""One layout in full: its terms of time and memory, its collectives, a picture of its pipeline."""

import re
from dataclasses import asdict, dataclass
from typing import Any

from argosy.errors import UsageError
from argosy.hardware.cluster import Cluster
from argosy.layout.fits import check_batch, check_model
from argosy.layout.inventory import Inventory, inventory
from argosy.layout.layout import Layout
from argosy.layout.picture import Picture, picture
from argosy.layout.schedules import SCHEDULES
from argosy.layout.stages import balanced_stage_layers, schedule_of, stage_blocks, stage_work
from argosy.planner.answer import links
from argosy.planner.explain import Term, terms
from argosy.planner.predict import BINDING
from argosy.planner.question import Question
from argosy.planner.search import Found, found_for, played_step_s, search, to_record

DRAWN_MICRO_BATCHES = 8
"""More would not fit a terminal; the pattern repeats."""


@dataclass(frozen=True)
class Detail:
    """Everything about layout `index` of `found`."""

    found: Found
    index: int
    layout: Layout
    inventories: tuple[Inventory, ...]
    """Of the first rank of each pipeline rank, or of the one that was asked for."""
    memory_terms: list[Term]
    time_terms: dict[str, float]
    """Seconds by term, largest first; they add up to the step time."""
    played_s: float
    """Step time with the pipeline played action by action."""
    picture: Picture | None
    stage_work: list[float]
    """Of each pipeline stage, in blocks; embedding and loss included."""
    balanced: tuple[int, ...]
    """Blocks of each stage that would even out their work."""
    balanced_work: list[float]
    """Of each stage then."""

    def to_json(self) -> dict[str, Any]:
        return to_record(self.found, self.index) | {
            "schema": 2,
            "time_s": self.time_terms,
            "played_step_time_s": self.played_s,
            "memory": [asdict(term) for term in self.memory_terms],
            "links": links(self.layout, self.found.cluster),
            "ranks": [asdict(i) for i in self.inventories],
            "schedule": None if self.picture is None else self.picture.to_json(),
            "stage_work_blocks": self.stage_work,
            "balanced_stage_layers": self.balanced,
        }


def detail(question: Question, cluster: Cluster, layout_text: str | None = None, rank: int | None = None) -> Detail:
    """The layout that `layout_text` names on `cluster`: words like ``tp=8,pp=2``, or ``best``. None takes the
    recipe's own, and the best where there is no recipe. `rank` asks for the inventory of one rank.

    Raises UsageError for degrees that do not fit the model, the batch or the number of accelerators.
    """
    asked = _asked(question, cluster, layout_text)
    found = search(question, cluster) if asked is None else found_for(question, cluster, asked)
    index = found.best
    layout = found.layout(index) if asked is None else asked
    time = found.prediction.time
    terms_s = {BINDING[name]: float(getattr(time, name)[index]) for name in BINDING}
    work = question.work(layout, "cpu" if cluster.part.die == "cpu" else "cuda")
    model, length = question.model, question.sequence_length
    counts = [len(blocks) for blocks in stage_blocks(layout, model.layers)]
    balanced = balanced_stage_layers(model, question.vocab_size, layout.stages, sequence_length=length)
    return Detail(
        found=found,
        index=index,
        layout=layout,
        inventories=tuple(inventory(work, one) for one in _ranks(layout, rank)),
        memory_terms=terms(found.prediction.memory, index),
        time_terms=dict(sorted(((k, v) for k, v in terms_s.items() if v > 0), key=lambda item: -item[1])),
        played_s=played_step_s(found, index),
        picture=draw(layout),
        stage_work=stage_work(model, question.vocab_size, counts, sequence_length=length),
        balanced=balanced,
        balanced_work=stage_work(model, question.vocab_size, balanced, sequence_length=length),
    )


def _asked(question: Question, cluster: Cluster, layout_text: str | None) -> Layout | None:
    """The layout in question; None for the best."""
    if layout_text == "best" or (layout_text is None and question.layout is None):
        return None
    if layout_text is not None:
        layout = parse_layout(layout_text, question, cluster)
    else:
        assert question.layout is not None
        layout = Layout.from_recipe(question.layout, cluster.count, question.parameters)
    check_model(layout, question.model, question.sequence_length, question.vocab_size)
    check_batch(layout, question.batch_sequences)
    return layout


def _ranks(layout: Layout, rank: int | None) -> list[int]:
    if rank is None:
        return [layout.rank({"pp": index}) for index in range(layout.pp)]
    if rank >= layout.world_size:
        raise UsageError(f"there is no rank {rank} of {layout.world_size}", where="--rank")
    return [rank]


def parse_layout(text: str, question: Question, cluster: Cluster) -> Layout:
    """The layout that words like ``tp=8,pp=2,micro_batch=1`` mean; ranks that are left go to fsdp."""
    values: dict[str, Any] = {}
    known = {"tp", "pp", "cp", "dp", "fsdp", "zero", "virtual_stages", "micro_batch", "recompute", "schedule"}
    for word in filter(None, re.split(r"[,\s]+", text)):
        name, _, value = word.partition("=")
        if name not in known or not value:
            raise UsageError(
                f"{word!r} is not understood", where="--layout", do=f"write NAME=VALUE of {', '.join(sorted(known))}"
            )
        values[name] = value if name in ("recompute", "schedule") else _integer(value, name)
    tp, pp, cp = (values.get(axis, 1) for axis in ("tp", "pp", "cp"))
    rest, left = divmod(cluster.count, tp * pp * cp)
    if left or not rest:
        raise UsageError(
            f"tp {tp} · pp {pp} · cp {cp} does not divide {cluster.count} accelerators",
            where="--layout",
            do=f"use {cluster.count // (tp * pp * cp) * tp * pp * cp or tp * pp * cp} accelerators, or other degrees",
        )
    dp = values.get("dp", 1 if "fsdp" not in values else rest // max(1, values["fsdp"]))
    fsdp = values.get("fsdp", rest // dp)
    if dp * fsdp != rest:
        raise UsageError(f"dp {dp} · fsdp {fsdp} is not the {rest} ranks that are left", where="--layout")
    virtual = values.get("virtual_stages", 1)
    schedule: Any
    schedule = values.get("schedule") or ("none" if pp == 1 else "interleaved_1f1b" if virtual > 1 else "1f1b")
    micro = values.get("micro_batch", 1)
    return Layout(
        dp=dp,
        fsdp=fsdp,
        tp=tp,
        pp=pp,
        cp=cp,
        zero=values.get("zero", 0 if fsdp == 1 else 3),
        schedule=schedule,
        virtual_stages=virtual,
        micro_batch_sequences=micro,
        recompute=values.get("recompute", "none"),
        compile=True,
        reshard_after_forward=values.get("zero", 3) == 3,
    )


def draw(layout: Layout) -> Picture | None:
    """The pipeline of `layout` with few micro-batches; None without one, and for one too large to look at."""
    if layout.pp == 1:
        return None
    form = SCHEDULES[layout.schedule]
    m = -(-max(DRAWN_MICRO_BATCHES, form.rounds * layout.pp) // layout.pp) * layout.pp
    if layout.stages * m > 2000:
        return None
    return picture(schedule_of(layout, m))


def _integer(text: str, name: str) -> int:
    if not text.isdigit() or int(text) < (0 if name == "zero" else 1):
        raise UsageError(f"{name} must be a whole number, not {text!r}", where="--layout")
    return int(text)
