"""Write one rank's shards into one file and digest them on the way. No torch and no process group needed here."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import xxhash

from argosy.checkpoint.archive import archive
from argosy.checkpoint.shards import Chunk, FileDigest, RankFile, Shard, Stored, begin_digest

BLOCK_BYTES = 1 << 22
"""Written and digested at once: small enough to be in the cache still when its turn for the other comes."""


def rank_file_name(rank: int) -> str:
    """DCP's name for the file of a rank."""
    return f"__{rank}_0.distcp"


def place(chunks: Iterable[Chunk], file: str) -> list[Stored]:
    """Where :func:`write_rank_file` will put chunks in this order: positions depend on nothing but the chunks."""
    placed, at = [], 0
    for chunk in chunks:
        head, tail = archive(chunk)
        placed.append(Stored(chunk, file, at + len(head)))
        at += len(head) + chunk.bytes + len(tail)
    return placed


def write_rank_file(draft: Path, file: str, shards: Sequence[Shard]) -> RankFile:
    """Write `shards` to `draft`/`file`, flushed to the device, and return the digests of what was meant.

    The folder must exist. Raises OSError as the system says it.
    """
    size = sum(shard.chunk.bytes + sum(map(len, archive(shard.chunk))) for shard in shards)
    frame, stored, at = xxhash.xxh3_128(), [], 0
    descriptor = os.open(draft / file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        if size and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)  # a disk that is full says so before the work
        for shard in shards:
            head, tail = archive(shard.chunk)
            at = _put(descriptor, memoryview(head), at, frame)
            digest = begin_digest(shard.chunk)
            content = memoryview(shard.content()).cast("B")
            if content.nbytes != shard.chunk.bytes:
                raise ValueError(f"{shard.chunk.name}: {content.nbytes} bytes given, {shard.chunk.bytes} announced")
            start, at = at, _put(descriptor, content, at, digest)
            at = _put(descriptor, memoryview(tail), at, frame)
            stored.append(Stored(shard.chunk, file, start, digest.hexdigest()))
            del content  # before the next is fetched: one shard in memory, not two
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return RankFile(file, FileDigest(size, frame.hexdigest()), tuple(stored))


def _put(descriptor: int, content: memoryview, at: int, digest: "xxhash.xxh3_128") -> int:
    """Write `content` at `at`, add it to `digest`, return the position behind it."""
    for begin in range(0, content.nbytes, BLOCK_BYTES):
        block = content[begin : begin + BLOCK_BYTES]
        digest.update(block)
        while block.nbytes:  # the system may take less than it was given
            written = os.pwrite(descriptor, block, at)
            block, at = block[written:], at + written
    return at
