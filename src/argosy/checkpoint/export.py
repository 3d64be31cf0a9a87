"""A checkpoint becomes a model folder that `transformers` opens: safetensors, config.json, tokenizer."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from argosy.checkpoint.companions import complete_companions, special_token_ids
from argosy.checkpoint.load import fill
from argosy.checkpoint.manifest import read_manifest
from argosy.checkpoint.origin import Origin
from argosy.checkpoint.verify import find_damage
from argosy.data.companions import TOKENIZER, copy_companions
from argosy.data.files import build_folder, fsync
from argosy.data.prepare import data_folder
from argosy.data.tokenizer import Tokenizer
from argosy.errors import InputError, UsageError
from argosy.models.hf.config import CONFIG_FILE, family_of, make_config, read_config
from argosy.models.hf.family import Weight
from argosy.models.hf.tensors import INDEX_FILE, SINGLE_FILE, join, parameter_shapes
from argosy.recipe.model_table import ModelTable

SHARD_BYTES = 2_000_000_000
"""Of one file of weights, unless a single tensor is larger; about twice this is in memory while it is written."""
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Exported:
    """What :func:`export` wrote."""

    folder: Path
    architecture: str
    parameters: int
    dtype: str
    files: int
    tokenizer: bool


def export(
    origin: Origin,
    out: Path,
    *,
    dtype: str | None = None,
    shard_bytes: int = SHARD_BYTES,
    say: Callable[[str], None] = lambda line: None,
) -> Exported:
    """Write the weights of `origin` to `out`, which must not exist or be empty.

    Args:
        dtype: "fp32", "bf16" or "fp16"; None keeps that of each tensor.

    Raises:
        UsageError: no architecture of Hugging Face has this shape, or `origin` is no checkpoint of ours.
        InputError: the checkpoint is damaged or incomplete, its data with the tokenizer is gone, or `out` exists.
        StoppedError: the disk is full. In every case nothing is left behind.
    """
    if origin.kind == "hugging face":
        raise UsageError("is a folder of Hugging Face already", where=str(origin.folder))
    if origin.model is None:
        raise UsageError(
            "does not say the shape of its model",
            where=str(origin.folder),
            do="name the run that it comes from",
        )
    family = family_of(origin.model)
    stored = _Stored(origin.folder, origin.model)
    companions = origin.companions if origin.recipe is None else data_folder(origin.recipe, say)
    target = DTYPES[dtype] if dtype else None
    shards = list(_shards(family.weights(stored.table), stored, target, shard_bytes))

    def write(folder: Path) -> None:
        _write_weights(folder, shards, stored, target, say)
        token_ids = _companions(companions, folder, stored.table) if companions is not None else {}
        config = make_config(stored.table, stored.vocab_size, _name(target or stored.dtype), token_ids)
        (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")

    if not build_folder(out, write, say):
        raise InputError("exists already", where=str(out), do="remove it or choose another folder")
    written = _name(target or stored.dtype)
    return Exported(out, family.architecture, stored.parameters, written, len(shards), (out / TOKENIZER).exists())


class _Stored:
    """The weights of a checkpoint, checked to be whole and of the shape of `table`."""

    def __init__(self, folder: Path, table: ModelTable):
        manifest = read_manifest(folder)
        if bad := find_damage(folder, manifest):
            raise InputError(f"damaged: {', '.join(map(str, bad))}", where=str(folder), do="choose another step")
        self._folder, self._manifest = folder, manifest
        self._found = {
            name.removeprefix("model."): tensor
            for name, tensor in manifest.tensors.items()
            if name.startswith("model.")
        }
        self.table = table
        self.vocab_size = self._found["embedding.weight"].shape[0] if "embedding.weight" in self._found else 0
        for name, shape in parameter_shapes(table, max(1, self.vocab_size)).items():
            if name not in self._found or self._found[name].shape != shape:
                raise InputError(f"{name} of {list(shape)} is not there", where=str(folder))
        self.dtype = self.dtype_of("embedding.weight")
        self.parameters = sum(math.prod(tensor.shape) for tensor in self._found.values())

    def dtype_of(self, name: str) -> torch.dtype:
        return getattr(torch, self._found[name].dtype)

    def bytes_of(self, weight: Weight, dtype: torch.dtype | None) -> int:
        return sum(math.prod(self._found[n].shape) * (dtype or self.dtype_of(n)).itemsize for n in weight.ours)

    def read(self, names: Sequence[str]) -> dict[str, Tensor]:
        tensors = {name: torch.empty(self._found[name].shape, dtype=self.dtype_of(name)) for name in names}
        fill(self._folder, self._manifest, {f"model.{name}": tensor for name, tensor in tensors.items()})
        return tensors


def _shards(
    weights: Sequence[Weight], stored: _Stored, dtype: torch.dtype | None, most_bytes: int
) -> Iterator[list[Weight]]:
    """The weights in files of at most `most_bytes`, or of one tensor that is larger."""
    shard: list[Weight] = []
    size = 0
    for weight in weights:
        more = stored.bytes_of(weight, dtype)
        if shard and size + more > most_bytes:
            yield shard
            shard, size = [], 0
        shard.append(weight)
        size += more
    yield shard


def _write_weights(
    folder: Path,
    shards: Sequence[Sequence[Weight]],
    stored: _Stored,
    dtype: torch.dtype | None,
    say: Callable[[str], None],
) -> None:
    places: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        file = SINGLE_FILE if len(shards) == 1 else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        places |= dict.fromkeys((weight.theirs for weight in shard), file)
        _write_shard(folder / file, shard, stored, dtype)
        say(f"{file}: {len(shard)} tensors")
    if len(shards) > 1:
        size = sum(stored.bytes_of(weight, dtype) for shard in shards for weight in shard)
        index = {"metadata": {"total_size": size}, "weight_map": places}
        (folder / INDEX_FILE).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _write_shard(path: Path, shard: Sequence[Weight], stored: _Stored, dtype: torch.dtype | None) -> None:
    parameters = stored.read([name for weight in shard for name in weight.ours])
    tensors = {}
    for weight in shard:
        tensors[weight.theirs] = join(weight, parameters).to(dtype)
        for name in weight.ours:
            del parameters[name]  # what was joined or converted is not needed twice
    save_file(tensors, path, metadata={"format": "pt"})
    fsync(path)


def _companions(source: Path, folder: Path, table: ModelTable) -> dict[str, Any]:
    """Copy the tokenizer and what belongs to it, complete it, and return the ids of its special tokens."""
    copy_companions(source, folder)
    if (source / CONFIG_FILE).exists():  # imported: what came in goes out
        config = read_config(source)
        return {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id") if key in config}
    tokenizer = Tokenizer.load(folder / TOKENIZER)
    token_ids = special_token_ids(folder, tokenizer)
    complete_companions(folder, tokenizer, token_ids, table.max_positions)
    return token_ids


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
