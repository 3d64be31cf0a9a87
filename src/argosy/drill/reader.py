"""What a checkpoint holds, read by torch's own DCP reader and a JSON parser: nothing of Argosy's checkpoint code has a
part in it, so a fault of that code cannot hide itself."""

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any


def newest_step(run: Path) -> int | None:
    """Highest step with a checkpoint folder."""
    names = [entry.name.removeprefix("step-") for entry in (run / "checkpoints").glob("step-*")]
    return max((int(name) for name in names if name.isdecimal()), default=None)


def state_digests(run: Path, step: int) -> dict[str, str]:
    """SHA-256 of each tensor (weights, moments, each rank's random state), and of the loop's own state with the data
    position, by name."""
    import torch
    import torch.distributed.checkpoint as dcp

    folder = run / "checkpoints" / f"step-{step}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader = dcp.FileSystemReader(folder)
        tensors: dict[str, Any] = {
            name: torch.empty(entry.size, dtype=entry.properties.dtype)  # type: ignore[union-attr]  # all are tensors
            for name, entry in reader.read_metadata().state_dict_metadata.items()
        }
        dcp.load(tensors, storage_reader=reader, no_dist=True)
    found = {
        name: hashlib.sha256(tensor.reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
        for name, tensor in tensors.items()
    }
    training = json.loads((folder / "manifest.json").read_text())["training"]
    found["loop state and data position"] = hashlib.sha256(json.dumps(training, sort_keys=True).encode()).hexdigest()
    return found


def losses(run: Path) -> dict[int, float]:
    """Loss of each step, of its last visit over all attempts, from rank 0's journals as lines of JSON."""
    found: dict[int, float] = {}
    for file in sorted(run.glob("events/attempt-*/rank-0.jsonl"), key=lambda file: int(file.parent.name[8:])):
        for line in file.read_bytes().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue  # the last line of a rank that was killed
            if record.get("k") == "step":
                found[record["s"]] = record["l"]
    return found
