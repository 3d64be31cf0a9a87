"""Save a checkpoint while the ranks wait: each writes its file, rank 0 commits.

A failed save is removed and reported on every rank with the first real cause; training may go on.
"""

from pathlib import Path

import torch.distributed as dist

from argosy.checkpoint.agreement import first_error, on_all_ranks
from argosy.checkpoint.commit import abandon, begin_draft, commit
from argosy.checkpoint.fence import Fenced
from argosy.checkpoint.manifest import Manifest
from argosy.checkpoint.plan import Plan, make_plan
from argosy.checkpoint.shards import RankFile
from argosy.checkpoint.state import Tree
from argosy.checkpoint.write import write_rank_file
from argosy.errors import ArgosyError


class SaveError(ArgosyError):
    """A checkpoint that could not be written; earlier ones are untouched."""


def save(checkpoints: Path, tree: Tree, manifest: Manifest, group: dist.ProcessGroup | None) -> Path:
    """Write `tree` as ``step-S`` below `checkpoints`; collective over `group` (None for a single rank).

    `manifest.files` and `manifest.tensors` are filled in here. Returns the final folder. Raises :class:`SaveError`
    on all ranks alike, or Fenced when a newer attempt has taken over.
    """
    return save_plan(checkpoints, make_plan(tree, group), manifest, group)


def save_plan(checkpoints: Path, plan: Plan, manifest: Manifest, group: dist.ProcessGroup | None) -> Path:
    """:func:`save` of tensors that were planned before, with their values of now."""
    rank = 0 if group is None else dist.get_rank(group)
    step, generation = manifest.step, manifest.generation

    def write() -> RankFile:
        return write_rank_file(begin_draft(checkpoints, step, generation), plan.file, plan.shards)

    def publish() -> Path | None:
        files = [one.value for one in written if one.value is not None]
        return commit(checkpoints, manifest, files, plan.dcp_metadata) if plan.dcp_metadata is not None else None

    written = on_all_ranks(write, group)
    error = first_error(written)
    if error is None:
        published = on_all_ranks(publish, group)
        error = first_error(published)
    if error is None:
        assert published[0].value is not None
        return published[0].value
    if rank == 0:
        abandon(checkpoints, step, generation)
    if isinstance(error, Fenced):
        raise error
    raise SaveError(
        f"checkpoint of step {step} not written: {error}",
        where=str(checkpoints),
        do="earlier checkpoints are kept; free space or mend the storage",
    )
