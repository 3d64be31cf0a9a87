"""A first recipe from a size, a data set and a budget, with every line explained.

What is chosen here is only a start: the size picks the nearest preset, the budget the horizon, and compute the learning
rate and the batch (:mod:`argosy.recipe.first_guess`, which names its sources).
"""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from argosy.errors import InputError, UsageError
from argosy.recipe.first_guess import TOKENS_PER_PARAMETER, batch_tokens, learning_rate
from argosy.recipe.flops import model_flops_per_token, parameter_count
from argosy.recipe.knobs import knobs
from argosy.recipe.load import parse_recipe
from argosy.recipe.model_table import ModelTable
from argosy.recipe.presets import PRESETS

SIZE, DATA, BUDGET = "argosy-3m", "stdlib", "auto"
"""What is taken where nothing is said."""

LEAST_STEPS = 100
"""A horizon of fewer steps is not worth a schedule: the batch gets smaller instead."""
_BPE = 4096
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_LENGTHS = ((10e6, 256), (100e6, 512), (500e6, 1024), (3e9, 2048), (math.inf, 4096))
"""Up to so many parameters: sequence length in tokens."""


@dataclass(frozen=True)
class Budget:
    """What a run may use; a limit that is None does not hold."""

    tokens: int | None = None
    device_hours: float | None = None
    money: str | None = None
    currency: str = "USD"


def parse_budget(text: str) -> Budget:
    """``2B tokens``, ``12h`` (device-hours), ``50 USD``, or ``auto``. Raises UsageError for anything else."""
    if text.strip().lower() == "auto":
        return Budget()
    if match := re.fullmatch(r"([\d.]+)\s*([kmbtKMBT]?)\s*(?:tokens?)", text.strip()):
        return Budget(tokens=round(_number(match[1], text) * _UNITS[match[2].lower()]))
    if match := re.fullmatch(r"([\d.]+)\s*(?:h|hours?|device-hours?)", text.strip()):
        return Budget(device_hours=_number(match[1], text))
    if match := re.fullmatch(r"([\d.]+)\s*([A-Z]{3})", text.strip()):
        _number(match[1], text)
        return Budget(money=match[1], currency=match[2])
    raise UsageError(f"{text!r} is no budget", where="--budget", do="write '2B tokens', '12h' or '50 USD'")


def nearest_preset(size: str) -> str:
    """The preset called `size`, or whose number of parameters is nearest to it (``25M``, ``8B``), as a ratio.

    Of equally near ones the first in the list. Raises UsageError when `size` is neither.
    """
    if size in PRESETS:
        return size
    match = re.fullmatch(r"([\d.]+)\s*([kmbtKMBT]?)", size.strip())
    if not match:
        known = ", ".join(PRESETS)
        raise UsageError(f"{size!r} is no size", where="--size", do=f"write a number such as 25M, or one of {known}")
    wanted = _number(match[1], size) * _UNITS[match[2].lower()]
    if not wanted:
        raise UsageError("a model has parameters", where="--size", do="write a number such as 25M")
    return min(PRESETS, key=lambda name: abs(math.log(_parameters(name) / wanted)))


