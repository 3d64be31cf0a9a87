"""What all contestants of a contest get: the same shape, initial weights, batches and optimizer settings.

The folder of a task holds

    task.json                             the settings, for contestants without Argosy
    hf/config.json, hf/model.safetensors  initial weights under Hugging Face's names
    batches.npy                           uint16 [steps, sequences, length + 1], in the order of Argosy's loader
    RUN/                                  a run for each of Argosy's layouts, at its start
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from argosy.data.open_loader import open_loader
from argosy.data.position import Position
from argosy.data.prepare import prepare
from argosy.models.build import build
from argosy.models.hf.config import family_of, make_config
from argosy.models.hf.tensors import join
from argosy.models.init import init_weights
from argosy.recipe.schema import Recipe
from argosy.registry.run_folder import RunFolder

_LLAMA = {"norm_eps": 1e-5, "rope_theta": 10_000.0, "qk_norm": False}


@dataclass(frozen=True)
class Shape:
    """A model and its batch; all models are Llamas, so that every contestant has them."""

    model: Mapping[str, Any]
    sequences: int
    length: int
    ranks: int = 1


SHAPES = {
    "3m": Shape(
        _LLAMA | {"layers": 6, "hidden_size": 192, "heads": 3, "ffn_size": 480, "tied_embeddings": True}, 16, 256
    ),
    "25m": Shape(
        _LLAMA
        | {"layers": 8, "hidden_size": 512, "heads": 8, "kv_heads": 4, "ffn_size": 1408, "tied_embeddings": True},
        4,
        256,
    ),
    "d256": Shape(_LLAMA | {"layers": 6, "hidden_size": 256, "heads": 4, "ffn_size": 768}, 16, 256, ranks=2),
    "d128": Shape(_LLAMA | {"layers": 4, "hidden_size": 128, "heads": 2, "ffn_size": 384}, 4, 128, ranks=2),
}


def make_task(
    folder: Path, shape: Shape, precision: str, *, steps: int, threads: int, layouts: Mapping[str, Mapping[str, Any]]
) -> Recipe:
    """Write a task of at most `steps` steps into `folder`; `threads` of each rank, `layouts` by name of the run."""
    recipes = {name: _recipe(shape, precision, steps, layout) for name, layout in layouts.items()}
    recipe = next(iter(recipes.values()))
    data = prepare(recipe)
    position = Position()
    loader = open_loader(recipe, data, position)
    batches = np.empty((steps, shape.sequences, shape.length + 1), dtype=np.uint16)
    for windows in batches:
        window, position = position.take(shape.sequences)
        batch = loader.batch(window)
        windows[:, :-1], windows[:, -1] = batch.tokens.numpy(), batch.targets[:, -1].numpy()
    folder.mkdir(parents=True)
    np.save(folder / "batches.npy", batches)
    _write_weights(folder / "hf", recipe, data.vocab_size)
    for name, made in recipes.items():
        RunFolder.create(folder / name, made)
        (folder / name / "events" / "attempt-1").mkdir()
    optimizer = recipe.optimizer
    settings = {
        "model": recipe.model.model_dump() | {"vocab_size": data.vocab_size},
        "learning_rate": optimizer.learning_rate,
        "betas": [optimizer.beta1, optimizer.beta2],
        "eps": optimizer.eps,
        "weight_decay": optimizer.weight_decay,
        "clip_norm": optimizer.clip_norm,
        "precision": precision,
        "threads": threads,
    }
    (folder / "task.json").write_text(json.dumps(asdict(shape) | settings, indent=1))
    return recipe


def _recipe(shape: Shape, precision: str, steps: int, layout: Mapping[str, Any]) -> Recipe:
    tokens = shape.sequences * shape.length
    return Recipe.model_validate(
        {
            "run": {"name": "contest", "device": "cpu"},
            "model": dict(shape.model),
            "data": {"sequence_length": shape.length},
            "batch": {"tokens": tokens},
            "objective": {"tokens": tokens * steps},
            "optimizer": {"learning_rate": 1e-3},
            "schedule": {"kind": "constant"},
            "precision": {"compute": precision},
            "checkpoint": {"every_steps": 10**9},  # a save would fall into one chunk and not into another
            "layout": dict(layout),
        }
    )


def _write_weights(folder: Path, recipe: Recipe, vocab_size: int) -> None:
    model = build(recipe.model, vocab_size, device="cpu")
    init_weights(model, recipe.run.seed)
    parameters: dict[str, torch.Tensor] = dict(model.named_parameters())
    family = family_of(recipe.model)
    folder.mkdir()
    tensors = {weight.theirs: join(weight, parameters).detach() for weight in family.weights(recipe.model)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(make_config(recipe.model, vocab_size, "float32", {})))
