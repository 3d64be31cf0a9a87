"""What `transformers` needs beside a tokenizer.json, made where a data folder does not have it."""

import json
from pathlib import Path
from typing import Any

from argosy.data.companions import GENERATION_CONFIG, TOKENIZER_CONFIG
from argosy.data.tokenizer import Tokenizer
from argosy.models.hf.config import read_json_object


def complete_companions(folder: Path, tokenizer: Tokenizer, token_ids: dict[str, Any], max_positions: int) -> None:
    """Write the settings that are not in `folder` yet."""
    end = tokenizer.decode([tokenizer.end_of_text])
    settings = {
        # The class that takes tokenizer.json as it is; without it AutoTokenizer guesses one by the architecture.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": end,
        "model_max_length": max_positions,
        "clean_up_tokenization_spaces": False,
    }
    for name, content in ((TOKENIZER_CONFIG, settings), (GENERATION_CONFIG, token_ids)):
        if not (folder / name).exists():
            (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def special_token_ids(folder: Path, tokenizer: Tokenizer) -> dict[str, Any]:
    """``bos_token_id`` and the like, as `folder`'s tokenizer_config.json names the tokens; at least the end of text."""
    settings = read_json_object(folder / TOKENIZER_CONFIG) if (folder / TOKENIZER_CONFIG).exists() else {}
    ids: dict[str, Any] = {"eos_token_id": tokenizer.end_of_text}
    for role in ("bos", "eos", "pad"):
        token = settings.get(f"{role}_token")
        text = token.get("content") if isinstance(token, dict) else token
        if text is not None and (number := tokenizer.token_id(text)) is not None:
            ids[f"{role}_token_id"] = number
    return ids