def new_recipe(
    name: str, size: str = SIZE, data: str = DATA, budget: str = BUDGET, price_per_device_hour: str | None = None
) -> str:
    """The text of a commented recipe that `argosy recipe check` accepts.

    Raises UsageError for a size or a budget that cannot be read, InputError when the folder `data` holds no data set.
    """
    limits = parse_budget(budget)
    if limits.money is not None and price_per_device_hour is None:
        raise UsageError("a budget in money needs a price", where="--budget", do="add --price PER_DEVICE_HOUR")
    preset = nearest_preset(size)
    tokenizer, vocab_size = _tokenizer(data, preset)
    table = ModelTable.model_validate({"preset": preset})
    vocab = table.vocab_size or vocab_size
    parameters = parameter_count(table, vocab)
    length = min(next(tokens for most, tokens in _LENGTHS if parameters <= most), table.max_positions)
    tokens = limits.tokens or TOKENS_PER_PARAMETER * parameters
    flops = model_flops_per_token(table, vocab, length) * tokens
    steps_limit = max(length, 2 ** int(math.log2(max(tokens / LEAST_STEPS, 1))))
    batch = max(length, min(batch_tokens(flops), steps_limit))
    tokens = max(round(tokens / batch), 1) * batch
    steps = tokens // batch
    evals = max(steps // 20, 1)
    large = parameters >= 100e6
    how = "asked for" if limits.tokens else f"{TOKENS_PER_PARAMETER} per parameter (Hoffmann et al. 2022)"
    written: dict[str, tuple[Any, str]] = {
        "run.name": (name, ""),
        "model.preset": (preset, f"{parameters:,} parameters"),
        "data.source": (data, ""),
        "data.sequence_length": (length, ""),
        **tokenizer,
        "optimizer.learning_rate": (learning_rate(flops), f"for {flops:.2g} FLOP (DeepSeek-AI 2024); tune it first"),
        "schedule.warmup_tokens": (min(max(steps // 50, 1) * batch, tokens), "2 % of the run"),
        "batch.tokens": (batch, f"{batch // length} sequences"),
        "objective.tokens": (tokens, f"{steps:,} steps; {how}"),
        "precision.compute": ("bf16" if large else "fp32", "" if large else "bf16 on GPUs"),
        "eval.every_steps": (evals, "20 times in a run"),
        "eval.tokens": (min(max(64 * length, 16_384), 1_048_576), "the evaluation at the end uses all"),
    }
    if price_per_device_hour is not None:
        written["budget.price_per_device_hour"] = (price_per_device_hour, "")
        written["budget.currency"] = (limits.currency, "")
    if limits.money is not None:
        written["budget.money"] = (limits.money, "")
    if limits.device_hours is not None:
        written["budget.device_hours"] = (limits.device_hours, "")
    if parameters >= 1e9:
        written["layout.micro_batch_sequences"] = (1, "as many as fit: activations take most of the memory")
        written["layout.compile"] = (True, "")
    text = _head(name, limits) + _toml(written)
    parse_recipe(text, where=name)
    return text


def _parameters(preset: str) -> int:
    table = ModelTable.model_validate({"preset": preset})
    return parameter_count(table, table.vocab_size or _BPE)


def _tokenizer(data: str, preset: str) -> tuple[dict[str, tuple[Any, str]], int]:
    """The tokenizer's lines and its size: that of the data set if there is one already."""
    if data == "stdlib":
        if preset == "argosy-0.5m":
            return {"tokenizer.kind": ("bytes", "")}, 257
        return {"tokenizer.kind": ("bpe", ""), "tokenizer.vocab_size": (_BPE, "")}, _BPE
    folder = Path(data).expanduser()
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        kind = manifest["tokenizer"]["kind"]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            "is no data set", where=data, do="make one with `argosy data build`, or take --data stdlib"
        ) from None
    if kind == "bytes":
        return {"tokenizer.kind": ("bytes", "")}, 257
    vocab_size = int(manifest["tokenizer"].get("asked_vocab_size") or _BPE)
    if kind == "bpe":
        return {"tokenizer.kind": ("bpe", ""), "tokenizer.vocab_size": (vocab_size, "")}, vocab_size
    return {"tokenizer.kind": ("file", ""), "tokenizer.path": (str(folder / "tokenizer.json"), "")}, vocab_size


def _head(name: str, limits: Budget) -> str:
    lines = [f"# A first recipe, by `argosy recipe new`. Train it: argosy train {name}.toml"]
    if limits.money is not None or limits.device_hours is not None:
        lines.append("# The budget stops the run, the horizon ends its schedule: `argosy plan` says which comes first.")
    lines.append("# `argosy recipe explain` lists every other key.")
    return "\n".join(lines) + "\n"


def _toml(written: dict[str, tuple[Any, str]]) -> str:
    """Tables with a comment on each line: what the field means, and why this value."""
    lines: list[str] = []
    table = ""
    for key, (value, why) in written.items():
        head, _, field = key.rpartition(".")
        if head != table:
            lines += ["", f"[{head}]"]
            table = head
        knob = knobs()[key]
        meaning = re.split(r"[;:]", knob.doc)[0].strip()
        shown = f"{value:_}" if type(value) is int else tomli_w.dumps({"v": value}).removeprefix("v = ").rstrip()
        unit = f", {knob.unit}" if knob.unit else ""
        lines.append(f"{f'{field} = {shown}':<32}  # {meaning}{unit}{f': {why}' if why else ''}")
    return "\n".join(lines) + "\n"


def _number(digits: str, text: str) -> float:
    try:
        return float(digits)
    except ValueError:
        raise UsageError(f"{text!r} has no readable number", do="write one such as 2.5") from None
