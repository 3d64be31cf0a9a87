"""The tensors of a Hugging Face folder: found, checked against the model, read one at a time."""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from argosy.errors import InputError
from argosy.models.build import build
from argosy.models.hf.config import (
    FAMILIES,
    architecture,
    known_architectures,
    known_family,
    model_table,
    read_config,
    read_json_object,
)
from argosy.models.hf.family import Family, Weight
from argosy.recipe.model_table import ModelTable

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"


def parameter_shapes(table: ModelTable, vocab_size: int) -> dict[str, tuple[int, ...]]:
    """Name and shape of each parameter of :class:`argosy.models.decoder.Decoder`."""
    return {name: tuple(p.shape) for name, p in build(table, vocab_size).named_parameters()}


def split(weight: Weight, tensor: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """The parameters that their `tensor` holds, as views of it."""
    whole = tensor.t() if weight.transposed else tensor
    return dict(zip(weight.ours, whole.split([shapes[name][0] for name in weight.ours]), strict=True))


def join(weight: Weight, parameters: Mapping[str, Tensor]) -> Tensor:
    """Their tensor, made of our parameters; contiguous."""
    parts = [parameters[name] for name in weight.ours]
    whole = parts[0] if len(parts) == 1 else torch.cat(parts)
    return (whole.t() if weight.transposed else whole).contiguous()


class HfFolder:
    """An open model folder: mapped into memory, read where it is looked at.

    Attributes:
        table: the recipe's model table, vocabulary size included.
        shapes: of our parameters.
    """

    def __init__(self, path: Path):
        self.path = path
        self._files = ExitStack()
        self._handles: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        for file, names in _listing(path).items():
            self._names |= dict.fromkeys(names or self._handle(file).keys(), file)
        config = read_config(path)
        family = known_family(config)
        if family is None:
            raise InputError(
                _unknown(architecture(config), self._names),
                where=str(path),
                do="take a model of these, or name in config.json the one that it computes the same as",
            )
        self.table = model_table(path)
        if self.table.vocab_size is None:
            raise InputError("lacks vocab_size", where=str(path / "config.json"))
        self.shapes = parameter_shapes(self.table, self.table.vocab_size)
        self._weights = {weight.theirs: weight for weight in family.weights(self.table)}
        self._check(family)
        self._holds = {name: weight for weight in self._weights.values() for name in weight.ours}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    def dtypes(self) -> dict[str, torch.dtype]:
        """In which dtype each of our parameters is stored."""
        places = {name: self._place(weight.theirs) for name, weight in self._holds.items()}
        return {ours: handle.get_slice(theirs)[:0].dtype for ours, (handle, theirs) in places.items()}

    def read(self, name: str) -> Tensor:
        """Our parameter `name` in the dtype in which it is stored; only its own bytes are looked at."""
        weight = self._holds[name]
        return split(weight, self._tensor(weight.theirs), self.shapes)[name]

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        """All parameters of ours, one at a time."""
        for name in self.shapes:
            yield name, self.read(name)

    # -- files ---------------------------------------------------------------------------------------

    def _handle(self, file: str) -> Any:
        if file not in self._handles:
            try:
                self._handles[file] = self._files.enter_context(safe_open(self.path / file, framework="pt"))
            except FileNotFoundError:
                raise InputError(
                    f"shard {file} is missing", where=str(self.path), do="download or copy the whole folder"
                ) from None
            except (SafetensorError, OSError) as error:
                raise InputError(f"damaged: {error}", where=str(self.path / file), do="copy the file again") from None
        return self._handles[file]

    def _stored_name(self, theirs: str) -> str | None:
        """Under which name the tensor is here: some folders were saved from the model without its head."""
        bare = theirs.partition(".")[2]
        return next((name for name in (theirs, bare) if name in self._names), None)

    def _place(self, theirs: str) -> tuple[Any, str]:
        name = self._stored_name(theirs)
        assert name is not None, "checked when the folder was opened"
        return self._handle(self._names[name]), name

    def _tensor(self, theirs: str) -> Tensor:
        handle, name = self._place(theirs)
        return handle.get_tensor(name)

    # -- checks --------------------------------------------------------------------------------------

    def _check(self, family: Family) -> None:
        """Every tensor here belongs to the model and has its shape, and none of the model's is missing."""
        wanted = {name: weight for weight in self._weights.values() if (name := self._stored_name(weight.theirs))}
        for name in self._names:
            if name in wanted:
                found = tuple(self._handle(self._names[name]).get_slice(name).get_shape())
                if found != (should := wanted[name].shape(self.shapes)):
                    raise InputError(
                        f"{name} is {list(found)}, config.json makes it {list(should)}",
                        where=str(self.path),
                        do=_shape_remedy(wanted[name]),
                    )
            elif name == "lm_head.weight" and self.table.tied_embeddings:
                self._check_tie(family)
            elif not re.fullmatch(family.buffers, name):
                raise InputError(f"{name} does not fit {family.architecture}", where=str(self.path))
        for weight in self._weights.values():
            if self._stored_name(weight.theirs) is None:
                raise InputError(f"{weight.theirs} of {family.architecture} is missing", where=str(self.path))

    def _check_tie(self, family: Family) -> None:
        """A head that is stored although config.json ties it must be what it is tied to."""
        embedding = next(w.theirs for w in self._weights.values() if w.ours == ("embedding.weight",))
        if not torch.equal(
            self._handle(self._names["lm_head.weight"]).get_tensor("lm_head.weight"), self._tensor(embedding)
        ):
            raise InputError(
                "lm_head.weight is not the embedding, although config.json says tie_word_embeddings",
                where=str(self.path),
                do="set tie_word_embeddings to false if the head is meant",
            )


def _listing(path: Path) -> dict[str, list[str]]:
    """Files with the tensors in each; an empty list where only the file itself knows."""
    if not path.is_dir():
        raise InputError("no such folder", where=str(path), do="name a folder with config.json and model.safetensors")
    if (path / INDEX_FILE).exists():
        files: dict[str, list[str]] = {}
        places = read_json_object(path / INDEX_FILE).get("weight_map")
        if not isinstance(places, dict):
            raise InputError("has no weight_map", where=str(path / INDEX_FILE))
        for name, file in places.items():
            files.setdefault(file, []).append(name)
        if missing := [file for file in files if not (path / file).exists()]:
            raise InputError(
                f"{len(missing)} of {len(files)} shards are missing: {', '.join(missing[:3])}",
                where=str(path),
                do="download or copy the whole folder",
            )
        return files
    if (path / SINGLE_FILE).exists():
        return {SINGLE_FILE: []}
    raise InputError(
        f"holds neither {SINGLE_FILE} nor {INDEX_FILE}",
        where=str(path),
        do="save the model with save_pretrained of transformers, which writes safetensors",
    )


def _unknown(name: str, names: Mapping[str, str]) -> str:
    """What is known, and the first tensor that the nearest known family does not have."""

    def strangers(family: Family) -> list[str]:
        have = {_numberless(weight.theirs) for weight in family.weights(ModelTable(layers=1, bias="all"))}
        return [tensor for tensor in names if _numberless(tensor) not in have]

    nearest = min(FAMILIES, key=lambda family: len(strangers(family)))
    misfit = next(iter(strangers(nearest)), None)
    detail = f"the first tensor that does not fit {nearest.architecture} is {misfit}"
    if misfit is None:
        detail = f"all tensors are named as in {nearest.architecture}, but it may compute something else with them"
    return f"unknown architecture {name}; known are {known_architectures()}; {detail}"


def _numberless(name: str) -> str:
    return re.sub(r"\.\d+\.", ".N.", name)


def _shape_remedy(weight: Weight) -> str:
    if weight.ours in (("embedding.weight",), ("head.weight",)):
        return "vocab_size in config.json must be the number of rows"
    return "config.json belongs to another model"
