"""The files of a shard folder: mapped when touched, checked before their first use, a bounded number at a time."""

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from argosy.data.files import digest_file
from argosy.errors import InputError

CHECKED_BYTES = 1 << 16
"""Tokens are checked in blocks of this size when they are first read: about 2 µs each."""
MOST_MAPPED = 128
"""Files that one folder keeps mapped; each takes a file descriptor, of which a process has about a thousand."""


def block_sums(content: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """[blocks] xxh3_64 of each block of CHECKED_BYTES."""
    starts = range(0, content.size, CHECKED_BYTES)
    return np.array([xxhash.xxh3_64_intdigest(content[at : at + CHECKED_BYTES].data) for at in starts], dtype="<u8")


class MappedFiles:
    """Maps files as arrays and forgets the one that was not used for longest.

    Mapped pages belong to the kernel's page cache: they do not count as memory of the process.
    """

    def __init__(self, most: int = MOST_MAPPED):
        self._most = most
        self._maps: OrderedDict[Path, NDArray[Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._maps)

    def get(self, path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The whole file as an array; an empty file as an empty one."""
        found = self._maps.get(path)
        if found is None:
            # A plain view of the map: slicing an np.memmap costs five times as much as slicing an array.
            empty = path.stat().st_size == 0
            found = np.empty(0, dtype) if empty else np.asarray(np.memmap(path, dtype=dtype, mode="r"))
            self._maps[path] = found
            if len(self._maps) > self._most:
                self._maps.popitem(last=False)
        else:
            self._maps.move_to_end(path)
        return found


class CheckedTokens:
    """The tokens of one shard; each block is compared with its checksum before it is first handed out.

    Args:
        sums: file of checksums; None in folders of earlier versions: then the whole file is compared with `digest`.
    """

    def __init__(self, files: MappedFiles, path: Path, dtype: np.dtype[Any], sums: Path | None, digest: str):
        self._files = files
        self._path = path
        self._dtype = dtype
        self._sums = sums
        self._digest = digest
        self._per_block = CHECKED_BYTES // dtype.itemsize
        self._checked: NDArray[np.bool_] | None = None
        self._whole = False

    def get(self, start: int, stop: int) -> NDArray[Any]:
        """Tokens ``start … stop - 1`` of the shard, cut at its end, not copied.

        Raises:
            InputError: they are not what was written.
        """
        tokens = self._files.get(self._path, self._dtype)
        if not self._whole:
            self._check(tokens, start // self._per_block, -(-min(stop, tokens.size) // self._per_block))
        return tokens[start:stop]

    def _check(self, tokens: NDArray[Any], first: int, stop: int) -> None:
        if self._sums is None:
            if digest_file(self._path) != self._digest:
                raise _damaged(self._path, "the file")
            self._whole = True
            return
        if self._checked is None:
            self._checked = np.zeros(-(-tokens.nbytes // CHECKED_BYTES), dtype=np.bool_)
        if self._checked[first:stop].all():
            return
        sums = self._files.get(self._sums, np.dtype("<u8"))
        content = memoryview(tokens.view(np.uint8).data)
        for block in range(first, stop):
            if not self._checked[block]:
                at = block * CHECKED_BYTES
                if xxhash.xxh3_64_intdigest(content[at : at + CHECKED_BYTES]) != int(sums[block]):
                    raise _damaged(self._path, f"bytes {at} to {min(at + CHECKED_BYTES, len(content))}")
                self._checked[block] = True
        self._whole = bool(self._checked.all())


def _damaged(path: Path, what: str) -> InputError:
    return InputError(
        f"{what} are not what was written: wrong checksum" if what != "the file" else "wrong digest: it was changed",
        where=str(path),
        do="copy the folder again, or build it again",
    )
