"""Token shards: one stream of tokens in files that are mapped, never read whole.

A folder holds ``manifest.json``, ``tokens-NNNNN.bin`` (uint16, or uint32 for vocabularies above 65,536;
little endian) and ``ends-NNNNN.bin`` (int64: where each document ends inside its shard, its end-of-text token
included). Where not every token carries loss there is also ``loss-NNNNN.bin`` (a byte per token, 0 or 1).
Shards end at document boundaries. The manifest is written last: without it there is no data.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from argosy.data.files import digest_file, digest_json, fsync, read_json, write_json
from argosy.errors import InputError

SCHEMA = "argosy.shards/1"
MANIFEST = "manifest.json"
SHARD_TOKENS = 1 << 27
_DIGESTS = {"tokens": "digest", "ends": "ends_digest", "loss": "loss_digest"}


class ShardWriter:
    """Write documents one after another; the folder becomes readable when the block ends without an error."""

    def __init__(self, folder: Path, vocab_size: int, end_of_text: int, shard_tokens: int = SHARD_TOKENS):
        folder.mkdir()
        self.folder = folder
        self.vocab_size = vocab_size
        self.end_of_text = end_of_text
        self.shard_tokens = shard_tokens
        self.dtype = np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")
        self.max_token = 0
        self.text_bytes = 0
        self._shards: list[dict[str, Any]] = []
        self._tokens: BinaryIO | None = None
        self._ends: list[int] = []
        self._losses: list[NDArray[np.bool_]] = []
        self._loss_tokens = 0

    def add(self, ids: NDArray[np.int64], text_bytes: int, loss: NDArray[np.bool_] | None = None) -> None:
        """Append one document and its end-of-text token, which carries loss.

        Args:
            text_bytes: bytes of the text that carries loss.
            loss: [ids.size] which tokens do; None: all. Documents of one folder have it all or none of them.
        """
        document = np.append(ids, self.end_of_text)
        largest = int(document.max())
        assert largest < self.vocab_size, f"tokenizer gave {largest} with a vocabulary of {self.vocab_size}"
        self.max_token = max(self.max_token, largest)
        self.text_bytes += text_bytes
        if self._ends and self._ends[-1] + document.size > self.shard_tokens:
            self._close_shard()
        if self._tokens is None:
            self._tokens = self._path("tokens", len(self._shards)).open("wb")
        self._tokens.write(document.astype(self.dtype).tobytes())
        self._ends.append((self._ends[-1] if self._ends else 0) + document.size)
        if loss is not None:
            self._losses.append(np.append(loss, True))
        assert len(self._losses) in (0, len(self._ends)), "documents with and without a mask in one folder"
        self._loss_tokens += document.size if loss is None else 1 + int(loss.sum())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            if self._tokens is not None:
                self._tokens.close()
            return
        if self._tokens is not None:
            self._close_shard()
        write_json(
            self.folder / MANIFEST,
            {
                "schema": SCHEMA,
                "dtype": self.dtype.name,
                "vocab_size": self.vocab_size,
                "end_of_text": self.end_of_text,
                "max_token": self.max_token,
                "documents": sum(shard["documents"] for shard in self._shards),
                "tokens": sum(shard["tokens"] for shard in self._shards),
                "loss_tokens": self._loss_tokens,
                "text_bytes": self.text_bytes,
                "shards": self._shards,
            },
        )

    def _path(self, what: str, index: int) -> Path:
        return self.folder / f"{what}-{index:05d}.bin"

    def _close_shard(self) -> None:
        assert self._tokens is not None
        self._tokens.close()
        index = len(self._shards)
        tokens, ends = self._path("tokens", index), self._path("ends", index)
        ends.write_bytes(np.array(self._ends, dtype="<i8").tobytes())
        for path in (tokens, ends):
            fsync(path)
        shard = {
            "tokens": self._ends[-1],
            "documents": len(self._ends),
            "digest": digest_file(tokens),
            "ends_digest": digest_file(ends),
        }
        if self._losses:
            loss = self._path("loss", index)
            loss.write_bytes(np.concatenate(self._losses).astype(np.uint8).tobytes())
            fsync(loss)
            shard["loss_digest"] = digest_file(loss)
        self._shards.append(shard)
        self._tokens, self._ends, self._losses = None, [], []


class TokenShards:
    """A folder of token shards as one stream, mapped into memory.

    Attributes:
        dtype: in which tokens are stored.
        tokens, documents, text_bytes: sizes of the stream; every document ends with ``end_of_text``.
        loss_tokens: tokens that carry loss; ``text_bytes`` counts the text of these.
        masked: whether some do not.
        digest: of all shards in order, by their digests; two folders with equal digests hold the same stream.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]):
        self.folder = folder
        self.vocab_size: int = manifest["vocab_size"]
        self.end_of_text: int = manifest["end_of_text"]
        self.max_token: int = manifest["max_token"]
        self.documents: int = manifest["documents"]
        self.tokens: int = manifest["tokens"]
        self.text_bytes: int = manifest["text_bytes"]
        self.loss_tokens: int = manifest.get("loss_tokens", self.tokens)
        self.digest = digest_json(
            [
                manifest["dtype"],
                [[shard[key] for key in _DIGESTS.values() if key in shard] for shard in manifest["shards"]],
            ]
        )
        self.dtype = np.dtype(manifest["dtype"]).newbyteorder("<")
        self._shards: list[dict[str, Any]] = manifest["shards"]
        self._starts = list(accumulate((shard["tokens"] for shard in self._shards), initial=0))
        self.masked = any("loss_digest" in shard for shard in self._shards)
        for index, shard in enumerate(self._shards):
            if self.masked:
                self._check_size(self._path("loss", index), shard["tokens"])
            self._check_size(self._path("tokens", index), shard["tokens"] * self.dtype.itemsize)
            self._check_size(self._path("ends", index), shard["documents"] * 8)
        # Plain views of the maps: slicing an np.memmap costs five times as much as slicing an array.
        self._maps = self._map("tokens", self.dtype)
        self._losses = self._map("loss", np.dtype(np.bool_)) if self.masked else []

    @classmethod
    def open(cls, folder: Path, *, verify: bool = False) -> "TokenShards":
        """Map a folder of shards.

        Args:
            verify: also compare the digest of every file, which reads all of them.

        Raises:
            InputError: folder, manifest or shard is missing, empty, truncated, of a newer version or damaged.
        """
        if not folder.is_dir():
            raise InputError("no such data folder", where=str(folder), do="make it with `argosy data build`")
        manifest = read_json(folder / MANIFEST, SCHEMA)
        try:
            shards = cls(folder, manifest)
        except (KeyError, TypeError) as error:
            raise InputError(f"manifest lacks {error}", where=str(folder / MANIFEST), do="build it again") from error
        if not shards.tokens:
            raise InputError("holds no tokens", where=str(folder), do="build it from a source with text")
        if verify:
            shards.verify()
        return shards

    def verify(self) -> None:
        """Read every file and compare digests and the largest token.

        Raises:
            InputError: names the first damaged file.
        """
        for index, shard in enumerate(self._shards):
            for what, expected in ((what, shard[key]) for what, key in _DIGESTS.items() if key in shard):
                path = self._path(what, index)
                if (found := digest_file(path)) != expected:
                    raise InputError(
                        f"wrong digest {found}, the manifest says {expected}", where=str(path), do="build it again"
                    )

    @property
    def count(self) -> int:
        """Number of shards."""
        return len(self._shards)

    def check_vocab(self, vocab_size: int) -> None:
        """Refuse a model whose embedding has no row for some token.

        Raises:
            InputError: a token id is at or beyond ``vocab_size``.
        """
        if self.max_token >= vocab_size:
            raise InputError(
                f"token id {self.max_token} is beyond the model's vocabulary of {vocab_size}",
                where=str(self.folder),
                do=f"set model.vocab_size to {self.vocab_size} or more",
            )

    def read(self, start: int, stop: int, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Tokens ``start … stop - 1`` of the stream, into ``out`` when given, else as int64."""
        if out is None:
            out = np.empty(stop - start, dtype=np.int64)
        return self._gather(self._maps, start, stop, out)

    def read_loss(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Which of the tokens ``start … stop - 1`` carry loss."""
        out = np.ones(stop - start, dtype=np.bool_)
        return self._gather(self._losses, start, stop, out) if self.masked else out

    def _gather(self, maps: list[NDArray[Any]], start: int, stop: int, out: NDArray[Any]) -> NDArray[Any]:
        assert 0 <= start <= stop <= self.tokens
        shard = bisect_right(self._starts, start) - 1
        filled = 0
        while start < stop:
            offset = start - self._starts[shard]
            piece = maps[shard][offset : offset + stop - start]
            out[filled : filled + piece.size] = piece
            filled += piece.size
            start += piece.size
            shard += 1
        return out

    def document_ends(self) -> Iterator[NDArray[np.int64]]:
        """Per shard: where its documents end in the whole stream (exclusive), ascending."""
        for index, start in enumerate(self._starts[:-1]):
            yield np.fromfile(self._path("ends", index), dtype="<i8") + start

    def _map(self, what: str, dtype: np.dtype[Any]) -> list[NDArray[Any]]:
        return [
            np.asarray(np.memmap(self._path(what, index), dtype=dtype, mode="r")) for index in range(len(self._shards))
        ]

    def _path(self, what: str, index: int) -> Path:
        return self.folder / f"{what}-{index:05d}.bin"

    def _check_size(self, path: Path, expected: int) -> None:
        if not path.is_file():
            raise InputError("shard is missing", where=str(path), do="copy the whole folder, or build it again")
        if (found := path.stat().st_size) != expected:
            raise InputError(
                f"shard has {found} bytes instead of {expected}",
                where=str(path),
                do="copy the whole folder, or build it again",
            )
