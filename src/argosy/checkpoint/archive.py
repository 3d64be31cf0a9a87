"""One chunk as the archive that `torch.save` would write, so that DCP and every tool on top of it can read it.

The bytes before and after the content are made here without torch: a writer process needs no engine, and the
content is written from where it lies. The archive is an uncompressed zip whose CRC fields are 0, which torch does
not check (`torch.serialization.set_crc32_options`); our own digests cover each byte.
"""

import pickle
import struct
from functools import lru_cache

from argosy.checkpoint.shards import Chunk

_ALIGNMENT = 64
"""Of the content within the archive, as torch has it."""

_TYPED = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
    "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
}
"""Types that torch pickles by a class of their own; later ones are pickled as bytes with a dtype."""


@lru_cache(maxsize=1 << 16)
def archive(chunk: Chunk) -> tuple[bytes, bytes]:
    """What comes before and after the content of `chunk`. Both depend on nothing else, so positions are known early."""
    small = {"data.pkl": _pickled(chunk), "byteorder": b"little", "version": b"3\n"}
    head, directory = b"", b""
    for name, content in small.items():
        directory += _directory_entry(name, len(content), len(head))
        head += _local_header(name, len(content)) + content
    directory += _directory_entry("data/0", chunk.bytes, len(head))
    head += _local_header("data/0", chunk.bytes, pad_from=len(head))
    return head, directory + _end(len(small) + 1, len(directory), len(head) + chunk.bytes)


def _pickled(chunk: Chunk) -> bytes:
    """A call of torch's function that rebuilds a tensor on top of storage "0"."""
    strides: list[int] = []
    step = 1
    for size in reversed(chunk.sizes):
        strides.insert(0, step)
        step *= max(size, 1)
    storage, length = (_TYPED[chunk.dtype], step) if chunk.dtype in _TYPED else ("UntypedStorage", chunk.bytes)
    if 0 in chunk.sizes:
        length = 0
    module = b"ctorch\n" if chunk.dtype in _TYPED else b"ctorch.storage\n"
    reference = b"(" + _plain("storage") + module + storage.encode() + b"\n" + _plain("0", "cpu", length) + b"tQ"
    position = _plain(0, chunk.sizes, tuple(strides), False)
    hooks = b"ccollections\nOrderedDict\n)R"
    if chunk.dtype in _TYPED:
        return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + reference + position + hooks + b"tR."
    kind = b"ctorch\n" + chunk.dtype.encode() + b"\n"
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v3\n(" + reference + position + hooks + kind + b"tR."


def _plain(*values: object) -> bytes:
    """The opcodes that push plain values: a pickle without its frame. Nothing reads the memo that each fills anew."""
    return b"".join(pickle.dumps(value, 2)[2:-1] for value in values)


# Zip structures (PKWARE APPNOTE 4.3), all with the 64-bit fields, so that no size is a special case.
_MADE_BY = 45
_NO_TIME = 0x21_0000
"""1 January 1980, 00:00."""


def _local_header(name: str, size: int, pad_from: int | None = None) -> bytes:
    path = f"archive/{name}".encode()
    extra = struct.pack("<HHQQ", 1, 16, size, size)
    if pad_from is not None:
        # torch's own way of alignment: an extra field of its kind "FB" that holds nothing
        room = -(pad_from + 30 + len(path) + len(extra) + 4) % _ALIGNMENT
        extra += struct.pack("<2sH", b"FB", room) + b"Z" * room
    fields = struct.pack("<4sHHHIIIIHH", b"PK\3\4", _MADE_BY, 0, 0, _NO_TIME, 0, _FULL, _FULL, len(path), len(extra))
    return fields + path + extra


def _directory_entry(name: str, size: int, at: int) -> bytes:
    path = f"archive/{name}".encode()
    extra = struct.pack("<HHQQQ", 1, 24, size, size, at)
    fields = (b"PK\1\2", _MADE_BY, _MADE_BY, 0, 0, _NO_TIME, 0, _FULL, _FULL, len(path), len(extra), 0, 0, 0, 0, _FULL)
    return struct.pack("<4sHHHHIIIIHHHHHII", *fields) + path + extra


def _end(entries: int, size: int, at: int) -> bytes:
    record = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, _MADE_BY, _MADE_BY, 0, 0, entries, entries, size, at)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, at + size, 1)
    return record + locator + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, _FULL, _FULL, 0)


_FULL = 0xFFFFFFFF
"""In a 32-bit field: look at the 64-bit one."""
