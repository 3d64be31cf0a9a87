"""Mirror to Weights & Biases. Its own environment decides where: WANDB_PROJECT, WANDB_ENTITY, WANDB_MODE=offline, …"""

import os

import wandb

from argosy.integrations.trackers import Opening


class WeightsAndBiases:
    """One W&B run with the id of ours, resumed by each attempt."""

    def __init__(self, given: Opening):
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "argosy"),
            id=given.run_id,
            name=given.name,
            config=given.config,
            dir=str(given.folder),
            resume="allow",
            settings=wandb.Settings(console="off", disable_git=True, save_code=False),
        )

    def log(self, step: int, figures: dict[str, float]) -> None:
        self._run.log(figures, step=step)

    def close(self) -> None:
        self._run.finish()


def open_tracker(given: Opening) -> WeightsAndBiases:
    """The run at W&B, new or resumed."""
    return WeightsAndBiases(given)
