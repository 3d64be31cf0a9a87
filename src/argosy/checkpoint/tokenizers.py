"""The tokenizer that goes with the weights of an origin."""

from pathlib import Path

from argosy.checkpoint.origin import TOKENIZER_FILE, Origin
from argosy.data.prepare import data_folder
from argosy.errors import InputError


def tokenizer_file(origin: Origin) -> Path:
    """Its tokenizer.json: in the data of a run, beside the weights of anything else.

    Raises InputError when there is none.
    """
    folder = origin.companions if origin.recipe is None else data_folder(origin.recipe)
    if folder is None or not (folder / TOKENIZER_FILE).exists():
        raise InputError("has no tokenizer.json", where=str(folder or origin.folder), do="give the file itself")
    return folder / TOKENIZER_FILE
