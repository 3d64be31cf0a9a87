"""Experiment trackers that a run can be mirrored to. Each adapter is thin: the journal stays the store.

An adapter is opened for one attempt and continues what earlier attempts of the run began. Its package is imported
only there, in the mirror's own process.
"""

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from argosy.errors import UsageError
from argosy.recipe.knobs import values
from argosy.registry.run_folder import RunFolder

PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}
"""Tracker → the package it needs; each is an extra of this project of the same name."""


class Tracker(Protocol):
    """What the mirror needs of a tracker."""

    def log(self, step: int, figures: dict[str, float]) -> None:
        """Take `figures` of the state after `step` updates. Steps never go back, and none comes twice."""

    def close(self) -> None:
        """Write out what is left."""


@dataclass
class Opening:
    """What an adapter is opened with."""

    run_id: str
    """The same over all attempts."""
    name: str
    config: dict[str, Any]
    """The flat recipe."""
    folder: Path
    """For local files, inside the run's folder."""
    kept: dict[str, str]
    """Stored between attempts; an adapter may put the tracker's own names in."""


def check(names: list[str]) -> None:
    """Raises UsageError naming what to install when a tracker is unknown or its package is missing."""
    for name in names:
        if name not in PACKAGES:
            raise UsageError(f"unknown tracker {name}", where="--track", do=f"take one of {', '.join(PACKAGES)}")
        if find_spec(PACKAGES[name]) is None:
            raise UsageError(
                f"tracker {name} needs the package {PACKAGES[name]}, which is not installed",
                where="--track",
                do=f"pip install 'argosy[{name}]', or leave it out",
            )


def opening(run: RunFolder, name: str, kept: dict[str, str]) -> Opening:
    """What the tracker `name` is told about `run`."""
    folder = run.path / "trackers" / name
    folder.mkdir(parents=True, exist_ok=True)
    config = {key: value for key, value in values(run.recipe()).items() if value is not None}
    return Opening(run.info.id, run.info.name, config, folder, kept)


def open_tracker(name: str, given: Opening) -> Tracker:
    """The adapter `name`, connected."""
    tracker: Tracker = import_module(f"argosy.integrations.to_{name}").open_tracker(given)
    return tracker
