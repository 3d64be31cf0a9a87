"""Token data in the format of Megatron-LM: ``NAME.bin`` holds tokens, ``NAME.idx`` says where documents are.

The index: ``MMIDIDX``, two zero bytes, version (uint64), code of the dtype (uint8), number of sequences and of document
bounds (uint64 each), then length of each sequence in tokens (int32), its place in the .bin in bytes (int64), and the
bounds of documents in sequences (int64), the first of them 0.
"""

import struct
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from argosy.data.corpus import Document, Rejected
from argosy.data.listing import SourceFile, files_of, fingerprint
from argosy.data.tokenizer import Tokenizer
from argosy.errors import InputError

MAGIC = b"MMIDIDX\x00\x00"
DTYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}


class MegatronFiles:
    """Documents whose tokens are there already.

    Args:
        source: the .idx or the .bin, or their common name.
        tokenizer: the one that made the tokens: their text is needed to count bytes and to tell copies.

    Raises (when read):
        InputError: a file is missing or damaged, or a token is beyond the tokenizer's vocabulary.
    """

    def __init__(self, source: str | Path, tokenizer: Tokenizer):
        self.name = str(source)
        self._tokenizer = tokenizer

    @staticmethod
    def fits(source: str | Path) -> bool:
        """Whether a source is in this format, by its name."""
        return str(source).endswith((".idx", ".bin"))

    @property
    def fingerprint(self) -> str:
        return fingerprint([self._file(".idx"), self._file(".bin")])

    def __iter__(self) -> Iterator[Document | Rejected]:
        dtype, lengths, places, bounds = self._index
        tokens = self._file(".bin")
        if lengths.size and tokens.size < int((places + lengths * dtype.itemsize).max()):
            raise InputError(f"has {tokens.size} bytes, the index needs more", where=tokens.path, do="copy both again")
        end_of_text, most = self._tokenizer.end_of_text, self._tokenizer.vocab_size
        with tokens.open() as stream:
            for number, (first, stop) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
                parts = []
                for sequence in range(first, stop):
                    stream.seek(int(places[sequence]))
                    parts.append(np.frombuffer(stream.read(int(lengths[sequence]) * dtype.itemsize), dtype=dtype))
                ids = np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)
                if ids.size and ids[-1] == end_of_text:  # every document gets one
                    ids = ids[:-1]
                if not ids.size:
                    continue
                if int(ids.max()) >= most or int(ids.min()) < 0:
                    raise InputError(
                        f"token {int(ids.max())} of document {number} is beyond the tokenizer's {most}",
                        where=tokens.path,
                        do="give the tokenizer that made it with --tokenizer",
                    )
                yield Document(f"{tokens.name}:{number}", self._tokenizer.decode(ids), ids.tobytes(), ids=ids)

    @cached_property
    def _index(self) -> tuple[np.dtype, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(dtype, lengths in tokens, places in bytes, document bounds in sequences)."""
        file = self._file(".idx")
        with file.open() as stream:
            content = stream.read()
        head = struct.calcsize("<QBQQ")
        if not content.startswith(MAGIC) or len(content) < len(MAGIC) + head:
            raise InputError("is no index of Megatron-LM", where=file.path, do="give NAME.idx beside NAME.bin")
        version, code, sequences, documents = struct.unpack_from("<QBQQ", content, len(MAGIC))
        if version != 1 or code not in DTYPES:
            raise InputError(f"has version {version} and dtype {code}, which is not known", where=file.path)
        at = len(MAGIC) + head
        if len(content) < at + 12 * sequences + 8 * documents:
            raise InputError("is cut short", where=file.path, do="copy it again")
        lengths = np.frombuffer(content, "<i4", sequences, at).astype(np.int64)
        places = np.frombuffer(content, "<i8", sequences, at + 4 * sequences)
        bounds = np.frombuffer(content, "<i8", documents, at + 12 * sequences)
        ascending = bounds.size == 0 or (bounds[0] == 0 and bounds[-1] == sequences and (np.diff(bounds) >= 0).all())
        if not ascending or (lengths < 0).any() or (places < 0).any():
            raise InputError("is damaged: bounds are out of order", where=file.path, do="copy it again")
        return np.dtype(DTYPES[code]), lengths, places, bounds

    def _file(self, suffix: str) -> SourceFile:
        base = self.name.removesuffix(".idx").removesuffix(".bin")
        (file,) = files_of(f"{base}{suffix}")
        return file
