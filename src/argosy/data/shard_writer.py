"""Writing token shards, one after the other; those that are finished survive a kill."""

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from argosy.data.files import digest_file, fsync, read_json, write_json
from argosy.data.shard_files import block_sums
from argosy.data.shards import MANIFEST, SCHEMA, SHARD_TOKENS, shard_path

FINISHED = "finished.jsonl"
"""One line per shard that lies on the device whole; it goes away when the manifest is written."""


class ShardWriter:
    """Write documents one after another; the folder becomes readable when the block ends without an error.

    A folder that a killed writer left is gone on with: :attr:`done_documents` are in finished shards already and must
    not be added again. What was in the shard under way has to be.
    """

    def __init__(self, folder: Path, vocab_size: int, end_of_text: int, shard_tokens: int = SHARD_TOKENS):
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.vocab_size = vocab_size
        self.end_of_text = end_of_text
        self.shard_tokens = shard_tokens
        self.dtype = np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")
        self._shards = _finished(folder)
        self._open: _OpenShard | None = None

    @property
    def done_documents(self) -> int:
        """Documents in finished shards."""
        return sum(shard["documents"] for shard in self._shards)

    @property
    def text_bytes(self) -> int:
        """Bytes of text with loss so far."""
        return self._total("text_bytes") + (self._open.text_bytes if self._open else 0)

    def add(
        self, ids: NDArray[Any], text_bytes: int, loss: NDArray[np.bool_] | None = None, *, duplicate: bool = False
    ) -> None:
        """Append one document and its end-of-text token, which carries loss.

        Args:
            text_bytes: bytes of the text that carries loss.
            loss: [ids.size] which tokens do; None: all. Documents of one folder have it all or none of them.
            duplicate: an earlier document has the same text: its tokens are not unique.
        """
        document = np.append(ids, self.end_of_text)
        largest = int(document.max())
        assert largest < self.vocab_size, f"tokenizer gave {largest} with a vocabulary of {self.vocab_size}"
        if self._open and self._open.tokens + document.size > self.shard_tokens:
            self._close_shard()
        if self._open is None:
            self._open = _OpenShard(self._path("tokens"))
        mask = None if loss is None else np.append(loss, True)
        self._open.add(document.astype(self.dtype), largest, text_bytes, mask, duplicate)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            if self._open is not None:
                self._open.file.close()
            return
        if self._open is not None:
            self._close_shard()
        counted = ("documents", "tokens", "unique_tokens", "loss_tokens", "text_bytes")
        write_json(
            self.folder / MANIFEST,
            {
                "schema": SCHEMA,
                "dtype": self.dtype.name,
                "vocab_size": self.vocab_size,
                "end_of_text": self.end_of_text,
                "max_token": max((shard["max_token"] for shard in self._shards), default=0),
                **{name: self._total(name) for name in counted},
                "shards": self._shards,
            },
        )
        (self.folder / FINISHED).unlink(missing_ok=True)

    def _total(self, name: str) -> int:
        return sum(shard[name] for shard in self._shards)

    def _path(self, what: str) -> Path:
        return shard_path(self.folder, what, len(self._shards))

    def _close_shard(self) -> None:
        assert self._open is not None
        shard, self._open = self._open, None
        shard.file.close()
        tokens, sums, ends = (self._path(what) for what in ("tokens", "sums", "ends"))
        sums.write_bytes(block_sums(np.memmap(tokens, dtype=np.uint8, mode="r")).tobytes())
        ends.write_bytes(np.array(shard.ends, dtype="<i8").tobytes())
        found = {
            "tokens": shard.tokens,
            "documents": len(shard.ends),
            "unique_tokens": shard.unique_tokens,
            "loss_tokens": shard.loss_tokens,
            "text_bytes": shard.text_bytes,
            "max_token": shard.max_token,
            "digest": digest_file(tokens),
            "ends_digest": digest_file(ends),
            "sums_digest": digest_file(sums),
        }
        written = [tokens, sums, ends]
        if shard.losses:
            loss = self._path("loss")
            loss.write_bytes(np.concatenate(shard.losses).astype(np.uint8).tobytes())
            found["loss_digest"] = digest_file(loss)
            written.append(loss)
        for path in (*written, self.folder):
            fsync(path)
        self._shards.append(found)
        line = json.dumps(found) + "\n"
        with (self.folder / FINISHED).open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


class _OpenShard:
    """The shard under way."""

    def __init__(self, path: Path):
        self.file: BinaryIO = path.open("wb")
        self.ends: list[int] = []
        self.losses: list[NDArray[np.bool_]] = []
        self.tokens = self.unique_tokens = self.loss_tokens = self.text_bytes = self.max_token = 0

    def add(
        self, document: NDArray[Any], largest: int, text_bytes: int, loss: NDArray[np.bool_] | None, duplicate: bool
    ) -> None:
        self.file.write(document.tobytes())
        self.tokens += document.size
        self.ends.append(self.tokens)
        self.unique_tokens += 0 if duplicate else document.size
        self.text_bytes += text_bytes
        self.max_token = max(self.max_token, largest)
        self.loss_tokens += document.size if loss is None else int(loss.sum())
        if loss is not None:
            self.losses.append(loss)
        assert len(self.losses) in (0, len(self.ends)), "documents with and without a mask in one folder"


def _finished(folder: Path) -> list[dict[str, Any]]:
    """Shards that an earlier writer finished; a line that a kill cut short does not count."""
    if (folder / MANIFEST).exists():  # all of them
        shards: list[dict[str, Any]] = read_json(folder / MANIFEST, SCHEMA)["shards"]
        return shards
    path = folder / FINISHED
    if not path.exists():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    if len(whole) + 1 < path.stat().st_size:
        path.write_bytes(whole + b"\n" if whole else b"")
    return [json.loads(line) for line in whole.splitlines()]
