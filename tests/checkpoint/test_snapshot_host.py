"""Snapshots live in a process of their own: they outlive who took them, and nothing else does."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from argosy.checkpoint.shared_buffers import SharedBuffers
from argosy.checkpoint.snapshot_host import Held, SnapshotHost, newest_common
from argosy.errors import StoppedError

KEEPER = """
import sys, time
from argosy.checkpoint.shared_buffers import SharedBuffers
from argosy.checkpoint.snapshot_host import SnapshotHost
buffers = SharedBuffers.create(2, 1000)
SnapshotHost.start(sys.argv[1]).keep(3, "mine", buffers.fd)
buffers.data(1)[:] = bytes(range(250)) * 4
buffers.commit(1, 7, {"lr": 0.5})
print("kept", flush=True)
time.sleep(60)
"""


@pytest.fixture
def name() -> Iterator[str]:
    """Of a host that is gone after the test."""
    name = f"argosy-test/{os.getpid()}/{secrets.token_hex(4)}"
    yield name
    if host := SnapshotHost.adopt(name):
        host.stop()


def alive(name: str) -> bool:
    """Looks without connecting: that would make the host wait anew."""
    return f"@{name}\n" in Path("/proc/net/unix").read_text()


def wait_until(true: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 20
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_what_is_kept_outlives_its_owner(name: str) -> None:
    owner = subprocess.Popen([sys.executable, "-c", KEEPER, name], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "kept\n"
    owner.kill()
    owner.wait()
    with owner.stdout, SnapshotHost.start(name) as host:
        (held,) = host.held()
        assert (held.rank, held.identity, held.steps) == (3, "mine", (7,))
        descriptor = host.take(3, "mine")
        assert descriptor is not None
        buffers = SharedBuffers(descriptor)
        assert bytes(buffers.data(1)) == bytes(range(250)) * 4
        assert buffers.note(1) == {"lr": 0.5}


def test_other_ranks_and_identities_get_nothing(name: str) -> None:
    with SnapshotHost.start(name) as host:
        host.keep(0, "one", SharedBuffers.create(1, 10).fd)
        assert host.take(1, "one") is None
        assert host.take(0, "other") is None
        host.keep(0, "other", SharedBuffers.create(1, 10).fd)
        assert host.take(0, "one") is None, "a rank holds one thing"
        host.drop(0)
        assert host.held() == []


def test_there_is_one_host_however_many_start_it(name: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        hosts = list(pool.map(lambda _: SnapshotHost.start(name), range(8)))
    for rank, host in enumerate(hosts):
        host.keep(rank, "x", SharedBuffers.create(1, 10).fd)
    assert all([held.rank for held in host.held()] == list(range(8)) for host in hosts)
    for host in hosts:
        host.close()


def test_it_waits_for_a_successor_but_not_for_ever(name: str) -> None:
    host = SnapshotHost.start(name, linger_s=1.0)
    host.keep(0, "x", SharedBuffers.create(1, 10).fd)
    time.sleep(1.5)
    assert alive(name), "somebody is connected"
    host.close()
    successor = SnapshotHost.adopt(name)
    assert successor is not None
    assert successor.held()
    successor.close()
    wait_until(lambda: not alive(name))


def test_stopped_it_is_gone_and_asking_it_says_so(name: str) -> None:
    host, other = SnapshotHost.start(name), SnapshotHost.start(name)
    host.stop()
    wait_until(lambda: not alive(name))
    with pytest.raises(StoppedError, match="snapshot host"):
        other.held()


def test_it_is_nobodys_child_and_no_signal_to_its_starters_group_reaches_it(name: str) -> None:
    starter = subprocess.Popen([sys.executable, "-c", KEEPER, name], stdout=subprocess.PIPE, process_group=0)
    assert starter.stdout is not None
    starter.stdout.readline()
    os.killpg(starter.pid, signal.SIGKILL)
    starter.communicate()
    with SnapshotHost.start(name) as host:
        assert host.held()


@pytest.mark.parametrize("message", [b"no json", b"[]", b"{}", b'{"op": "dance"}', b'{"op": "keep", "rank": 0}'])
def test_nonsense_is_answered_and_hurts_nobody(name: str, message: bytes) -> None:
    with SnapshotHost.start(name) as host:
        host.keep(0, "x", SharedBuffers.create(1, 10).fd)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
            stranger.connect("\0" + name)
            stranger.send(message)
            assert "error" in json.loads(stranger.recv(1 << 16))
        assert [held.rank for held in host.held()] == [0]


def test_the_newest_step_that_all_ranks_have() -> None:
    ranks = [Held(rank, "x", 1, steps) for rank, steps in enumerate([(8, 7), (7, 6), (9, 7)])]
    assert newest_common(ranks) == 7
    assert newest_common([*ranks, Held(3, "x", 1, (6, 5))]) is None
    assert newest_common([]) is None
