"""Model folders of Hugging Face with random weights, written without `transformers`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from argosy.data.tokenizer import Tokenizer
from argosy.models.hf.config import family_of, make_config
from argosy.models.hf.tensors import join, parameter_shapes
from argosy.recipe.model_table import ModelTable

QWEN3 = {
    "vocab_size": 257,
    "layers": 2,
    "hidden_size": 32,
    "heads": 2,
    "kv_heads": 1,
    "ffn_size": 64,
    "qk_norm": True,
    "max_positions": 64,
}


def write_folder(path: Path, fields: Mapping[str, Any] = QWEN3, *, tokenizer: bool = True) -> dict[str, Tensor]:
    """A model of the family that `fields` belong to, with the bytes as its tokens; our parameters of it."""
    table = ModelTable(**fields)
    assert table.vocab_size is not None
    generator = torch.Generator().manual_seed(7)
    parameters = {
        name: 0.1 * torch.randn(shape, generator=generator) + (1.0 if len(shape) == 1 else 0.0)
        for name, shape in parameter_shapes(table, table.vocab_size).items()
    }
    path.mkdir(parents=True)
    tensors = {weight.theirs: join(weight, parameters) for weight in family_of(table).weights(table)}
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    config = make_config(table, table.vocab_size, "float32", {"eos_token_id": 256})
    (path / "config.json").write_text(json.dumps(config))
    if tokenizer:
        Tokenizer.bytes().save(path / "tokenizer.json")
    return parameters


def tensors_in_folder(path: Path) -> dict[str, Tensor]:
    """All tensors of a folder, whatever files they are in."""
    return {name: tensor for file in path.glob("*.safetensors") for name, tensor in load_file(file).items()}


def change_config(path: Path, **changes: Any) -> None:
    """Set keys of config.json."""
    file = path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def change_tensors(path: Path, changes: Mapping[str, Tensor | None]) -> None:
    """Put other tensors into model.safetensors; None takes one out."""
    tensors = tensors_in_folder(path) | {name: tensor for name, tensor in changes.items() if tensor is not None}
    for name, tensor in changes.items():
        if tensor is None:
            del tensors[name]
    save_file(tensors, path / "model.safetensors")
