"""What a rank asks its writer process to do. No torch here."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from pydantic import TypeAdapter

from argosy.checkpoint.commit import abandon, begin_draft, commit
from argosy.checkpoint.confirm import confirm
from argosy.checkpoint.folders import draft_folder
from argosy.checkpoint.manifest import Manifest
from argosy.checkpoint.retention import tidy
from argosy.checkpoint.shards import Chunk, RankFile, Shard
from argosy.checkpoint.shared_buffers import SharedBuffers
from argosy.checkpoint.write import write_rank_file
from argosy.errors import InputError
from argosy.policy.retention import RetentionPolicy

_RANK_FILE = TypeAdapter(RankFile)


@dataclass(frozen=True)
class Desk:
    """What a writer has at hand: told once, since nothing of it changes during an attempt."""

    checkpoints: Path
    generation: int
    file: str
    """Name of this rank's file in every checkpoint."""
    pieces: Sequence[tuple[Chunk, int]]
    """What to write, and where each chunk lies in a buffer."""
    files: Sequence[str] = ()
    """Names of all ranks' files; for the rank that commits."""
    dcp_metadata: bytes = b""


class Order(Protocol):
    """Something to do; what `run` raises is reported."""

    def run(self, desk: Desk, buffers: SharedBuffers) -> None: ...


@dataclass(frozen=True)
class WriteFile:
    """Write this rank's file of a checkpoint from a buffer, and beside it what the commit must know of it."""

    step: int
    index: int

    def run(self, desk: Desk, buffers: SharedBuffers) -> None:
        draft = begin_draft(desk.checkpoints, self.step, desk.generation)
        data = buffers.data(self.index)
        shards = [Shard(chunk, partial(_part, data, at, chunk.bytes)) for chunk, at in desk.pieces]
        written = write_rank_file(draft, desk.file, shards)
        _report(draft, desk.file).write_bytes(_RANK_FILE.dump_json(written))


@dataclass(frozen=True)
class Commit:
    """Make a checkpoint of what all ranks have written."""

    manifest: Manifest

    def run(self, desk: Desk, buffers: SharedBuffers) -> None:
        draft = draft_folder(desk.checkpoints, self.manifest.step, desk.generation)
        files = [_RANK_FILE.validate_json(_report(draft, name).read_bytes()) for name in desk.files]
        commit(desk.checkpoints, self.manifest, files, desk.dcp_metadata)


@dataclass(frozen=True)
class Abandon:
    """Give back the room of a save that failed."""

    step: int

    def run(self, desk: Desk, buffers: SharedBuffers) -> None:
        abandon(desk.checkpoints, self.step, desk.generation)


@dataclass(frozen=True)
class Tidy:
    """Read the new checkpoint back; then delete those that the policy does not keep."""

    step: int
    policy: RetentionPolicy

    def run(self, desk: Desk, buffers: SharedBuffers) -> None:
        try:
            confirm(desk.checkpoints, self.step, desk.generation)
        except InputError as error:
            print(error, file=sys.stderr, flush=True)  # nobody waits for the answer to this order
        tidy(desk.checkpoints, self.policy, desk.generation)


def _part(data: memoryview, at: int, size: int) -> memoryview:
    return data[at : at + size]


def _report(draft: Path, file: str) -> Path:
    return draft / f".{file}.json"
