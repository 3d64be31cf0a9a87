"""A model folder of Hugging Face becomes a checkpoint of Argosy's own: step 0, with a model table beside it.

::

    OUT/model.toml             the recipe's model table, and where it came from
    OUT/checkpoints/step-0/    the weights, in the dtype in which they came
    OUT/huggingface/           config.json, tokenizer and what else came with them
"""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import MetadataIndex

from argosy import __version__
from argosy.checkpoint.manifest import Manifest
from argosy.checkpoint.origin import COMPANIONS, MODEL_FILE
from argosy.checkpoint.save import save
from argosy.data.companions import copy_companions
from argosy.data.files import build_folder, fsync
from argosy.errors import InputError
from argosy.models.hf.config import CONFIG_FILE, family_of
from argosy.models.hf.tensors import HfFolder
from argosy.recipe.schema import ModelTable


@dataclass(frozen=True)
class Imported:
    """What :func:`import_folder` took over."""

    folder: Path
    architecture: str
    model: ModelTable
    parameters: int
    tensors: int
    companions: tuple[str, ...]
    """Names of the files that came with the weights."""


def import_folder(source: Path, out: Path) -> Imported:
    """Take the model in `source` over into `out`, which must not exist or be empty.

    One tensor at a time is in memory; files are mapped.

    Raises:
        InputError: `source` is incomplete, of an unknown architecture or not what its config.json says; or `out` exists
            or may not be written.
        StoppedError, SaveError: the disk is full. In every case nothing is left behind.
    """
    with HfFolder(source) as weights:
        companions: list[str] = []

        def fill(folder: Path) -> None:
            _save(weights, folder / "checkpoints")
            (folder / COMPANIONS).mkdir()
            shutil.copyfile(source / CONFIG_FILE, folder / COMPANIONS / CONFIG_FILE)
            companions.extend(copy_companions(source, folder / COMPANIONS))
            _write_table(weights, folder / MODEL_FILE)

        if not build_folder(out, fill, say=lambda line: None):
            raise InputError("exists already", where=str(out), do="remove it or choose another folder")
        return Imported(
            out,
            family_of(weights.table).architecture,
            weights.table,
            sum(torch.Size(shape).numel() for shape in weights.shapes.values()),
            len(weights.shapes),
            tuple(companions),
        )


class _Lazily(DefaultSavePlanner):
    """Fetches each tensor when its turn to be written has come; the tree has only descriptions on `meta`."""

    def __init__(self, weights: HfFolder):
        super().__init__()
        self._weights = weights

    def lookup_object(self, index: MetadataIndex) -> Any:
        return self._weights.read(index.fqn.removeprefix("model."))


def _save(weights: HfFolder, checkpoints: Path) -> None:
    checkpoints.mkdir()
    dtypes = weights.dtypes()
    described = {name: torch.empty(shape, dtype=dtypes[name], device="meta") for name, shape in weights.shapes.items()}
    manifest = Manifest(
        run_id="imported",
        step=0,
        generation=0,
        world_size=1,
        layout={},
        learning_hash="",
        data_digest="",
        code_version=__version__,
        created_wall_s=time.time(),
        training={},
        files={},
    )
    save(checkpoints, {"model": described}, manifest, None, _Lazily(weights))


def _write_table(weights: HfFolder, path: Path) -> None:
    source = {"architecture": family_of(weights.table).architecture, "folder": str(weights.path.absolute())}
    table = weights.table.model_dump(mode="json", by_alias=True, exclude_none=True)
    path.write_text(tomli_w.dumps({"model": table, "source": source}), encoding="utf-8")
    fsync(path)
