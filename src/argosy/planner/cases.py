"""Measured configurations as CSV rows (the columns of `measured_runs.csv`) → workloads.

An empty cell is filled only by a rule stated here; a row that lacks something no rule can know is not
predicted and says what it lacks. The measured columns are never read to make a prediction.
"""

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from argosy.errors import InputError, UsageError
from argosy.hardware.parts import part
from argosy.planner.software import software
from argosy.planner.workload import DTYPES, Array, Workload, machine_fields
from argosy.recipe.presets import PRESETS

NECESSARY = ("gpu", "gpus", "layers", "hidden", "seq_len", "global_batch_sequences")
_RECOMPUTE = {"none": (0.0, 0.0), "selective": (0.0, 1.0), "full": (1.0, 0.0)}
_ZERO = {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3, "hsdp": 3}
UNGATED = 3.75
"""Inner ÷ outer width from which an MLP is taken to have no gate, where neither a cell nor the parameters say."""
GPT2_VOCAB = 50_304
"""Vocabulary of a row that states none: GPT-2's, padded to a multiple of 128, as the Megatron family uses."""


@dataclass(frozen=True)
class Case:
    """One row: what can be predicted, what was measured, and what was assumed."""

    line: int
    cells: Mapping[str, str]
    fields: dict[str, float] | None
    """A row of :class:`Workload`, or None when it cannot be predicted."""
    missing: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    invalid: str | None = None
    """Why the layout cannot exist, if it cannot."""

    def number(self, name: str) -> float | None:
        """The cell `name` as a number, None when empty."""
        return _number(self.cells.get(name, ""), name, self.line)


@dataclass
class Cases:
    """All rows of a file and the workload of those that can be predicted."""

    rows: list[Case]
    predictable: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.predictable = [i for i, row in enumerate(self.rows) if row.fields is not None]

    def workload(self) -> Workload:
        return Workload.stack([self.rows[i].fields for i in self.predictable])  # type: ignore[misc]

    def spread(self, values: Array) -> Array:
        """`values` of the predictable rows at their places among all rows, NaN elsewhere."""
        out = np.full(len(self.rows), np.nan)
        out[self.predictable] = values
        return out

    def column(self, name: str) -> Array:
        """A numeric column, NaN where empty."""
        return np.array([np.nan if (v := row.number(name)) is None else v for row in self.rows])

    def text(self, name: str) -> list[str]:
        return [row.cells.get(name, "") or "" for row in self.rows]

    @property
    def step_time_s(self) -> Array:
        """Measured step time, from tokens per second where only that is stated; NaN where neither is."""
        direct = self.column("step_time_s")
        tokens = self.column("global_batch_sequences") * self.column("seq_len")
        return np.where(np.isnan(direct), tokens / (self.column("tokens_per_s_per_gpu") * self.column("gpus")), direct)


