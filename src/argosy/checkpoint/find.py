"""Find the newest whole checkpoint: computed from what is there each time, never stored."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist

from argosy.checkpoint.agreement import first_error, on_all_ranks
from argosy.checkpoint.commit import set_aside
from argosy.checkpoint.confirm import mark_verified
from argosy.checkpoint.fence import Fenced, claim
from argosy.checkpoint.folders import damaged_folders, saved_steps, step_folder
from argosy.checkpoint.manifest import Manifest, Unreadable, read_manifest
from argosy.checkpoint.verify import Share, find_damage
from argosy.errors import InputError

Found = tuple[Path, Manifest]

_NAMED = 5
"""Damaged pieces that a message names."""


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def find(
    checkpoints: Path,
    step: int | None = None,
    say: Callable[[str], None] = _to_stderr,
    group: dist.ProcessGroup | None = None,
    generation: int | None = None,
) -> Found | None:
    """The newest checkpoint (or that of `step`) of which every byte matches its digest; collective over `group`.

    The ranks share the reading and agree on each candidate. Returns None where there is no checkpoint at all.
    Damaged ones are named through `say` and passed over. An attempt that says its `generation` shuts out older ones,
    and sets what is damaged aside, under another name, for a person to look at; Fenced is raised when a newer attempt
    has taken over.

    Raises InputError, on all ranks alike, when nothing whole is left, when `step` is missing or damaged, or when a
    checkpoint may not be read or is of another version: to pass that over would silently lose work.
    """
    rank = 0 if group is None else dist.get_rank(group)
    # Rank 0 says which there are: another may see the folder of a slow file system in an older state.
    there = on_all_ranks(partial(_survey, checkpoints, generation if rank == 0 else None), group)
    if (error := first_error(there)) is not None:
        raise error
    assert there[0].value is not None
    steps, before = there[0].value
    if step is not None and step not in steps:
        have = ", ".join(str(s) for s in steps) or "none"
        raise InputError(f"no checkpoint of step {step}; there are: {have}", where=str(checkpoints))
    damaged: list[int] = []
    why: list[str] = []
    for candidate in steps if step is None else [step]:
        folder = step_folder(checkpoints, candidate)
        found = look(folder, group)
        if isinstance(found, Manifest):
            if generation is not None:
                _put_in_order(checkpoints, damaged, found, generation, say, group)
            return folder, found
        if isinstance(found, Unreadable):
            raise found
        damaged.append(candidate)
        why.append(str(found))
        if rank == 0:
            say(str(found))
    if why or before:
        raise InputError(
            f"no whole checkpoint is left: {'; '.join(why or before)}",
            where=str(checkpoints),
            do="restore the files, or remove the damaged folders to start from scratch",
        )
    return None


def _survey(checkpoints: Path, generation: int | None) -> tuple[list[int], list[str]]:
    """Steps and damaged folders; from now on attempts before `generation` can change neither."""
    if generation is not None:
        claim(checkpoints, generation)
    return saved_steps(checkpoints), damaged_folders(checkpoints)


def look(folder: Path, group: dist.ProcessGroup | None) -> Manifest | Exception:
    """The manifest of a whole checkpoint, or what is wrong with it, on all ranks alike; collective over `group`."""
    share = Share() if group is None else Share(dist.get_rank(group), dist.get_world_size(group))

    mine: list[Manifest] = []

    def read() -> tuple[Any, list[str]]:
        mine.append(read_manifest(folder))
        return mine[0].identity, [str(one) for one in find_damage(folder, mine[0], share)]

    outcomes = on_all_ranks(read, group)
    if error := first_error(outcomes):
        return error
    found = [outcome.value for outcome in outcomes if outcome.value is not None]
    if any(identity != found[0][0] for identity, _ in found):
        return InputError("is not the same on all ranks", where=str(folder))
    if bad := list(dict.fromkeys(line for _, lines in found for line in lines)):
        more = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
        return InputError(f"is damaged: {', '.join(bad[:_NAMED])}{more}", where=str(folder))
    return mine[0]


def _put_in_order(
    checkpoints: Path,
    damaged: Sequence[int],
    found: Manifest,
    generation: int,
    say: Callable[[str], None],
    group: dist.ProcessGroup | None,
) -> None:
    """Rank 0 sets damaged checkpoints aside and notes that the one found is right. What the file system refuses is
    said: nothing depends on it."""

    def rename() -> list[str]:
        if group is not None and dist.get_rank(group):
            return []
        if found.verified_wall_s is None:
            mark_verified(checkpoints, found, generation)
        return [set_aside(checkpoints, step, generation).name for step in damaged]

    outcomes = on_all_ranks(rename, group)
    error = first_error(outcomes)
    if isinstance(error, Fenced):
        raise error
    if group is None or dist.get_rank(group) == 0:
        if error:
            say(f"checkpoints stay as they are: {error}")
        elif damaged:
            say(f"set aside as {', '.join(outcomes[0].value or ())}")
