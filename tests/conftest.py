"""Fixtures of the whole suite; being here also puts this folder on the import path, so that tests find `ranks`."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

from ranks import run_ranks as _run_ranks

settings.register_profile("suite", deadline=None)  # a busy machine is no fault of the code
settings.load_profile("suite")


@pytest.fixture
def run_ranks() -> Callable[..., list[Any]]:
    """`run_ranks(n, fn, *args, timeout_s=60)`: see :func:`ranks.run_ranks`."""
    return _run_ranks