def read_cases(path: Path) -> Cases:
    """All rows of `path`. Raises InputError for a file that is no such table."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if lost := [name for name in NECESSARY if name not in (reader.fieldnames or ())]:
                raise InputError(
                    f"has no column {', '.join(lost)}", where=str(path), do="see `argosy plan validate --help`"
                )
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot be read ({error})", where=str(path)) from error
    return Cases([_case(cells, line) for line, cells in enumerate(rows, start=2)])


def cases_from(rows: Iterable[Mapping[str, str]]) -> Cases:
    """As :func:`read_cases`, from rows already in memory."""
    return Cases([_case(cells, line) for line, cells in enumerate(rows, start=2)])


def _case(cells: Mapping[str, str], line: int) -> Case:
    cells = {key: (value or "").strip() for key, value in cells.items() if key is not None}
    assumed: list[str] = []
    shape = _shape(cells, line, assumed)
    get = lambda name: _number(cells.get(name, ""), name, line)  # noqa: E731
    missing = [n for n in ("gpus", "seq_len", "global_batch_sequences") if get(n) is None]
    missing += [n for n in ("layers", "hidden") if not shape and get(n) is None]
    if not cells.get("gpu"):
        missing.append("gpu")
    if missing:
        return Case(line, cells, None, tuple(missing))
    year = int(get("year") or 2024)
    family = software(cells.get("framework", ""), year)
    try:
        chip = part(cells["gpu"])
        low = family.low_precision_since is not None and year >= family.low_precision_since
        dtype = _dtype(cells.get("precision", ""), chip.peak_flops_per_s, low, assumed)
    except UsageError as error:
        return Case(line, cells, None, (error.what,))

    gpus = get("gpus") or 1
    tp, pp, vpp, cp = (get(n) or 1 for n in ("tp", "pp", "vpp", "cp"))
    ep = get("ep") or 1
    dp = get("dp") or gpus / (tp * pp * cp)
    stated_vpp = get("vpp")
    if stated_vpp is None and pp > 1 and family.interleaves and shape["layers"] % pp == 0:
        vpp = shape["layers"] / pp
        assumed.append(f"vpp = {vpp:g}")
    zero = _ZERO.get(cells.get("sharding", ""))
    if zero is None:
        stage = get("zero_stage")
        zero = int(stage) if stage is not None else (1 if dp > 1 else 0)
        assumed.append(f"sharding = zero{zero}")
    batch = get("global_batch_sequences") or 1
    micro = get("micro_batch")
    if micro is None:
        micro = min(1.0, batch / dp)
        assumed.append("micro_batch = 1")
    layers_again, core_again = _RECOMPUTE.get(cells.get("recompute", ""), (np.nan, 0.0))
    if np.isnan(layers_again) and ("recompute" not in cells or cells.get("status")):
        # A file without the column, or a row that asks whether it fits, means the configuration as it stands
        layers_again = 0.0
    if cells.get("recompute") == "selective" and zero == 3:  # FSDP programs select whole blocks
        layers_again, core_again = np.nan, 0.0
    if np.isnan(layers_again):
        assumed.append("recompute: as few layers as fit")
    nic, ethernet = _network(cells.get("interconnect_if_stated", ""), get("gpus_per_node") or chip.per_node)
    invalid = _invalid(shape["layers"], shape.get("heads", 0), gpus, dp, tp, pp, vpp, cp)
    values = shape | {
        "sequence": get("seq_len") or 1,
        "gpus": gpus,
        "dp": dp,
        "shard_ranks": min(dp, max(1.0, (get("gpus_per_node") or 8) / tp)) if cells.get("sharding") == "hsdp" else dp,
        "tp": tp,
        "pp": pp,
        "vpp": vpp,
        "bubble_share": 1.0,
        "cp": cp,
        "ep": ep,
        "zero": float(zero),
        "micro_batch": micro,
        "global_batch": batch,
        "recompute_layers": layers_again,
        "recompute_core": core_again,
        "dtype": float(DTYPES.index(dtype)),
        "flash": float(family.flash),
        "fused": float(family.fused),
        "sequence_parallel": float(family.sequence_parallel),
        "overlap_tp": float(family.overlap_tp),
        "overlap_dp": float(family.overlap_dp or (family.overlap_replicas and zero == 0)),
        "blocking_p2p": float(family.blocking_p2p),
        "balanced": float(family.balanced),
        "grad_bytes": float(family.grad_bytes),
        "master_bytes": float(family.master_bytes),
        "grad_copy_bytes": float(family.grad_copy_bytes),
        "logits_bytes": family.logits_bytes,
        "host_scale": float(family.launched),
        "ethernet": float(ethernet),
    }
    values |= machine_fields(chip, dtype, get("gpus_per_node"), nic)
    return Case(line, cells | {"part": chip.id}, values, (), tuple(assumed), invalid)


def _shape(cells: Mapping[str, str], line: int, assumed: list[str]) -> dict[str, float]:
    """The model's share of a row; a known model name fills what the cells leave out."""
    get = lambda name: _number(cells.get(name, ""), name, line)  # noqa: E731
    preset = PRESETS.get(cells.get("model_name", "").casefold(), {})
    layers, hidden = get("layers") or preset.get("layers"), get("hidden") or preset.get("hidden_size")
    if not layers or not hidden:
        return {}
    ffn = get("ffn_hidden") or preset.get("ffn_size") or 4 * hidden
    heads = get("heads")
    if heads is None:
        heads = preset.get("heads") or hidden / 128
        assumed.append("heads = hidden / 128")
    vocab = get("vocab") or preset.get("vocab_size")
    if vocab is None:
        vocab = GPT2_VOCAB
        assumed.append(f"vocab = {GPT2_VOCAB}")
    kv_heads = get("kv_heads") or preset.get("kv_heads") or heads

    # What a row leaves open, the stated number of parameters decides: gated or not, tied or not
    gates = {"yes": (True,), "no": (False,)}.get(
        cells.get("gated_mlp", ""), (ffn < UNGATED * hidden, ffn >= UNGATED * hidden)
    )
    ties = (bool(preset.get("tied_embeddings")), not preset.get("tied_embeddings"))
    choices = [(gated, tied) for gated in gates for tied in ties]
    params = get("params_b")

    def miss(choice: tuple[bool, bool]) -> int:
        """Percent by which the count is off."""
        body = layers * hidden * (hidden * (2 + 2 * kv_heads / heads) + (2 + choice[0]) * ffn)
        return round(100 * abs((body + (2 - choice[1]) * vocab * hidden) / ((params or 1) * 1e9) - 1))

    # Gated and tied first: where both fit equally well, that is what newer models are
    gated, tied = min(sorted(choices, reverse=True), key=miss) if params else choices[0]
    return {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": float(preset.get("head_dim") or hidden / heads),
        "ffn": ffn,
        "vocab": vocab,
        "gated": float(gated),
        "tied": float(tied),
        "experts": get("moe_experts") or 0.0,
        "topk": get("moe_topk") or 0.0,
        "moe_ffn": get("moe_ffn_hidden") or ffn,
    }


