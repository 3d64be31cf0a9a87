"""Delete what a retention policy does not keep. No torch here."""

import math
from pathlib import Path

from argosy.checkpoint.commit import delete
from argosy.checkpoint.folders import saved_steps, step_folder
from argosy.checkpoint.manifest import Manifest, read_manifest
from argosy.errors import InputError
from argosy.policy.retention import RetentionPolicy


def tidy(checkpoints: Path, policy: RetentionPolicy, generation: int) -> list[int]:
    """Delete surplus checkpoints and return their steps. What cannot be deleted stays, and is tried again next time.

    Only verified checkpoints count as kept. One that never was verified goes once as many newer ones are as the policy
    keeps; one whose manifest cannot be read is nobody's to delete. Raises Fenced when a newer attempt has taken over.
    """
    manifests = {step: manifest for step in saved_steps(checkpoints) if (manifest := _manifest(checkpoints, step))}
    verified = {step for step, manifest in manifests.items() if manifest.verified_wall_s is not None}
    losses = {step: loss for step in verified if not math.isnan(loss := _loss(manifests[step]))}
    surplus = policy.surplus(verified, losses)
    kept = sorted(verified - set(surplus))[-max(policy.keep_last, 1) :]
    surplus += [step for step in manifests.keys() - verified if len(kept) >= policy.keep_last and step < kept[0]]
    delete(checkpoints, sorted(surplus), generation)
    return sorted(surplus)


def _manifest(checkpoints: Path, step: int) -> Manifest | None:
    try:
        return read_manifest(step_folder(checkpoints, step))
    except InputError:
        return None  # damage is for the next load to report and to set aside


def _loss(manifest: Manifest) -> float:
    """Of the newest evaluation when it was saved; NaN where there was none."""
    losses = manifest.training.get("eval_losses") or [math.nan]
    return float(losses[-1])
