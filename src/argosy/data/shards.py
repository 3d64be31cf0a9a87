"""Token shards: one stream of tokens in files that are mapped, never read whole.

A folder holds ``manifest.json``, ``tokens-NNNNN.bin`` (uint16, or uint32 for vocabularies above 65,536;
little endian), ``sums-NNNNN.bin`` (uint64: a checksum per 64 KiB of the tokens) and ``ends-NNNNN.bin`` (int64: where
each document ends inside its shard, its end-of-text token included). Where not every token carries loss there is also
``loss-NNNNN.bin`` (a byte per token, 0 or 1). Shards end at document boundaries. The manifest is written last: without
it there is no data.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.data.files import digest_file, digest_json, read_json
from argosy.data.shard_files import CHECKED_BYTES, MOST_MAPPED, CheckedTokens, MappedFiles
from argosy.errors import InputError

SCHEMA = "argosy.shards/1"
MANIFEST = "manifest.json"
SHARD_TOKENS = 1 << 27
_CONTENT = {"tokens": "digest", "ends": "ends_digest", "loss": "loss_digest"}
"""What a model sees; the digest of a data set covers these."""
_DIGESTS = {**_CONTENT, "sums": "sums_digest"}


def shard_path(folder: Path, what: str, index: int) -> Path:
    """File of a shard; `what` is tokens, sums, ends or loss."""
    return folder / f"{what}-{index:05d}.bin"


class TokenShards:
    """A folder of token shards as one stream. Files are mapped when they are touched, a bounded number at a time.

    Attributes:
        dtype: in which tokens are stored.
        tokens, documents, text_bytes: sizes of the stream; every document ends with ``end_of_text``.
        unique_tokens: tokens of documents of which no earlier one is a copy.
        loss_tokens: tokens that carry loss; ``text_bytes`` counts the text of these.
        masked: whether some do not.
        digest: of all shards in order, by their digests; two folders with equal digests hold the same stream.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any], most_mapped: int = MOST_MAPPED):
        self.folder = folder
        self.vocab_size: int = manifest["vocab_size"]
        self.end_of_text: int = manifest["end_of_text"]
        self.max_token: int = manifest["max_token"]
        self.documents: int = manifest["documents"]
        self.tokens: int = manifest["tokens"]
        self.unique_tokens: int = manifest.get("unique_tokens", self.tokens)
        self.text_bytes: int = manifest["text_bytes"]
        self.loss_tokens: int = manifest.get("loss_tokens", self.tokens)
        self.digest = digest_json(
            [
                manifest["dtype"],
                [[shard[key] for key in _CONTENT.values() if key in shard] for shard in manifest["shards"]],
            ]
        )
        self.dtype = np.dtype(manifest["dtype"]).newbyteorder("<")
        self._shards: list[dict[str, Any]] = manifest["shards"]
        self._starts = list(accumulate((shard["tokens"] for shard in self._shards), initial=0))
        self.masked = any("loss_digest" in shard for shard in self._shards)
        self._check_sizes()
        self._files = MappedFiles(most_mapped)
        self._tokens = [
            CheckedTokens(
                self._files,
                self._path("tokens", index),
                self.dtype,
                self._path("sums", index) if "sums_digest" in shard else None,
                shard["digest"],
            )
            for index, shard in enumerate(self._shards)
        ]
        self._verified: set[Path] = set()

    @classmethod
    def open(cls, folder: Path, *, verify: bool = False, most_mapped: int = MOST_MAPPED) -> "TokenShards":
        """Open a folder of shards.

        Args:
            verify: also compare the digest of every file, which reads all of them. Without it, what is read is compared
                when it is read.
            most_mapped: files that stay mapped.

        Raises:
            InputError: folder, manifest or shard is missing, empty, truncated, of a newer version or damaged.
        """
        if not folder.is_dir():
            raise InputError("no such data folder", where=str(folder), do="make it with `argosy data build`")
        manifest = read_json(folder / MANIFEST, SCHEMA)
        try:
            shards = cls(folder, manifest, most_mapped)
        except (KeyError, TypeError) as error:
            raise InputError(f"manifest lacks {error}", where=str(folder / MANIFEST), do="build it again") from error
        if not shards.tokens:
            raise InputError("holds no tokens", where=str(folder), do="build it from a source with text")
        if verify:
            shards.verify()
        return shards

    def verify(self) -> None:
        """Read every file and compare digests.

        Raises:
            InputError: names the first damaged file.
        """
        for index, shard in enumerate(self._shards):
            for what in (what for what, key in _DIGESTS.items() if key in shard):
                self._verify(what, index)

    @property
    def count(self) -> int:
        """Number of shards."""
        return len(self._shards)

    @property
    def mapped(self) -> int:
        """Files that are mapped now."""
        return len(self._files)

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
        """Tokens ``start … stop - 1`` of the stream, into ``out`` when given, else as int64.

        Raises:
            InputError: a block that is read for the first time is not what was written.
        """
        if out is None:
            out = np.empty(stop - start, dtype=np.int64)
        assert 0 <= start <= stop <= self.tokens
        shard = bisect_right(self._starts, start) - 1
        filled = 0
        while start < stop:
            offset = start - self._starts[shard]
            piece = self._tokens[shard].get(offset, offset + stop - start)
            out[filled : filled + piece.size] = piece
            filled += piece.size
            start += piece.size
            shard += 1
        return out

    def window(self, start: int, stop: int) -> NDArray[Any]:
        """As :meth:`read` in the stored dtype; where they lie in one shard, its own memory and no copy."""
        shard = bisect_right(self._starts, start) - 1
        if stop <= self._starts[shard + 1]:
            base = self._starts[shard]
            return self._tokens[shard].get(start - base, stop - base)
        return self.read(start, stop, np.empty(stop - start, dtype=self.dtype))

    def read_loss(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Which of the tokens ``start … stop - 1`` carry loss."""
        out = np.ones(stop - start, dtype=np.bool_)
        if not self.masked:
            return out
        for shard, first, last in self._parts(start, stop):
            at = self._starts[shard] + first - start
            out[at : at + last - first] = self._mapped("loss", shard, np.dtype(np.bool_))[first:last]
        return out

    def ends_between(self, start: int, stop: int) -> NDArray[np.int64]:
        """Where documents end in the stream (exclusive), for all ends in ``start < end < stop``, ascending."""
        found = []
        for shard, first, last in self._parts(start, stop):
            ends = self._mapped("ends", shard, np.dtype("<i8"))
            low, high = np.searchsorted(ends, (first, last), side="right").tolist()
            found.append(ends[low:high] + self._starts[shard])
        inside = found[0] if len(found) == 1 else np.concatenate(found)
        return inside[inside < stop]

    def document_ends(self) -> Iterator[NDArray[np.int64]]:
        """Per shard: where its documents end in the whole stream (exclusive), ascending."""
        for index, start in enumerate(self._starts[:-1]):
            yield self._mapped("ends", index, np.dtype("<i8")) + start

    def _parts(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """(shard, first, last) of the pieces that the range has in each shard, by its own numbers."""
        assert 0 <= start <= stop <= self.tokens
        shard = bisect_right(self._starts, start) - 1
        while start < stop:
            base, end = self._starts[shard], self._starts[shard + 1]
            yield shard, start - base, min(stop, end) - base
            start = end
            shard += 1

    def _mapped(self, what: str, index: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """A side file, its digest compared when it is first used."""
        path = self._path(what, index)
        if path not in self._verified:
            self._verify(what, index)
            self._verified.add(path)
        return self._files.get(path, dtype)

    def _verify(self, what: str, index: int) -> None:
        path, expected = self._path(what, index), self._shards[index][_DIGESTS[what]]
        if (found := digest_file(path)) != expected:
            raise InputError(
                f"wrong digest {found}, the manifest says {expected}", where=str(path), do="build it again"
            )

    def _path(self, what: str, index: int) -> Path:
        return shard_path(self.folder, what, index)

    def _check_sizes(self) -> None:
        for index, shard in enumerate(self._shards):
            tokens = shard["tokens"] * self.dtype.itemsize
            sizes = {"tokens": tokens, "ends": shard["documents"] * 8}
            if "sums_digest" in shard:
                sizes["sums"] = -(-tokens // CHECKED_BYTES) * 8
            if self.masked:
                sizes["loss"] = shard["tokens"]
            for what, expected in sizes.items():
                _check_size(self._path(what, index), expected)


def _check_size(path: Path, expected: int) -> None:
    if not path.is_file():
        raise InputError("shard is missing", where=str(path), do="copy the whole folder, or build it again")
    if (found := path.stat().st_size) != expected:
        raise InputError(
            f"shard has {found} bytes instead of {expected}",
            where=str(path),
            do="copy the whole folder, or build it again",
        )
