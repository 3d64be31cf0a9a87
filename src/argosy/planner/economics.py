"""Days and money of a plan: useful time, what failures and saves take, spot prices, budgets, and scale.

Expected wall time under failures is Daly's exact form (:mod:`argosy.policy.save`), so the cost includes the work
that failures destroy, and the interval between saves is the one that the engine's own policy would choose.
"""

import math
from dataclasses import dataclass, replace

from argosy.errors import UsageError
from argosy.hardware.cluster import Cluster, Price
from argosy.laws.loss import EPOCH_REPLICATION, LossLaw
from argosy.planner.question import Question
from argosy.policy.save import daly_interval_s, daly_wall_s

DAY_S = 86_400.0
STATE_BYTES_PER_PARAMETER = 12.0
"""fp32 weight and two moments: what a checkpoint holds."""
MIN_SAVE_S = 2.0
"""Least time a save takes, however small: gathering metadata, fsync, manifest."""


@dataclass(frozen=True)
class Account:
    """What a run of `steps` steps takes, in expectation."""

    steps: int
    work_s: float
    """Useful time: steps × step time."""
    save_s: float
    interval_s: float
    """Work between saves."""
    mtbf_s: float
    wall_s: float
    cost: float | None
    """None when the price is unknown."""
    currency: str

    @property
    def days(self) -> float:
        return self.wall_s / DAY_S

    @property
    def useful_share(self) -> float:
        """Useful ÷ paid time."""
        return self.work_s / self.wall_s


def account(question: Question, cluster: Cluster, step_time_s: float, tokens: int, *, spot: bool = False) -> Account:
    """The books of training to `tokens` at `step_time_s` per step.

    Raises UsageError when failures come faster than a restart and a save take.
    """
    steps = math.ceil(tokens / question.batch_tokens)
    work_s = steps * step_time_s
    save_s = max(MIN_SAVE_S, question.parameters * STATE_BYTES_PER_PARAMETER / cluster.storage_bytes_per_s)
    price = cluster.price
    rate = cluster.count * cluster.failures_per_day / DAY_S
    if spot:
        assert price is not None
        rate += price.spot_interruptions_per_day / DAY_S
    mtbf_s = 1.0 / rate if rate else math.inf
    if math.isinf(mtbf_s):
        interval_s, wall_s = math.inf, work_s + save_s
    else:
        interval_s = min(daly_interval_s(save_s, mtbf_s), work_s)
        exponent = (interval_s + save_s + cluster.restart_s) / mtbf_s
        if exponent > 50:
            raise UsageError(
                f"{cluster.count} accelerators fail every {mtbf_s:.0f} s, a restart takes {cluster.restart_s:.0f} s "
                f"and a save {save_s:.0f} s: no work survives",
                where="cluster",
                do="use fewer accelerators, a faster restart or faster storage",
            )
        wall_s = daly_wall_s(work_s, interval_s, save_s, cluster.restart_s, mtbf_s)
    rate_per_s = _per_s(price, spot) if price else None
    cost = None if rate_per_s is None else rate_per_s * cluster.count * wall_s
    return Account(steps, work_s, save_s, interval_s, mtbf_s, wall_s, cost, price.currency if price else "USD")


def spot_break_even(question: Question, cluster: Cluster, step_time_s: float, tokens: int) -> float:
    """Interruptions per day at which spot capacity costs as much as reserved. Needs a spot price."""
    price = cluster.price
    assert price is not None
    assert price.spot is not None
    reserved = account(question, cluster, step_time_s, tokens).cost
    assert reserved is not None

    def dearer(per_day: float) -> bool:
        asked = replace(cluster, price=replace(price, spot_interruptions_per_day=per_day))
        try:
            cost = account(question, asked, step_time_s, tokens, spot=True).cost
        except UsageError:
            return True
        return cost is None or cost > reserved

    low, high = 0.0, 1.0
    while not dearer(high) and high < 1e5:
        low, high = high, 2.0 * high
    for _ in range(40):
        middle = (low + high) / 2.0
        low, high = (low, middle) if dearer(middle) else (middle, high)
    return low


