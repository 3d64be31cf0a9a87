"""What training software does and does not do, as far as time and memory depend on it.

These are properties that each project documents (or its public code shows), not fitted figures: two
programs with the same properties get the same prediction. Constants of speed belong to accelerators.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Software:
    """Properties of one family of training software."""

    name: str
    match: tuple[str, ...]
    """Parts of a `framework` text that mean this family, lower case."""
    flash: int = 3
    """Attention kernel: 0 writes the scores, 1 and 2 are the FlashAttention generations, 3 the vendor's."""
    fused: bool = True
    """Element-wise passes are fused by hand-written kernels or a compiler, not run one by one."""
    sequence_parallel: bool = True
    """Norms and residuals are split over the tensor-parallel ranks."""
    overlap_tp: bool = False
    """Tensor-parallel transfers run beside the matrix products."""
    overlap_dp: bool = True
    """Gradient and parameter transfers run beside the backward and the forward."""
    overlap_replicas: bool = False
    """As `overlap_dp`, but only where the optimizer's state is not sharded (PyTorch DDP's hooks)."""
    blocking_p2p: bool = False
    """Stage transfers wait in the streams of other collectives."""
    balanced: bool = False
    """Pipeline stages are cut by cost, with the output layer counted as work."""
    grad_bytes: int = 4
    grad_copy_bytes: int = 0
    """A second, 16-bit gradient kept beside fp32 accumulation."""
    master_bytes: int = 12
    """Bytes per parameter of the optimizer's state: fp32 weight and two moments."""
    logits_bytes: float = 10.0
    """Bytes per logit alive at the peak: 16-bit logits, fp32 copy, fp32 gradient. A chunked loss keeps none."""
    launched: bool = True
    """Kernels are launched one by one by the host (no compiled graph)."""
    interleaves: bool = False
    """A pipeline whose virtual stages are not stated has one layer per virtual stage."""
    low_precision_since: int | None = None
    """From this year on its published runs use the narrowest dtype of the part where none is stated."""


SOFTWARE = (
    Software("argosy", ("argosy", "torchtitan"), flash=2, balanced=True, logits_bytes=0.0),
    Software(
        "nanotron",
        ("nanotron",),
        flash=2,
        fused=False,
        overlap_dp=False,
        overlap_replicas=True,
        blocking_p2p=True,
        balanced=True,
        grad_copy_bytes=2,
    ),
    Software(
        "megatron 2021",
        ("megatron-deepspeed", "vtrain", "megatron-style"),
        flash=0,
        sequence_parallel=False,
        overlap_dp=False,
        grad_bytes=2,
    ),
    Software(
        "nemo",
        ("nemo", "megatron-bridge"),
        overlap_tp=True,
        launched=False,
        grad_bytes=2,
        interleaves=True,
        low_precision_since=2025,
    ),
    Software("jax", ("maxtext", "paxml"), launched=False, logits_bytes=6.0),
    Software("llm-foundry", ("llm-foundry",), flash=1, grad_bytes=2),
    Software("fsdp", ("fms-fsdp", "lit-gpt", "fsdp"), flash=2, grad_bytes=2),
    Software("internevo", ("internevo",), flash=1, grad_bytes=2),
    Software("megatron", ("megatron",), flash=2),
)
"""First match wins."""

DEFAULT = Software("unstated", (), flash=2, fused=False, balanced=True, grad_copy_bytes=2)
"""Plain PyTorch, with what a careful estimate of memory would assume."""


def software(framework: str, year: int | None) -> Software:
    """The family of `framework`; before 2023 Megatron had neither flash attention nor sequence parallelism."""
    text = framework.casefold()
    for family in SOFTWARE:
        if any(part in text for part in family.match):
            if family.name == "megatron" and year is not None and year < 2023:
                return next(f for f in SOFTWARE if f.name == "megatron 2021")
            return family
    return DEFAULT
