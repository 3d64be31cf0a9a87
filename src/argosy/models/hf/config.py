"""From a config.json to a model table and back."""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from argosy.errors import InputError, UsageError
from argosy.models.hf.family import Family
from argosy.models.hf.gpt2 import GPT2
from argosy.models.hf.llama import LLAMA, QWEN2, QWEN3
from argosy.recipe.model_table import ModelTable

FAMILIES: tuple[Family, ...] = (LLAMA, QWEN2, QWEN3, GPT2)
CONFIG_FILE = "config.json"


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json in `folder`. Raises InputError when it is missing or no JSON object."""
    return read_json_object(folder / CONFIG_FILE)


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON object of a Hugging Face folder. Raises InputError when it is missing, unreadable or something else."""
    try:
        config = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except ValueError as error:
        raise InputError(f"is no JSON ({error})", where=str(path)) from None
    if not isinstance(config, dict):
        raise InputError("is no JSON object", where=str(path))
    return config


def architecture(config: dict[str, Any]) -> str:
    """The name of the model's class, or what stands in its place."""
    return next(iter(config.get("architectures") or ()), None) or f"model_type {config.get('model_type')!r}"


def known_family(config: dict[str, Any]) -> Family | None:
    """The family of a config.json; None for one that Argosy does not know."""
    return next((family for family in FAMILIES if family.architecture == architecture(config)), None)


def known_architectures() -> str:
    return ", ".join(family.architecture for family in FAMILIES)


def model_table(folder: Path) -> ModelTable:
    """The recipe's model table of the model in `folder`, vocabulary size included.

    Raises InputError when config.json is missing or wrong, of an unknown architecture, or asks for something that
    Argosy's models do not have.
    """
    config = read_config(folder)
    family = known_family(config)
    where = folder / CONFIG_FILE
    if family is None:
        raise InputError(
            f"unknown architecture {architecture(config)}; known are {known_architectures()}",
            where=str(where),
            do=f"take a model of these; `argosy weights import {folder} OUT` names the first tensor that does not fit",
        )
    try:
        fields = family.table(config) | {"vocab_size": config.get("vocab_size")}
        return ModelTable.model_validate(fields | {"init_std": config.get("initializer_range", 0.02)})
    except InputError as error:
        raise InputError(error.what, where=str(where), do="such a model cannot be taken over") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise InputError(f"makes no model: {f'{key}: ' if key else ''}{first['msg']}", where=str(where)) from None
    except (KeyError, TypeError) as error:
        raise InputError(f"is damaged: {error}", where=str(where)) from None


def family_of(table: ModelTable) -> Family:
    """The family whose member `table` is.

    Raises UsageError that says for each family which fields speak against it.
    """
    reasons = []
    for family in FAMILIES:
        if not (objections := family.objections(table)):
            return family
        reasons.append(f"{family.architecture} has no {', '.join(objections)}")
    raise UsageError(f"no architecture of Hugging Face has this shape: {'; '.join(reasons)}", where="model")


def make_config(table: ModelTable, vocab_size: int, dtype: str, token_ids: dict[str, Any]) -> dict[str, Any]:
    """The config.json of a model.

    Args:
        vocab_size: rows of the embedding.
        dtype: of the weights, such as ``float32``.
        token_ids: ``bos_token_id``, ``eos_token_id`` and the like.
    """
    family = family_of(table)
    return {
        "architectures": [family.architecture],
        **family.config(table),
        "vocab_size": vocab_size,
        "initializer_range": table.init_std,
        "torch_dtype": dtype,
        **token_ids,
    }
