"""The learning rate as a function of the tokens seen."""

import math

from argosy.recipe.schema import ScheduleTable


def learning_rate(schedule: ScheduleTable, peak: float, tokens_seen: float, horizon_tokens: int) -> float:
    """Learning rate after `tokens_seen` of `horizon_tokens`; continuous, between 0 and `peak`.

    Linear warm-up from 0 over ``warmup_tokens``, then the schedule's own shape, down to ``final_share · peak``
    at the horizon and beyond. The rate at 0 tokens and that at the horizon may both be 0, so a step is best
    given the tokens at its middle: neither the first nor the last one is then wasted.
    """
    return peak * min(_warmup(schedule, tokens_seen), _shape(schedule, tokens_seen, horizon_tokens))


def _warmup(schedule: ScheduleTable, tokens_seen: float) -> float:
    if tokens_seen >= schedule.warmup_tokens:
        return 1.0
    return tokens_seen / schedule.warmup_tokens


def _shape(schedule: ScheduleTable, tokens_seen: float, horizon_tokens: int) -> float:
    """Learning rate ÷ peak without warm-up, falling from 1 to ``final_share``."""
    match schedule.kind:
        case "constant":
            return 1.0
        case "wsd":
            # Warm-up, stable, decay. 1 - sqrt ends lower than a line (Hägele et al. 2024, figure 5).
            start = horizon_tokens * (1 - schedule.decay_share)
            fall = 1 - math.sqrt(_progress(tokens_seen, start, horizon_tokens))
        case "cosine":
            start = min(schedule.warmup_tokens, horizon_tokens)
            fall = (1 + math.cos(math.pi * _progress(tokens_seen, start, horizon_tokens))) / 2
    return schedule.final_share + (1 - schedule.final_share) * fall


def _progress(tokens: float, start: float, end: float) -> float:
    """Share of the way from `start` to `end`, from 0 to 1."""
    if tokens <= start:
        return 0.0
    return 1.0 if tokens >= end else (tokens - start) / (end - start)
