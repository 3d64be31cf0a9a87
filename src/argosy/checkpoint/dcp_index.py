"""Read DCP's ``.metadata``, a pickle, without executing anything of it and without torch.

A pickle names classes and calls them. Here each name that DCP writes stands for an inert record, and any other name is
refused, so nothing outside this module is ever called.
"""

import io
import pickle
import re
from pathlib import Path
from typing import Any, ClassVar

from argosy.checkpoint.manifest import LARGEST_BYTES, not_permitted
from argosy.errors import InputError


class Record:
    """Stands for an object: what it was called with, and the state it was given."""

    def __init__(self, *arguments: Any):
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def field(self, name: str) -> Any:
        """Raises KeyError where there is none, TypeError where the state has no fields."""
        return self.state[name]

    # Records are keys of DCP's tables; each is itself.
    __hash__ = object.__hash__


_DCP = "torch.distributed.checkpoint"
_INERT = {
    (f"{_DCP}.metadata", "Metadata"),
    (f"{_DCP}.metadata", "MetadataIndex"),
    (f"{_DCP}.metadata", "TensorStorageMetadata"),
    (f"{_DCP}.metadata", "BytesStorageMetadata"),
    (f"{_DCP}.metadata", "ChunkStorageMetadata"),
    (f"{_DCP}.metadata", "TensorProperties"),
    (f"{_DCP}.metadata", "StorageMeta"),
    (f"{_DCP}.metadata", "_MEM_FORMAT_ENCODING"),
    (f"{_DCP}.filesystem", "_StorageInfo"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
    ("pathlib", "PosixPath"),
    ("pathlib", "PurePosixPath"),
    ("collections", "OrderedDict"),
}
_DTYPES = re.compile(r"(b?float|complex|u?int)[0-9]+[0-9a-z_]*|bool")


_LEFT_OUT = {
    *(pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.PERSID, pickle.BINPERSID),  # names from elsewhere
    *(pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER),  # as much memory as the pickle asks for
    *(pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET, pickle.INST, pickle.OBJ),  # DCP writes none
}


_InPython: Any = pickle._Unpickler
"""Python's own unpickler: the faster one in C reserves memory for whatever place a pickle gives to a memo."""


class _Reader(_InPython):
    dispatch: ClassVar[dict[int, Any]] = {
        code: load for code, load in _InPython.dispatch.items() if bytes([code]) not in _LEFT_OUT
    }

    def find_class(self, module: str, name: str) -> type[Record]:
        if (module, name) in _INERT or (module == "torch" and _DTYPES.fullmatch(name)):
            return Record
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def load_setitems(self) -> None:
        items = self.pop_mark()
        table = self.stack[-1]
        for key, value in zip(items[::2], items[1::2], strict=True):
            self._put(table, key, value)

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._put(self.stack[-1], key, value)

    @staticmethod
    def _put(table: Any, key: Any, value: Any) -> None:
        if not isinstance(table, dict) or not isinstance(key, str | int | Record):
            raise pickle.UnpicklingError("a table is none, or has a key that takes for ever to hash")
        table[key] = value

    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems


def read_index(path: Path) -> dict[str, int]:
    """The files that a ``.metadata`` names, with the least size of each. Raises InputError alone."""
    try:
        content = path.read_bytes()
    except PermissionError as error:
        raise not_permitted(path) from error
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", where=str(path)) from error
    if len(content) > LARGEST_BYTES:
        raise InputError("is too large to be DCP's", where=str(path))
    return parse_index(content, str(path))


def parse_index(content: bytes, where: str) -> dict[str, int]:
    """:func:`read_index` of what a file holds, whatever that is."""
    try:
        metadata = _Reader(io.BytesIO(content)).load()
        sizes: dict[str, int] = {}
        for place in metadata.field("storage_data").values():
            file, at, length = (place.field(name) for name in ("relative_path", "offset", "length"))
            if not isinstance(file, str) or not isinstance(at, int) or not isinstance(length, int):
                raise TypeError("a place in a file")
            sizes[file] = max(sizes.get(file, 0), at + length)
    except pickle.UnpicklingError as error:
        raise InputError(f"is no plain metadata of DCP: {error}", where=where) from error
    except Exception as error:  # a pickle that is none fails in any way it likes
        raise InputError(f"is no metadata of DCP ({type(error).__name__})", where=where) from error
    return sizes
