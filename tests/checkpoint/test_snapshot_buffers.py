"""Two buffers of shared memory: one of them is whole, whenever the process that writes them is killed."""

import os
import signal

import pytest

from argosy.checkpoint.shared_buffers import EMPTY, SharedBuffers, file_bytes, steps_held
from argosy.errors import InputError


def test_they_begin_empty_and_hold_what_is_committed() -> None:
    buffers = SharedBuffers.create(2, 5000)
    assert buffers.steps() == [EMPTY, EMPTY]
    buffers.data(0)[:] = b"a" * 5000
    buffers.data(1)[:] = b"b" * 5000
    buffers.commit(1, 4, {"x": [1, None]})
    assert steps_held(buffers.fd) == [4]
    buffers.commit(0, 5, {"x": "é" * 1000})
    assert steps_held(buffers.fd) == [5, 4]
    other = SharedBuffers(os.dup(buffers.fd))
    assert (other.steps(), other.note(0), other.note(1)) == ([5, 4], {"x": "é" * 1000}, {"x": [1, None]})
    assert (bytes(other.data(0)), bytes(other.data(1))) == (b"a" * 5000, b"b" * 5000)
    other.invalidate(1)
    assert steps_held(buffers.fd) == [5]


def test_their_memory_is_there_before_it_is_used() -> None:
    buffers = SharedBuffers.create(2, 1 << 20)
    assert os.fstat(buffers.fd).st_blocks * 512 >= file_bytes(2, 0, 1 << 20)


@pytest.mark.parametrize("moment", range(5))
def test_a_kill_in_the_middle_of_a_copy_leaves_the_other_buffer(moment: int) -> None:
    buffers = SharedBuffers.create(2, 1 << 16)
    buffers.data(0)[:] = b"7" * (1 << 16)
    buffers.commit(0, 7, {})
    half = b"8" * (1 << 15)
    copy = [
        lambda: buffers.invalidate(1),
        lambda: buffers.data(1)[: 1 << 15].__setitem__(slice(None), half),
        lambda: buffers.data(1)[1 << 15 :].__setitem__(slice(None), half),
        lambda: buffers.commit(1, 8, {}),
    ]
    child = os.fork()
    if child == 0:
        for act in copy[:moment]:
            act()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert buffers.steps() == [7, 8 if moment == 4 else EMPTY]
    assert bytes(buffers.data(0)) == b"7" * (1 << 16)


def test_a_note_that_does_not_fit_is_refused() -> None:
    buffers = SharedBuffers.create(1, 10, note_bytes=20)
    with pytest.raises(ValueError, match="does not fit"):
        buffers.commit(0, 1, {"x": "y" * 20})
    assert buffers.steps() == [EMPTY]


@pytest.mark.parametrize("content", [b"", b"short", b"\0" * 8192, b"ARGOSNAP" + b"\xff" * 9000])
def test_other_memory_is_told_apart(content: bytes) -> None:
    descriptor = os.memfd_create("other")
    os.write(descriptor, content)
    assert steps_held(descriptor) == []
    with pytest.raises(InputError, match="no snapshot"):
        SharedBuffers(descriptor)
    os.close(descriptor)


def test_a_cut_file_is_told_apart() -> None:
    buffers = SharedBuffers.create(2, 5000)
    descriptor = os.memfd_create("cut")
    os.write(descriptor, os.pread(buffers.fd, 10_000, 0))
    with pytest.raises(InputError, match="no snapshot"):
        SharedBuffers(descriptor)
    os.close(descriptor)
