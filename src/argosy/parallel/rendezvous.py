"""How the ranks of one attempt find each other.

Started by Argosy's launcher, rank 0 opens a store on a port that the kernel chooses and publishes it in a
file of the attempt: no port is picked beforehand, so none can be taken by somebody else in between.
Under ``torchrun`` or ``srun`` the environment names the store (``MASTER_ADDR``, ``MASTER_PORT``).
"""

import os
import time
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from argosy.errors import StoppedError, UsageError

_POLL_S = 0.002


def meet(meeting_file: Path, rank: int, world_size: int, timeout_s: float) -> dist.Store:
    """The key-value store of an attempt whose ranks know only a file."""
    timeout = timedelta(seconds=timeout_s)
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, world_size, is_master=True, timeout=timeout, wait_for_workers=False)
        publish = meeting_file.with_suffix(".tmp")
        publish.write_text(f"127.0.0.1:{store.port}")
        publish.rename(meeting_file)
        return store
    host, port = _wait_for(meeting_file, timeout_s).rsplit(":", 1)
    return dist.TCPStore(host, int(port), world_size, is_master=False, timeout=timeout, wait_for_workers=False)


def named_store(rank: int, world_size: int, timeout_s: float) -> dist.Store:
    """The key-value store that ``MASTER_ADDR`` and ``MASTER_PORT`` name.

    Raises UsageError when they do not.
    """
    try:
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    except (KeyError, ValueError):
        raise UsageError(
            "MASTER_ADDR and MASTER_PORT must name the host of rank 0 and a free port of it", where="environment"
        ) from None
    # torchrun hosts the store itself; otherwise it is left to rank 0.
    hosted = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    timeout = timedelta(seconds=timeout_s)
    return dist.TCPStore(*address, world_size, is_master=rank == 0 and not hosted, timeout=timeout)


def _wait_for(meeting_file: Path, timeout_s: float) -> str:
    give_up = time.monotonic() + timeout_s
    while not meeting_file.exists():
        if time.monotonic() > give_up:
            raise StoppedError(
                f"rank 0 did not open the store within {timeout_s:g} s",
                where=str(meeting_file),
                do="look at the log of rank 0 in the same folder",
            )
        time.sleep(_POLL_S)
    return meeting_file.read_text()
