"""transformers: LlamaForCausalLM with its Trainer.

hf_trainer.py FOLDER [--compile]
"""

import sys

import numpy as np
import torch
from referee import Referee, read_task
from transformers import LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments


class Windows(torch.utils.data.Dataset):
    """One item a sequence, in the order of the batches."""

    def __init__(self, batches: np.ndarray):
        self._windows = batches.reshape(-1, batches.shape[-1])

    def __len__(self) -> int:
        return len(self._windows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        window = torch.from_numpy(self._windows[index].astype(np.int64))
        # Their loss shifts `labels` by itself and loses the last target, but takes shifted ones as they are.
        return {"input_ids": window[:-1], "labels": window[1:], "shift_labels": window[1:]}


class InOrder(Trainer):
    """Takes the sequences as they come, and keeps the loss of each step."""

    def _get_train_sampler(self, *_: object) -> torch.utils.data.Sampler:
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def training_step(self, *arguments: object, **named: object) -> torch.Tensor:
        self.step_loss = super().training_step(*arguments, **named)
        return self.step_loss


class Stopwatch(TrainerCallback):
    """The hooks of Trainer at which the referee holds it."""

    def __init__(self, referee: Referee):
        self._referee = referee
        self.trainer: InOrder | None = None

    def on_train_begin(self, *_: object, **__: object) -> None:
        self._referee.wait()

    def on_step_end(self, *_: object, **__: object) -> None:
        self._referee.step_done(self.trainer.step_loss)


def main() -> None:
    referee, task = Referee(), read_task()
    torch.set_num_threads(task["threads"])
    model = LlamaForCausalLM.from_pretrained(task["folder"] / "hf", dtype=torch.float32)
    stopwatch = Stopwatch(referee)
    trainer = InOrder(
        model,
        TrainingArguments(
            output_dir=str(task["folder"] / "trainer"),
            per_device_train_batch_size=task["sequences"],
            num_train_epochs=1,
            learning_rate=task["learning_rate"],
            lr_scheduler_type="constant",
            weight_decay=task["weight_decay"],
            adam_beta1=task["betas"][0],
            adam_beta2=task["betas"][1],
            adam_epsilon=task["eps"],
            max_grad_norm=task["clip_norm"],
            bf16=task["precision"] == "bf16",
            use_cpu=True,
            torch_compile="--compile" in sys.argv,
            remove_unused_columns=False,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=Windows(np.load(task["folder"] / "batches.npy", mmap_mode="r")),
        callbacks=[stopwatch],
    )
    stopwatch.trainer = trainer
    trainer.train()


main()
