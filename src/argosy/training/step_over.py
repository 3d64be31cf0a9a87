"""Batches that a decision leaves out: they made the loss spike, or gradients that were not finite."""

from argosy.data.position import Position, Ranges
from argosy.journal.reader import read_rows
from argosy.registry.run_folder import RunFolder
from argosy.training.state import LoopState


def step_over(run: RunFolder, state: LoopState, batch_sequences: int) -> Ranges:
    """Apply what was decided since `state` was saved; the global indices that are left out now.

    A decision names steps, since those who decide know no more. It is applied once, to a state from before these
    steps, and from then on travels with the state's position.
    """
    left_out: list[tuple[int, int]] = []
    for row in read_rows(run.decisions_file):
        if row.get("what") != "step_over" or row["incident"] in state.stepped_over or row["first"] < state.step:
            continue
        assert state.position is not None
        _, there = state.position.take((row["first"] - state.step) * batch_sequences)
        window, _ = there.take((row["last"] - row["first"] + 1) * batch_sequences)
        position: Position = state.position
        for first, count in window:
            position = position.skip(first, count)
        state.position = position
        state.stepped_over.append(row["incident"])
        left_out += window
    return tuple(left_out)
