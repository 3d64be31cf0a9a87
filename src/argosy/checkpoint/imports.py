"""A model folder of Hugging Face becomes a checkpoint of Argosy's own: step 0, with a model table beside it.

::

    OUT/model.toml             the recipe's model table, and where it came from
    OUT/checkpoints/step-0/    the weights, in the dtype in which they came
    OUT/huggingface/           config.json, tokenizer and what else came with them
"""

import shutil
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import tomli_w
import torch

from argosy import __version__
from argosy.checkpoint.manifest import Manifest
from argosy.checkpoint.origin import COMPANIONS, MODEL_FILE
from argosy.checkpoint.pieces import buffer_of
from argosy.checkpoint.plan import plan_of
from argosy.checkpoint.save import save_plan
from argosy.checkpoint.shards import Chunk, Shard
from argosy.data.companions import copy_companions
from argosy.data.files import build_folder, fsync
from argosy.errors import InputError
from argosy.models.hf.config import CONFIG_FILE, family_of
from argosy.models.hf.tensors import HfFolder
from argosy.recipe.model_table import ModelTable


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


def _save(weights: HfFolder, checkpoints: Path) -> None:
    dtypes = weights.dtypes()
    shards = []
    for name, shape in weights.shapes.items():
        dtype = str(dtypes[name]).removeprefix("torch.")
        chunk = Chunk(f"model.{name}", dtype, tuple(shape), (0,) * len(shape), tuple(shape))
        shards.append(Shard(chunk, partial(_content, weights, name)))
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
        model=weights.table.model_dump(mode="json", by_alias=True, exclude_none=True),
    )
    save_plan(checkpoints, plan_of(shards), manifest, None)


def _content(weights: HfFolder, name: str) -> memoryview:
    return buffer_of(weights.read(name))


def _write_table(weights: HfFolder, path: Path) -> None:
    source = {"architecture": family_of(weights.table).architecture, "folder": str(weights.path.absolute())}
    table = weights.table.model_dump(mode="json", by_alias=True, exclude_none=True)
    path.write_text(tomli_w.dumps({"model": table, "source": source}), encoding="utf-8")
    fsync(path)
