"""Best-fit packing: documents into bins of S positions with as little padding as that allows.

Best-fit decreasing (longest first, each into the fullest bin that still has room) wastes at most 22 % of the bins of
the best packing, and on text about none, because short documents fill what long ones leave. Sizes are small integers,
so that bins of equal room are handled together: a shard of 200,000 documents takes some ten milliseconds. Each shard is
packed by itself, which bounds memory.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from argosy.data.files import build_folder, digest_json, fsync, read_json, write_json
from argosy.data.shard_files import MappedFiles
from argosy.data.shards import TokenShards

Ints = NDArray[np.int64]

SCHEMA = "argosy.bins/1"
MANIFEST = "bins.json"


class Bins:
    """Which pieces of the stream make each sample, in mapped files: nothing of it is held in memory."""

    def __init__(self, folder: Path):
        manifest = read_json(folder / MANIFEST, SCHEMA)
        self._bins: int = manifest["bins"]
        files = MappedFiles()
        self._first = files.get(folder / "first.bin", np.dtype("<i8"))
        self._start = files.get(folder / "start.bin", np.dtype("<i8"))
        self._size = files.get(folder / "size.bin", np.dtype("<i4"))

    @classmethod
    def of(cls, shards: TokenShards, sequence_length: int, cache: Path, say: Callable[[str], None]) -> "Bins":
        """The bins of a stream, made on first use in the folder `cache`."""
        key = digest_json([SCHEMA, shards.digest, sequence_length])
        folder = cache / f"bins-{key[:16]}"
        if not (folder / MANIFEST).is_file():
            build_folder(folder, lambda empty: _write(shards, sequence_length, empty), say)
        return cls(folder)

    def __len__(self) -> int:
        return self._bins

    def pieces(self, number: int) -> list[tuple[int, int]]:
        """(first input token in the stream, positions) of each piece of a bin; its targets are one token further."""
        part = slice(int(self._first[number]), int(self._first[number + 1]))
        return list(zip(self._start[part].tolist(), self._size[part].tolist(), strict=True))


def best_fit(sizes: Ints, capacity: int) -> Ints:
    """Best-fit decreasing: the bin of each item, bins numbered as they are opened. [items] → [items].

    Args:
        sizes: 1 … capacity.
    """
    order = np.argsort(-sizes, kind="stable")
    lengths, firsts = np.unique(-sizes[order], return_index=True)
    stops = np.append(firsts[1:], len(order))[: len(firsts)].tolist()
    bin_of = np.empty(len(sizes), dtype=np.int64)
    with_room: dict[int, list[Ints]] = {}  # room left → numbers of bins, in stretches
    rooms = 0  # bit r: some bin has room r
    bins = 0
    for length, first, stop in zip((-lengths).tolist(), firsts.tolist(), stops, strict=True):
        while first < stop:
            fitting = rooms >> length
            room = length + (fitting & -fitting).bit_length() - 1 if fitting else capacity
            each = room // length  # a bin takes as many as it can before the next one is begun
            wanted = -(-(stop - first) // each)
            if fitting:
                chosen = with_room[room].pop()
                if len(chosen) > wanted:
                    with_room[room].append(chosen[wanted:])
                    chosen = chosen[:wanted]
                if not with_room[room]:
                    rooms &= ~(1 << room)
            else:
                chosen = np.arange(bins, bins + wanted)
                bins += wanted
            placed = min(stop - first, each * len(chosen))
            bin_of[order[first : first + placed]] = chosen[np.arange(placed) // each]
            first += placed
            full, partly = divmod(placed, each)
            for left, stretch in ((room - each * length, chosen[:full]), (room - partly * length, chosen[full:])):
                if left and len(stretch):
                    with_room.setdefault(left, []).append(stretch)
                    rooms |= 1 << left
    return bin_of


def pack(ends: Ints, first_token: int, sequence_length: int) -> tuple[Ints, Ints, Ints]:
    """Documents of one stretch of the stream as bins: (pieces of each bin, start of each piece, its size).

    Args:
        ends: where each document ends in the stream (exclusive), ascending.
        first_token: where the first one begins.
    """
    begins = np.concatenate([[first_token], ends[:-1]])
    positions = ends - begins - 1
    whole, rest = np.divmod(positions, sequence_length)
    documents = np.repeat(np.arange(len(ends)), whole)
    number = np.arange(len(documents)) - np.repeat(np.cumsum(whole) - whole, whole)
    full_starts = begins[documents] + number * sequence_length
    short = np.flatnonzero(rest)
    bin_of = best_fit(rest[short], sequence_length)
    by_bin = np.argsort(bin_of, kind="stable")
    starts = np.concatenate([full_starts, (begins + whole * sequence_length)[short][by_bin]])
    sizes = np.concatenate([np.full(len(full_starts), sequence_length), rest[short][by_bin]])
    return np.concatenate([np.ones(len(full_starts), dtype=np.int64), np.bincount(bin_of)]), starts, sizes


def _write(shards: TokenShards, sequence_length: int, folder: Path) -> None:
    bins = pieces = begin = 0
    paths = [folder / f"{name}.bin" for name in ("first", "start", "size")]
    with paths[0].open("wb") as first_file, paths[1].open("wb") as start_file, paths[2].open("wb") as size_file:
        first_file.write(np.zeros(1, dtype="<i8").tobytes())
        for ends in shards.document_ends():
            counts, starts, sizes = pack(ends, begin, sequence_length)
            first_file.write((pieces + np.cumsum(counts)).astype("<i8").tobytes())
            start_file.write(starts.astype("<i8").tobytes())
            size_file.write(sizes.astype("<i4").tobytes())
            bins, pieces, begin = bins + len(counts), pieces + len(starts), int(ends[-1])
    for path in paths:
        fsync(path)
    positions = shards.tokens - shards.documents
    padding = bins * sequence_length - positions
    write_json(folder / MANIFEST, {"schema": SCHEMA, "bins": bins, "pieces": pieces, "padding": padding})
