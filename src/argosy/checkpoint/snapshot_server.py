"""The process that keeps snapshots alive when the ranks that took them die: ``python -m … NAME LINGER_S``.

It holds descriptors of shared memory, and nothing else: it maps nothing, imports no torch, and answers five questions
on a socket with an abstract name. Such a name is bound by one process at most and vanishes with it, so there is one
host for a name, no file to clean up, and no host that nobody can find. Only processes of the same user are answered.

It lives while somebody is connected, and `linger_s` longer if it holds anything: time enough for the next attempt to
take over.

Messages are one JSON object each way; `keep` brings a descriptor, `take` returns one:

=========================  =========================================================================================
``keep  rank, identity``   hold this memory for the rank instead of what was held for it before
``take  rank, identity``   the memory held for the rank, if it has this identity; else ``{"found": false}``
``list``                   for each rank: identity, size, steps of its whole snapshots (newest first)
``drop  rank | null``      let go of a rank's memory, or of all
``stop``                   let go of all and end
=========================  =========================================================================================
"""

import json
import os
import selectors
import socket
import struct
import sys
import time
from dataclasses import dataclass
from typing import Any

from argosy.checkpoint.shared_buffers import steps_held

MESSAGE_BYTES = 1 << 16
EMPTY_S = 2.0
"""How long a host without anything to hold waits: whoever started it will connect at once."""
_SAME_USER = struct.Struct("iII")  # pid, uid, gid of SO_PEERCRED


@dataclass(frozen=True)
class _Held:
    fd: int
    identity: str


class Server:
    """Answers on `listener` until it is told to stop, or nobody has been connected for `linger_s`."""

    def __init__(self, listener: socket.socket, linger_s: float):
        self._listener = listener
        self._linger_s = linger_s
        self._held: dict[int, _Held] = {}
        self._stopped = False

    def serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            connected, alone_since_s = 0, time.monotonic()
            while not self._stopped:
                patience_s = self._linger_s if self._held else min(EMPTY_S, self._linger_s)
                left_s = None if connected else alone_since_s + patience_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    return
                for key, _ in selector.select(left_s):
                    if key.fileobj is self._listener:
                        peer, _ = self._listener.accept()
                        if same_user(peer):
                            selector.register(peer, selectors.EVENT_READ)
                            connected += 1
                        else:
                            peer.close()
                    elif not self._answer(key.fileobj):  # type: ignore[arg-type]  # registered above
                        selector.unregister(key.fileobj)
                        key.fileobj.close()  # type: ignore[union-attr]
                        connected, alone_since_s = connected - 1, time.monotonic()

    def _answer(self, peer: socket.socket) -> bool:
        """Answer one message; False when the peer is gone."""
        fds: list[int] = []
        try:
            text, fds, _, _ = socket.recv_fds(peer, MESSAGE_BYTES, 1)
            if not text:
                return False
            answer, fd = self._do(json.loads(text), fds)
            socket.send_fds(peer, [json.dumps(answer).encode()], [] if fd is None else [fd])
        except OSError:
            return False
        except (ValueError, LookupError, TypeError) as error:  # not one of ours: answer, and go on for the others
            peer.send(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        finally:
            for fd in fds:  # what `keep` has not taken out
                os.close(fd)
        return True

    def _do(self, ask: dict[str, Any], fds: list[int]) -> tuple[dict[str, Any], int | None]:
        match ask["op"]:
            case "keep":
                held = _Held(fds[0], ask["identity"])
                self._drop(ask["rank"])
                self._held[ask["rank"]] = held
                fds.clear()
                return {}, None
            case "take":
                found = self._held.get(ask["rank"])
                if found is None or found.identity != ask["identity"]:
                    return {"found": False}, None
                return {"found": True}, found.fd
            case "list":
                ranks = [
                    {
                        "rank": rank,
                        "identity": held.identity,
                        "bytes": os.fstat(held.fd).st_size,
                        "steps": steps_held(held.fd),
                    }
                    for rank, held in sorted(self._held.items())
                ]
                return {"held": ranks}, None
            case "drop":
                for rank in list(self._held) if ask["rank"] is None else [ask["rank"]]:
                    self._drop(rank)
                return {}, None
            case "stop":
                self._stopped = True
                return {}, None
            case other:
                raise ValueError(f"no such question: {other!r}")

    def _drop(self, rank: int) -> None:
        if held := self._held.pop(rank, None):
            os.close(held.fd)


def same_user(peer: socket.socket) -> bool:
    """Whether the process at the other end belongs to this user: an abstract name has no permissions."""
    _, uid, _ = _SAME_USER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _SAME_USER.size))
    return uid == os.getuid()


def main(name: str, linger_s: float) -> None:
    """Bind, go to the background, serve. The caller's wait ends when the host can be reached."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind("\0" + name)
    except OSError:  # another host has the name: it will answer
        return
    listener.listen(64)
    if os.fork():
        os._exit(0)
    Server(listener, linger_s).serve()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
