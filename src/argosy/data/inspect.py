"""What a data folder holds, for `argosy data inspect`."""

from pathlib import Path
from typing import Any

from argosy.data.build import REJECTED_FILE, SPLITS, TOKENIZER_FILE, read_manifest
from argosy.data.shards import TokenShards
from argosy.data.tokenizer import Tokenizer

BEGINNING_TOKENS = 200


def inspect(folder: Path) -> dict[str, Any]:
    """Verify every file of a data set and describe it.

    Returns:
        Plain data: the manifest's ``source``, ``tokenizer``, ``baselines`` and ``digest``; per split its counts,
        digest and the decoded ``beginning`` of its first document.

    Raises:
        InputError: something is missing or damaged.
    """
    manifest = read_manifest(folder)
    tokenizer = Tokenizer.load(folder / TOKENIZER_FILE, kind=manifest["tokenizer"]["kind"])
    splits = {}
    for part in SPLITS:
        shards = TokenShards.open(folder / part, verify=True)
        first_end = int(next(shards.document_ends())[0])
        splits[part] = {
            "documents": shards.documents,
            "tokens": shards.tokens,
            "unique_tokens": shards.unique_tokens,
            "loss_tokens": shards.loss_tokens,
            "text_bytes": shards.text_bytes,
            "bytes_per_token": shards.text_bytes / shards.loss_tokens,
            "shards": shards.count,
            "max_token": shards.max_token,
            "digest": shards.digest,
            "beginning": tokenizer.decode(shards.read(0, min(first_end, BEGINNING_TOKENS)).tolist()),
        }
    rejected = folder / REJECTED_FILE
    return {
        "schema": 1,
        "folder": str(folder),
        "digest": manifest["digest"],
        "source": manifest["source"],
        "tokenizer": manifest["tokenizer"],
        "baselines": manifest["baselines"],
        "splits": splits,
        "rejected_file": str(rejected) if rejected.exists() else None,
    }
