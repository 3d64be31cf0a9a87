from pathlib import Path

import pytest

RECIPE = """
[run]
name = "small"
device = "cpu"

[objective]
tokens = 1024

[batch]
tokens = 1024

[tokenizer]
kind = "bytes"

[data]
cache = "{cache}"
"""


@pytest.fixture(scope="session")
def recipe_file(tmp_path_factory) -> Path:
    """A recipe whose data is built once for all tests and test processes."""
    shared = tmp_path_factory.getbasetemp().parent
    file = tmp_path_factory.mktemp("recipe") / "small.toml"
    file.write_text(RECIPE.format(cache=shared / "data-cache"))
    return file
