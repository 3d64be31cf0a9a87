from collections.abc import Callable
from pathlib import Path

import psutil
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


@pytest.fixture
def children() -> Callable[[], list[psutil.Process]]:
    """Processes that the test has started itself: the suite's warm rank server is a child of this process too."""
    before = set(psutil.Process().children())
    return lambda: [child for child in psutil.Process().children() if child not in before]
