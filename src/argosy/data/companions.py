"""Files that belong to a tokenizer.json: its settings, chat template and what to generate with."""

import shutil
from pathlib import Path

TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
GENERATION_CONFIG = "generation_config.json"
CHAT_TEMPLATE = "chat_template.jinja"
NAMES = (TOKENIZER, TOKENIZER_CONFIG, "special_tokens_map.json", CHAT_TEMPLATE, GENERATION_CONFIG)


def copy_companions(source: Path, target: Path) -> list[str]:
    """Copy what is in `source` of :data:`NAMES` and not yet in `target`; the names copied."""
    found = [name for name in NAMES if (source / name).is_file() and not (target / name).exists()]
    for name in found:
        shutil.copyfile(source / name, target / name)
    return found
