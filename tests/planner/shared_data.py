"""The measured tables, which lie beside the checkout in CI; tests that need them skip with a reason elsewhere."""

from pathlib import Path

import pytest

FOLDERS = (Path(__file__).parents[3] / "shared", Path(__file__).parents[2] / "shared")


def table(name: str) -> Path:
    """Path of a table of measured runs."""
    for folder in FOLDERS:
        if (path := folder / "data" / "planner" / name).exists():
            return path
    pytest.skip(f"{name} is not beside the checkout: measured tables are not part of the project")


ROW = {
    "source": "a", "model_name": "gpt-7b", "layers": "32", "hidden": "4096", "ffn_hidden": "16384", "heads": "32",
    "vocab": "50304", "seq_len": "2048", "gated_mlp": "no", "gpu": "A100-80GB", "gpus": "64", "gpus_per_node": "8",
    "dp": "16", "tp": "4", "pp": "1", "sharding": "zero1", "micro_batch": "4", "global_batch_sequences": "512",
    "recompute": "none", "precision": "bf16", "framework": "Megatron-LM", "year": "2024",
}  # fmt: skip
"""One complete row."""
