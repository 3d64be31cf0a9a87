"""The data sets of a mixture: found or built one by one, then noted together under one name for all ranks."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.data.files import build_folder, digest_json, read_json, write_json
from argosy.data.shards import TokenShards
from argosy.errors import UsageError

SCHEMA = "argosy.mixture/1"
MANIFEST = "mixture.json"


@dataclass(frozen=True)
class Source:
    """One data set of a run.

    Attributes:
        name: in records; empty for the only source of a recipe without a mixture.
        source_digest: of the text.
        baselines: `gzip -9` and `xz -9` of its held-out text, see ``dataset.json``.
    """

    name: str
    folder: Path
    train: TokenShards
    held_out: TokenShards
    digest: str
    source_digest: str
    baselines: dict[str, Any]


class JoinedShards:
    """Streams of several sources one after the other, for evaluation; reads like :class:`TokenShards`."""

    def __init__(self, parts: list[TokenShards]):
        self.parts = parts
        self.tokens = sum(part.tokens for part in parts)
        self.text_bytes = sum(part.text_bytes for part in parts)
        self.end_of_text = parts[0].end_of_text
        self.digest = digest_json([part.digest for part in parts])
        self._starts = list(accumulate((part.tokens for part in parts), initial=0))

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        """Tokens ``start … stop - 1``."""
        return self._joined(start, stop, TokenShards.read, np.int64)

    def read_loss(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Which of the tokens ``start … stop - 1`` carry loss."""
        return self._joined(start, stop, TokenShards.read_loss, np.bool_)

    def _joined(self, start: int, stop: int, read: Callable[..., NDArray[Any]], dtype: Any) -> NDArray[Any]:
        found = [np.empty(0, dtype)]
        for part, first in zip(self.parts, self._starts, strict=False):
            low, high = max(start, first), min(stop, first + part.tokens)
            if low < high:
                found.append(read(part, low - first, high - first))
        return np.concatenate(found)


def note_mixture(
    folders: dict[str, Path], tokenizers: dict[str, str], cache: Path, copy: Callable[[Path], Any]
) -> Path:
    """A folder that names the data sets of a mixture, so that ranks need not look for them again.

    Args:
        folders: data set of each source.
        tokenizers: digest of the tokenizer of each.
        copy: puts the tokenizer's files into the folder.

    Raises:
        UsageError: the sources were built with different tokenizers.
    """
    first = next(iter(folders))
    for name, digest in tokenizers.items():
        if digest != tokenizers[first]:
            raise UsageError(
                f"the sources {first!r} and {name!r} were built with different tokenizers",
                where=str(folders[name]),
                do=f"build it again with --tokenizer {folders[first]}/tokenizer.json",
            )
    noted = {name: str(folder.absolute()) for name, folder in folders.items()}
    place = cache / f"mixture-{digest_json([SCHEMA, noted, tokenizers])[:16]}"

    def fill(empty: Path) -> None:
        copy(empty)
        write_json(empty / MANIFEST, {"schema": SCHEMA, "sources": noted})

    build_folder(place, fill, lambda line: None)
    return place


def noted_folders(folder: Path) -> dict[str, Path]:
    """What :func:`note_mixture` noted; a folder with a single data set is a mixture of one without a name."""
    if not (folder / MANIFEST).exists():
        return {"": folder}
    return {name: Path(path) for name, path in read_json(folder / MANIFEST, SCHEMA)["sources"].items()}
