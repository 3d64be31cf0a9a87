"""Saves of two ranks in a process whose file system fails on demand: ``saver.py SWEEP ROOT SHIM [BUG]`` prints JSON.

Runs under the preloaded shim, without torch, so that thousands of attempts are forked in seconds. Each attempt is
judged by what it leaves: whole checkpoints only, from before or those and the new one, and room for the next save.
"""

import ctypes
import errno
import json
import os
import shutil
import signal
import struct
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from argosy.checkpoint.causes import root_cause
from argosy.checkpoint.commit import abandon, begin_draft, commit
from argosy.checkpoint.confirm import confirm
from argosy.checkpoint.files import write_file, write_whole
from argosy.checkpoint.folders import FENCE_FILE, draft_folder, saved_steps, step_folder
from argosy.checkpoint.manifest import FILE_NAME, Manifest, by_tensor, read_manifest
from argosy.checkpoint.retention import tidy
from argosy.checkpoint.shards import Chunk, RankFile, Shard
from argosy.checkpoint.verify import find_damage
from argosy.checkpoint.write import rank_file_name, write_rank_file
from argosy.policy.retention import RetentionPolicy

OFF, KILL_AFTER, KILL_TORN, FAIL_CALL, FAIL_SYNC, FAIL_READ, FULL, LOG = range(8)
ROWS, COLUMNS = 8, 16
KEEP = RetentionPolicy(2)


class Shim:
    def __init__(self, library: str, root: Path):
        self._library = ctypes.CDLL(library)
        self._root = str(root).encode()
        self._library.shim_seen.restype = ctypes.c_long

    def arm(self, mode: int, n: int = 0, number: int = 0, log: Path | None = None) -> None:
        log_file = None if log is None else str(log).encode()
        self._library.shim_arm(mode, ctypes.c_long(n), number, self._root, log_file)

    @property
    def seen(self) -> int:
        return self._library.shim_seen()


