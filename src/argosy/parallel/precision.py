"""Names of number formats in a recipe, and what torch calls them."""

import torch

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
