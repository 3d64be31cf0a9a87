"""Compilation is booked as such, wherever in a step torch begins it, and each one is a record of the journal.

A record after the first steps is a recompilation: a shape or a setting that changed, and seconds that were paid for.
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from argosy.journal.recorder import Recording


@contextmanager
def compilation_booked(recorder: Recording) -> Iterator[None]:
    """While open, time in torch's compiler on this thread is the phase ``compile``, each time with a record."""
    from torch._dynamo.callback import CallbackArgs, callback_handler  # the compiler is loaded by those who compile

    owner = threading.get_ident()
    running = ExitStack()

    def begin(args: CallbackArgs) -> None:
        if threading.get_ident() == owner:
            running.enter_context(recorder.phase("compile"))

    def end(args: CallbackArgs) -> None:
        if threading.get_ident() == owner:
            running.close()
            recorder.event("compile", id=args.compile_id, trigger=args.callback_trigger.name.lower())

    callback_handler.register_start_callback(begin)
    callback_handler.register_end_callback(end)
    try:
        yield
    finally:
        callback_handler.remove_start_callback(begin)
        callback_handler.remove_end_callback(end)
