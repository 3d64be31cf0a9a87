"""`run_ranks(n, fn, *args)`: run a function on n gloo ranks, from a warm forkserver, in a fraction of a second.

Each test process (each xdist worker too) has one forkserver that has already imported and warmed torch
(:mod:`warm_ranks`). A rank is a fork of it with a default gloo process group over a file store, so there is no port
to race for. Ranks see no GPU; they die when the test process dies, when one of them fails, or at the timeout.
"""

import contextlib
import multiprocessing
import os
import pickle
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing import connection, forkserver
from pathlib import Path
from typing import Any


def run_ranks(n: int, fn: Callable[..., Any], *args: Any, timeout_s: float = 60) -> list[Any]:
    """Call `fn(*args)` on each of `n` ranks and return the results in rank order.

    `fn` is a function at the top level of an importable module, and `args` and results can be pickled. It finds the
    default process group (gloo, `n` ranks) ready, and one torch thread. The first exception on a rank is raised here,
    with that rank's traceback as a note, after the other ranks were killed; TimeoutError names the ranks not done.
    """
    _start_server()
    task = pickle.dumps((fn, args))  # plain pickle: multiprocessing's would put tensors into shared memory
    context = multiprocessing.get_context("forkserver")
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder, contextlib.ExitStack() as stack:
        store = str(Path(folder, "store"))
        pipes: dict[Any, int] = {}
        for rank in range(n):
            ours, theirs = context.Pipe()
            stack.enter_context(ours)
            process = context.Process(target=_rank, args=(rank, n, store, task, theirs, timeout_s), daemon=True)
            process.start()
            theirs.close()
            stack.callback(_reap, process)
            pipes[ours] = rank
        results = _collect(pipes, time.monotonic() + timeout_s)
        return [results[rank] for rank in range(n)]


def _collect(pipes: dict[Any, int], deadline: float) -> dict[int, Any]:
    results: dict[int, Any] = {}
    while len(results) < len(pipes):
        waiting = [pipe for pipe, rank in pipes.items() if rank not in results]
        ready = connection.wait(waiting, timeout=deadline - time.monotonic())
        if not ready:
            raise TimeoutError(f"ranks {[pipes[pipe] for pipe in waiting]} are not done in time")
        for pipe in ready:
            rank = pipes[pipe]
            try:
                ok, value, trace = pickle.loads(pipe.recv_bytes())
            except EOFError:
                raise RuntimeError(f"rank {rank} of {len(pipes)} died without a word") from None
            if not ok:
                value.add_note(f"raised on rank {rank} of {len(pipes)}:\n{trace}")
                raise value
            results[rank] = value
    return results


def _reap(process: Any) -> None:
    process.kill()  # it has reported, or never will
    process.join()
    process.close()


def _rank(rank: int, n: int, store: str, task: bytes, pipe: Any, timeout_s: float) -> None:
    """Body of one rank's process.

    It reports and then waits for the end: leaving by itself could break a peer's last collective, and an interpreter
    with torch takes long to tear down.
    """
    threading.Thread(target=_die_with_parent, daemon=True).start()
    import torch.distributed as dist  # already loaded: this process is a fork of the warm server

    try:
        dist.init_process_group(
            "gloo", store=dist.FileStore(store, n), rank=rank, world_size=n, timeout=timedelta(seconds=timeout_s)
        )
        fn, args = pickle.loads(task)
        message = pickle.dumps((True, fn(*args), ""))
    except BaseException as error:
        message = _packed_error(error)
    with contextlib.suppress(OSError):  # a broken pipe: the test process is gone, and we go with it
        pipe.send_bytes(message)
    threading.Event().wait()


def _packed_error(error: BaseException) -> bytes:
    trace = "".join(traceback.format_exception(error))
    try:
        message = pickle.dumps((False, error, trace))
        pickle.loads(message)
    except Exception:
        message = pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}"), trace))
    return message


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _start_server() -> None:
    """Start this process's forkserver once; later calls return at once."""
    multiprocessing.set_forkserver_preload(["warm_ranks"])
    here = str(Path(__file__).parent)
    with _environment(
        PYTHONPATH=os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])),
        CUDA_VISIBLE_DEVICES="",
        GLOO_SOCKET_IFNAME="lo",
        OMP_NUM_THREADS="1",
    ):
        forkserver.ensure_running()


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
