"""The process that writes a rank's checkpoints in the background: ``python -m … ORDERS_FD BUFFERS_FD``.

It reads the rank's own snapshot in shared memory, so no copy is made. It imports no torch: it starts in a moment and
is small. It ends with its rank, and neither Ctrl-C nor a scheduler's SIGTERM to all processes of a job ends it before.
"""

import contextlib
import ctypes
import os
import signal
import sys
from multiprocessing.connection import Connection

from argosy.checkpoint.causes import root_cause
from argosy.checkpoint.orders import Desk
from argosy.checkpoint.shared_buffers import SharedBuffers
from argosy.errors import ArgosyError

_PR_SET_PDEATHSIG = 1
_NICE = 10
"""Training goes first where both want the same core."""


def main(orders: Connection, buffers: SharedBuffers) -> None:
    """Carry out orders one after the other, until the rank hangs up."""
    desk: Desk = orders.recv()
    while True:
        try:
            number, order = orders.recv()
        except (EOFError, ConnectionResetError):
            return
        error = None
        try:
            order.run(desk, buffers)
        except Exception as cause:  # the rank must learn of it, whatever it is
            error = cause if isinstance(cause, ArgosyError) else ArgosyError(root_cause(cause))
        with contextlib.suppress(BrokenPipeError):  # the rank is gone, and so are we at the next order
            orders.send((number, error))
        buffers.answered = number  # after the answer: who sees the number finds it


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.nice(_NICE)
    main(Connection(int(sys.argv[1])), SharedBuffers(int(sys.argv[2])))