def write(root: Path, rank: int, step: int, generation: int) -> RankFile:
    """Rank's half of a matrix, and a vector on rank 0: all elements are the step."""
    half = ROWS // 2
    chunks = [Chunk("model.w", "float32", (ROWS, COLUMNS), (rank * half, 0), (half, COLUMNS))]
    if rank == 0:
        chunks.append(Chunk("model.b", "float32", (COLUMNS,), (0,), (COLUMNS,)))
    value = struct.pack("f", step)
    shards = [Shard(chunk, lambda chunk=chunk: memoryview(value * (chunk.bytes // 4))) for chunk in chunks]
    return write_rank_file(begin_draft(root, step, generation), rank_file_name(rank), shards)


def finish(root: Path, step: int, generation: int, files: list[RankFile]) -> None:
    manifest = Manifest("r", step, generation, 2, {}, "", "", "", 0.0, {})
    commit(root, manifest, files, b"metadata of step %d" % step)
    confirm(root, step, generation)
    tidy(root, KEEP, generation)


def save(root: Path, step: int, generation: int) -> None:
    finish(root, step, generation, [write(root, rank, step, generation) for rank in (0, 1)])


def judge(root: Path, what: str) -> list[int]:
    """The steps that are there; AssertionError when one is not whole, or not all of one step."""
    for step in saved_steps(root):
        folder = step_folder(root, step)
        manifest = read_manifest(folder)
        assert not find_damage(folder, manifest), f"{what}: step {step} is damaged"
        for one in manifest.stored():
            with (folder / one.file).open("rb") as file:
                file.seek(one.at)
                found = set(struct.unpack(f"{one.chunk.bytes // 4}f", file.read(one.chunk.bytes)))
            assert found == {step}, f"{what}: step {step} holds {found}"
    return saved_steps(root)


def afresh(root: Path, start: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(start, root)


def in_child(work: Callable[[], Any]) -> int:
    """How a process that does `work` ends: its wait status."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def killed(root: Path, start: Path, shim: Shim, mode: int) -> dict[str, Any]:
    """A save of step 3 is killed after each of its calls, first on rank 1, then on rank 0: what is left each time."""
    left: dict[str, list[list[int]]] = {"1": [], "0": []}
    for rank in (1, 0):
        for n in range(1, 1000):
            afresh(root, start)
            files = [write(root, 1, 3, 2)] if rank == 0 else []

            def work(rank: int = rank, n: int = n, files: list[RankFile] = files) -> None:
                shim.arm(mode, n)
                mine = write(root, rank, 3, 2)
                if rank == 0:
                    finish(root, 3, 2, [*files, mine])

            status = in_child(work)
            there = judge(root, f"rank {rank} killed at call {n}")
            if os.WIFSIGNALED(status):
                assert os.WTERMSIG(status) == signal.SIGKILL
                left[str(rank)].append(there)
            save(root, 4, 3)
            assert judge(root, "the next save")[0] == 4
            rest = {entry.name for entry in root.iterdir()} - {f"step-{step}" for step in saved_steps(root)}
            assert rest == {FENCE_FILE}, f"left behind by a kill of rank {rank} at call {n}: {rest}"
            if status == 0 and mode == KILL_AFTER:
                break
            if mode == KILL_TORN and n > len(left[str(rank)]) + 60:
                break
    return left


def refused(root: Path, start: Path, shim: Shim, points: Iterable[tuple[int, int, int]]) -> dict[str, Any]:
    """A save of step 3 in which a call is refused, then one of step 4 on a file system that works again."""
    failed, causes = 0, set()
    for mode, n, number in points:
        afresh(root, start)
        shim.arm(mode, n, number)
        try:
            save(root, 3, 2)
        except Exception as error:
            failed += 1
            causes.add(root_cause(error).partition(" (")[0])
        finally:
            shim.arm(OFF)
        abandon(root, 3, 2)
        there = judge(root, f"call {n} refused")
        assert there in ([2, 1], [3, 2, 1], [3, 2]), there
        save(root, 4, 2)
        assert judge(root, "the save after it")[0] == 4
    return {"failed": failed, "causes": sorted(causes)}


def calls(root: Path, start: Path, shim: Shim, log: Path) -> dict[str, Any]:
    """The calls of one save, in order."""
    afresh(root, start)
    shim.arm(LOG, log=log)
    save(root, 3, 2)
    shim.arm(OFF)
    return {"calls": [line.split(" ", 1) for line in log.read_text().splitlines()]}


def unreadable(root: Path, start: Path, shim: Shim, number: int) -> dict[str, Any]:
    """The newest checkpoint cannot be read at some call: what is said of it."""
    said = set()
    for n in range(1, 100):
        afresh(root, start)
        folder = step_folder(root, 2)
        shim.arm(FAIL_READ, n, number)
        try:
            damage = find_damage(folder, read_manifest(folder))
        except Exception as error:
            said.add(str(error).removeprefix(str(folder)))
            continue
        finally:
            seen = shim.seen
            shim.arm(OFF)
        if seen < n:
            return {"calls": n - 1, "said": sorted(said)}
        said |= {str(one) for one in damage}
    raise AssertionError("verifying does not take that many calls")


def plant(bug: str) -> None:
    """Make a mistake that a test must see."""
    global commit, tidy

    def renamed_first(root: Path, manifest: Manifest, files: list[RankFile], metadata: bytes) -> Path:
        final = draft_folder(root, manifest.step, manifest.generation).rename(step_folder(root, manifest.step))
        write_file(final / ".metadata", metadata)
        digests = {file.name: file.digest for file in files}
        tensors = by_tensor(one for file in files for one in file.stored)
        write_whole(final / FILE_NAME, replace(manifest, files=digests, tensors=tensors).to_json().encode())
        return final

    def not_retired(root: Path, policy: RetentionPolicy, generation: int) -> list[int]:
        shutil.rmtree(step_folder(root, 1))
        return [1]

    if bug == "rename first":
        commit = renamed_first
    elif bug == "deleted under its name":
        tidy = not_retired
    elif bug == "no fsync":
        os.fsync = lambda descriptor: None  # type: ignore[assignment]
    elif bug:
        raise ValueError(bug)


def main(sweep: str, where: str, library: str, bug: str = "") -> None:
    root, start = Path(where) / "checkpoints", Path(where) / "start"
    for step in (1, 2):
        save(start, step, 1)
    plant(bug)
    shim = Shim(library, root)
    full = [(FULL, n, number) for number in (0, errno.ENOSPC) for n in range(0, 16_000, 100)]
    sweeps: dict[str, Callable[[], dict[str, Any]]] = {
        "kill": lambda: killed(root, start, shim, KILL_AFTER),
        "torn": lambda: killed(root, start, shim, KILL_TORN),
        "full": lambda: refused(root, start, shim, full),
        "eio": lambda: refused(root, start, shim, [(FAIL_CALL, n, errno.EIO) for n in range(1, 90)]),
        "erofs": lambda: refused(root, start, shim, [(FAIL_CALL, n, errno.EROFS) for n in range(1, 90, 7)]),
        "fsync": lambda: refused(root, start, shim, [(FAIL_SYNC, n, errno.EIO) for n in range(1, 15)]),
        "calls": lambda: calls(root, start, shim, Path(where) / "log"),
        "read": lambda: unreadable(root, start, shim, errno.EIO),
    }
    print(json.dumps(sweeps[sweep]()))


if __name__ == "__main__":
    main(*sys.argv[1:])
