"""OLMo-core: its Trainer and TransformerTrainModule with FSDP over the ranks, gloo, torch's attention, no compiler."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.checkpoint.state_dict as dcp_state
from olmo_core.config import DType
from olmo_core.data.data_loader import DataLoaderBase
from olmo_core.distributed.parallel import DataParallelType
from olmo_core.distributed.utils import get_rank, get_world_size
from olmo_core.nn.attention import AttentionBackendName
from olmo_core.nn.feed_forward import FeedForwardConfig
from olmo_core.nn.transformer import TransformerConfig
from olmo_core.optim import AdamWConfig, OptimGroupOverride
from olmo_core.train import (
    Duration,
    LoadStrategy,
    TrainerConfig,
    prepare_training_environment,
)
from olmo_core.train.callbacks import Callback
from olmo_core.train.train_module import TransformerDataParallelConfig, TransformerTrainModule
from referee import Referee, read_task
from safetensors.torch import load_file

NAMES = {
    "lm_head": "lm_head.w_out",
    "model.embed_tokens": "embeddings",
    "model.norm": "lm_head.norm",
    "model.layers": "blocks",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "feed_forward_norm",
    "self_attn.q_proj": "attention.w_q",
    "self_attn.k_proj": "attention.w_k",
    "self_attn.v_proj": "attention.w_v",
    "self_attn.o_proj": "attention.w_out",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
}
"""Hugging Face's names of Llama's parameters and OLMo-core's, to be replaced in this order."""


class Batches(DataLoaderBase):
    """This rank's slice of each batch."""

    def __init__(self, batches: np.ndarray, rank: int, ranks: int, work_dir: Path):
        windows = batches.shape[1] // ranks
        super().__init__(
            work_dir=work_dir,
            global_batch_size=batches.shape[1] * (batches.shape[2] - 1),
            dp_world_size=ranks,
            dp_rank=rank,
            fs_local_rank=rank,
        )
        self._batches = batches[:, rank * windows : (rank + 1) * windows]

    @property
    def total_batches(self) -> int:
        return len(self._batches)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        raise NotImplementedError("a contest is never resumed")

    def reshuffle(self, epoch: int | None = None, **_: Any) -> None:
        self._epoch = epoch or 1

    def get_mock_batch(self) -> dict[str, Any]:
        return self._item(0)

    def _iter_batches(self) -> Iterable[dict[str, Any]]:
        return map(self._item, range(len(self._batches)))

    def _item(self, index: int) -> dict[str, Any]:
        windows = torch.from_numpy(self._batches[index].astype(np.int64))
        return {"input_ids": windows[:, :-1], "labels": windows[:, 1:].contiguous()}


class KeepsLoss(TransformerTrainModule):
    """Keeps the loss of each step where the referee finds it."""

    step_loss: torch.Tensor

    def record_ce_loss(self, value: Any, *arguments: Any, **named: Any) -> None:
        self.step_loss = value.detach().clone()
        super().record_ce_loss(value, *arguments, **named)


class Stopwatch(Callback):
    """The hooks of OLMo-core's Trainer at which the referee holds it."""

    def __init__(self, referee: Referee):
        self._referee = referee

    def pre_epoch(self) -> None:
        self._referee.wait()

    def post_step(self) -> None:
        self._referee.step_done(self.trainer.train_module.step_loss)


def main() -> None:
    referee, task = Referee(), read_task()
    torch.set_num_threads(task["threads"])
    prepare_training_environment(seed=0, backend="gloo", shared_filesystem=True)
    c, folder = task["model"], task["folder"]
    model = TransformerConfig.llama_like(
        d_model=c["hidden_size"],
        vocab_size=c["vocab_size"],
        n_layers=c["layers"],
        n_heads=c["heads"],
        n_kv_heads=c["kv_heads"],
        head_dim=c["head_dim"],
        layer_norm_eps=c["norm_eps"],
        rope_theta=int(c["rope_theta"]),
        attn_backend=AttentionBackendName.torch,
        feed_forward=FeedForwardConfig(hidden_size=c["ffn_size"], bias=False, dtype=DType.float32),
    ).build(init_device="meta")
    module = KeepsLoss(
        model,
        optim=AdamWConfig(
            lr=task["learning_rate"],
            betas=tuple(task["betas"]),
            eps=task["eps"],
            weight_decay=task["weight_decay"],
            fused=True,
            group_overrides=[OptimGroupOverride(params=["*norm.weight"], opts={"weight_decay": 0.0})],
        ),
        rank_microbatch_size=task["sequences"] // get_world_size() * task["length"],
        max_sequence_length=task["length"],
        compile_model=False,
        dp_config=TransformerDataParallelConfig(
            name=DataParallelType.fsdp, param_dtype=None, reduce_dtype=DType.float32
        ),
        max_grad_norm=task["clip_norm"],
        device=torch.device("cpu"),
    )
    weights = {_their_name(name): tensor for name, tensor in load_file(folder / "hf" / "model.safetensors").items()}
    options = dcp_state.StateDictOptions(full_state_dict=True, strict=True)
    dcp_state.set_model_state_dict(module.model, weights, options=options)
    loader = Batches(np.load(folder / "batches.npy", mmap_mode="r"), get_rank(), get_world_size(), folder / "olmo")
    trainer = TrainerConfig(
        save_folder=str(folder / "olmo"),
        max_duration=Duration.epochs(1),
        load_strategy=LoadStrategy.never,
        no_checkpoints=True,
        no_evals=True,
        metrics_collect_interval=100,
        callbacks={"stopwatch": Stopwatch(referee)},
    ).build(module, loader)
    trainer.fit()


def _their_name(name: str) -> str:
    for hf, theirs in NAMES.items():
        name = name.replace(f"{hf}.", f"{theirs}.")
    return name


main()
