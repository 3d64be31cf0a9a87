"""Opening a run for training: made or continued, locked, and perhaps finished already."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from argosy.errors import Exit
from argosy.launch.attempt import last_end
from argosy.launch.completion import parent_of
from argosy.launch.stop import clear_stop
from argosy.recipe.schema import Recipe
from argosy.registry.run_folder import RunFolder


@contextmanager
def opened(folder: Path, recipe: Recipe) -> Iterator[tuple[RunFolder, str | None]]:
    """The run in `folder`, new if there was none, locked until the block is left; and why it is finished, else None.

    A run is finished when its last attempt ended with code 0, unless how it runs has changed since: a larger budget
    or another target may let it go on. Raises UsageError when the run learns something else or is being trained,
    InputError when the folder cannot be read or written.
    """
    if (folder / "run.json").exists():
        run = RunFolder.open(folder)
        was = run.recipe()
    else:
        run, was = RunFolder.create(folder, recipe, parent=parent_of(recipe)), recipe
    with run.lock():
        run.continue_with(recipe)
        clear_stop(run)
        end = last_end(run)
        if end is not None and end["exit"] == Exit.DONE and was == recipe:
            yield run, end.get("reason", "its last attempt ended well")
        else:
            yield run, None
