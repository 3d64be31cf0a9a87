"""Fixtures of the whole suite; being here also puts this folder on the import path, so that tests find `ranks`."""

from collections.abc import Callable
from typing import Any

import pytest

from ranks import run_ranks as _run_ranks


@pytest.fixture
def run_ranks() -> Callable[..., list[Any]]:
    """`run_ranks(n, fn, *args, timeout_s=60)`: see :func:`ranks.run_ranks`."""
    return _run_ranks