def tokens_for_loss(parameters: int, target_loss: float, law: LossLaw = EPOCH_REPLICATION) -> int:
    """Tokens after which a model of `parameters` reaches `target_loss` nats per token.

    Raises UsageError when no amount of data does, with the size that would reach it.
    """
    rest = target_loss - law.E - law.A / parameters**law.alpha
    if rest <= 0:
        floor = law.E + law.A / parameters**law.alpha
        if target_loss <= law.E:
            raise UsageError(
                f"a loss of {target_loss:g} is below what the data allows ({law.E:.3f} nats per token)",
                where="--target-loss",
            )
        size = (law.A / ((target_loss - law.E) / 2.0)) ** (1.0 / law.alpha)
        raise UsageError(
            f"{parameters / 1e9:.3g}B parameters do not get below {floor:.3f} nats per token with any data",
            where="--target-loss",
            do=f"use about {size / 1e9:.2g}B parameters, or a target above {floor:.2f}",
        )
    return math.ceil((law.B / rest) ** (1.0 / law.beta))


@dataclass(frozen=True)
class Optimum:
    """The size and data that reach the least loss for a sum of money or a time."""

    compute_flops: float
    parameters: float
    tokens: float
    loss: float


def compute_optimal(
    flops_per_s: float, wall_s: float, useful_share: float, law: LossLaw = EPOCH_REPLICATION
) -> Optimum:
    """Best model for `wall_s` seconds on hardware that sustains `flops_per_s` of model FLOPs."""
    compute = flops_per_s * wall_s * useful_share
    parameters, tokens = law.optimum(compute)
    return Optimum(compute, parameters, tokens, law.loss(parameters, tokens))


def check_limits(
    books: Account,
    question: Question,
    cluster: Cluster,
    step_time_s: float,
    *,
    budget: float | None,
    deadline_s: float | None,
) -> None:
    """Raise UsageError when the plan breaks `budget` or `deadline_s`, with the nearest plan that does not."""
    # What is lost grows little within these bounds, so rates of the whole run hold for a part of it
    rate = books.steps * question.batch_tokens / books.wall_s
    if budget is not None and books.cost is not None and books.cost > budget:
        share = budget / books.cost
        seconds = books.wall_s * share
        if seconds < books.interval_s or share * books.steps < 1:
            raise UsageError(
                f"{_money(budget, books)} pays {seconds:.0f} s of {cluster.count} accelerators, less than one interval "
                f"between saves ({books.interval_s:.0f} s): nothing would be kept",
                where="--budget",
                do=f"use at least {_money(books.cost * books.interval_s / books.wall_s, books)}, or fewer accelerators",
            )
        both = ""
        if deadline_s is not None and books.wall_s > deadline_s:
            both = f"; the deadline of {deadline_s / DAY_S:.3g} days is missed too ({books.days:.3g} days)"
        raise UsageError(
            f"{books.steps * question.batch_tokens / 1e9:.4g}B tokens cost {_money(books.cost, books)}, "
            f"not {_money(budget, books)}{both}",
            where="--budget",
            do=f"nearest: {_tokens(min(share, (deadline_s or math.inf) / books.wall_s), books, question)}",
        )
    if deadline_s is not None and books.wall_s > deadline_s:
        factor = books.wall_s / deadline_s
        more = math.ceil(cluster.count * factor)
        money = f", about {_money(books.cost * 1.0, books)}" if books.cost is not None else ""
        reachable = budget is None or books.cost is None or books.cost <= budget
        raise UsageError(
            f"{books.days:.3g} days are needed, not {deadline_s / DAY_S:.3g}, at {rate:,.0f} tokens/s",
            where="--deadline",
            do=f"nearest: {_tokens(1 / factor, books, question)}"
            + (f", or about {more} accelerators{money} if the batch can be split so far" if reachable else ""),
        )


def _tokens(share: float, books: Account, question: Question) -> str:
    steps = max(1, int(books.steps * share))
    cost = "" if books.cost is None else f" for {_money(books.cost * steps / books.steps, books)}"
    return f"{steps * question.batch_tokens / 1e9:.4g}B tokens in {books.days * steps / books.steps:.3g} days{cost}"


def _money(amount: float, books: Account) -> str:
    return f"{amount:,.0f} {books.currency}"


def _per_s(price: Price, spot: bool) -> float | None:
    amount = price.spot if spot else price.amount
    return None if amount is None else float(amount) / 3600.0
