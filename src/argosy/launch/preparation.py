"""Getting the data ready once, before any rank starts."""

import multiprocessing
import sys
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path

from argosy.errors import ArgosyError, StoppedError
from argosy.launch.signals import StopSignals
from argosy.recipe.schema import Recipe


def prepare_data(recipe: Recipe, signals: StopSignals) -> Path | None:
    """Build or find the recipe's data and return its folder; None when a stop was asked for meanwhile.

    It runs in a child process, so that a stop need not wait for it: data that is half built is never visible, and the
    next start builds it again. The child is a fork: the launcher has no threads, and an interpreter need not start.
    Raises what the preparation raised.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_prepare, args=(recipe, theirs), daemon=True)
    child.start()
    theirs.close()
    connection.wait([ours, signals.fd])
    if signals.asked:
        child.kill()
        child.join()
        return None
    try:
        answer: Path | ArgosyError = ours.recv()
    except EOFError:
        child.join()
        raise StoppedError(
            f"preparing the data ended with exit code {child.exitcode}", do="see the messages above; then start again"
        ) from None
    child.join()
    if isinstance(answer, ArgosyError):
        raise answer
    return answer


def _prepare(recipe: Recipe, pipe: Connection) -> None:
    from argosy.data.prepare import prepare  # numpy and tokenizers are loaded in the child only

    try:
        pipe.send(prepare(recipe, say=lambda line: print(line, file=sys.stderr, flush=True)).folder)
    except ArgosyError as error:
        pipe.send(error)
