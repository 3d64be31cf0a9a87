"""The whole answer to "what should I run": layout, time, memory, links, days, money, and what would change it."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from argosy.errors import UsageError
from argosy.hardware.cluster import Cluster
from argosy.laws.loss import EPOCH_REPLICATION
from argosy.layout.layout import MESH_AXES, Layout
from argosy.planner import economics
from argosy.planner.economics import Account
from argosy.planner.explain import Term, terms
from argosy.planner.question import Question
from argosy.planner.search import Found, search, to_record

SCHEMA = 1


@dataclass(frozen=True)
class Goal:
    """What the run is for and what limits it."""

    tokens: int | None = None
    target_loss: float | None = None
    budget: float | None = None
    deadline_s: float | None = None
    spot: bool = False


@dataclass(frozen=True)
class Scale:
    """The same run on another number of accelerators."""

    count: int
    days: float
    cost: float | None
    cost_per_day_saved: float | None
    """Against the next smaller count: worth it for whom a day is worth more."""


@dataclass(frozen=True)
class Answer:
    """Everything that `argosy plan search` prints."""

    found: Found
    books: Account | None
    """None without a horizon."""
    tokens: int | None
    final_loss: float | None
    optimum: economics.Optimum | None
    spot_break_even_per_day: float | None

    @property
    def memory_terms(self) -> list[Term]:
        return terms(self.found.prediction.memory, self.found.best)

    def to_json(self, top: int) -> dict[str, Any]:
        """Stable keys; the first plan is the recommended one."""
        f = self.found
        first = [f.best, *(int(i) for i in f.order if i != f.best)][:top]
        cluster = f.cluster
        return {
            "schema": SCHEMA,
            "model": f.question.name,
            "parameters": f.question.parameters,
            "batch_tokens": f.question.batch_tokens,
            "cluster": {
                "name": cluster.name,
                "accelerator": cluster.part.id,
                "count": cluster.count,
                "price": None
                if cluster.price is None
                else {"amount": str(float(cluster.price.amount)), "currency": cluster.price.currency,
                      "date": cluster.price.date, "source": cluster.price.source},
            },
            "considered": f.space.considered,
            "fit": len(f.order),
            "plans": [to_record(f, i) for i in first],
            "pareto": [to_record(f, i) for i in f.pareto()],
            "links": links(f.layout(f.best), cluster),
            "memory": [asdict(term) for term in self.memory_terms],
            "run": None if self.books is None else asdict(self.books) | {
                "days": self.books.days, "useful_share": self.books.useful_share,
                "tokens": self.tokens, "final_loss": self.final_loss,
            },
            "compute_optimal": None if self.optimum is None else asdict(self.optimum),
            "spot_break_even_per_day": self.spot_break_even_per_day,
        }  # fmt: skip


def answer(question: Question, cluster: Cluster, goal: Goal) -> Answer:
    """Search and keep the books.

    Raises UsageError when nothing fits or a limit cannot be kept, with the nearest plan that can.
    """
    found = search(question, cluster)
    step_time_s = float(found.prediction.step_time_s[found.best])
    tokens = goal.tokens or question.tokens
    if goal.target_loss is not None:
        tokens = economics.tokens_for_loss(question.parameters, goal.target_loss)
    if goal.spot and (cluster.price is None or cluster.price.spot is None):
        raise UsageError("the cluster file has no spot price", where="--spot", do="add price.spot")
    if tokens is None:
        if goal.budget is not None or goal.deadline_s is not None:
            tokens = _affordable(question, cluster, step_time_s, goal)
        else:
            return Answer(found, None, None, None, None, None)
    books = economics.account(question, cluster, step_time_s, tokens, spot=goal.spot)
    if goal.budget is not None and books.cost is None:
        raise UsageError("a budget needs a price", where="--budget", do="give a cluster file with price.amount")
    economics.check_limits(books, question, cluster, step_time_s, budget=goal.budget, deadline_s=goal.deadline_s)
    flops_per_s = question.flops_per_token * question.batch_tokens / step_time_s
    has_spot = cluster.price is not None and cluster.price.spot is not None
    return Answer(
        found,
        books,
        tokens,
        EPOCH_REPLICATION.loss(question.parameters, tokens),
        economics.compute_optimal(flops_per_s, books.wall_s, books.useful_share),
        economics.spot_break_even(question, cluster, step_time_s, tokens) if has_spot else None,
    )


def _affordable(question: Question, cluster: Cluster, step_time_s: float, goal: Goal) -> int:
    """Tokens that the budget and the deadline allow."""
    probe = economics.account(question, cluster, step_time_s, 1000 * question.batch_tokens, spot=goal.spot)
    seconds = goal.deadline_s or math.inf
    if goal.budget is not None:
        if probe.cost is None:
            raise UsageError("a budget needs a price", where="--budget", do="give a cluster file with price.amount")
        seconds = min(seconds, goal.budget / probe.cost * probe.wall_s)
    if seconds < probe.interval_s:
        raise UsageError(
            f"that pays {seconds:.0f} s of {cluster.count} accelerators, less than one interval between saves "
            f"({probe.interval_s:.0f} s): nothing would be kept",
            where="--budget" if goal.budget is not None else "--deadline",
            do="use fewer accelerators or a larger budget",
        )
    steps = int(seconds / probe.wall_s * 1000 * 0.999)
    return max(1, steps) * question.batch_tokens


def links(layout: Layout, cluster: Cluster) -> dict[str, str]:
    """Which link each axis with more than one rank crosses."""
    out: dict[str, str] = {}
    inner = 1
    for axis in reversed(layout.order):
        size = getattr(layout, axis)
        if size > 1:
            inside = size * inner <= cluster.domain
            mixed = not inside and inner < cluster.domain
            out[axis] = (
                "scale-up link" if inside else "scale-up link inside a domain, network between" if mixed else "network"
            )
        inner *= size
    return {axis: out[axis] for axis in MESH_AXES if axis in out}


def what_if(question: Question, cluster: Cluster, tokens: int) -> list[Scale]:
    """The run on a quarter, half, twice and ten times the accelerators, where a layout exists."""
    rows: list[Scale] = []
    for factor in (0.25, 0.5, 1, 2, 4, 10):
        count = round(cluster.count * factor)
        if count < 1:
            continue
        try:
            found = search(question, cluster.resized(count))
            books = economics.account(
                question, cluster.resized(count), float(found.prediction.step_time_s[found.best]), tokens
            )
        except UsageError:
            continue  # too small for the model, or more accelerators than the batch can be dealt out to
        saved = None
        if rows and rows[-1].cost is not None and books.cost is not None and rows[-1].days > books.days:
            saved = (books.cost - rows[-1].cost) / (rows[-1].days - books.days)
        rows.append(Scale(count, books.days, books.cost, saved))
    return rows