def _dtype(precision: str, peaks: Mapping[str, float], low: bool, assumed: list[str]) -> str:
    text = precision.casefold()
    if not text:
        narrow = next((d for d in ("fp4", "fp8") if d in peaks), None) if low else None
        wanted = narrow or ("bf16" if "bf16" in peaks else "fp16")
        assumed.append(f"precision = {wanted}")
        return wanted
    wanted = "fp4" if "fp4" in text else "fp8" if "fp8" in text else text
    if wanted not in peaks:
        raise UsageError(f"precision {precision!r} is not in the catalogue for this accelerator")
    return wanted


def _network(text: str, per_node: float) -> tuple[float | None, bool]:
    """(bytes/s per accelerator, whether it is a cloud Ethernet) from words such as "8x200 Gb/s HDR IB per node"."""
    ethernet = "EFA" in text
    if "Omni-Path" in text and (links := re.search(r"(\d+) Omni-Path", text)):
        return int(links[1]) * 100e9 / 8 / per_node, ethernet
    if match := re.search(r"(?:(\d+)\s*x\s*)?(\d+)\s*Gb/s", text):
        return int(match[1] or 1) * float(match[2]) * 1e9 / 8 / per_node, ethernet
    return None, ethernet


def _invalid(
    layers: float, heads: float, gpus: float, dp: float, tp: float, pp: float, vpp: float, cp: float
) -> str | None:
    if pp * vpp > layers:
        return f"pp·vpp {pp * vpp:g} > layers {layers:g}"
    if abs(dp * tp * pp * cp - gpus) > 0.5:
        return f"dp·tp·pp·cp = {dp * tp * pp * cp:g}, not {gpus:g} accelerators"
    if heads and tp > heads:
        return f"tp {tp:g} > heads {heads:g}"
    return None


def _number(text: str, name: str, line: int) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{name} is no number: {text!r}", where=f"line {line}") from None
    if not np.isfinite(value) or value < 0:
        raise InputError(f"{name} must be a finite positive number, not {text!r}", where=f"line {line}")
    return value
