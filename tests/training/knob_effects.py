"""What came of a short training, without what a clock, a process id or chance decided; and one change for each knob."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from test_skipped_updates import BadGradient

from argosy.data.corpus import Document
from argosy.data.prepare import prepare
from argosy.data.stdlib import StandardLibrary
from argosy.data.tokenizer import Tokenizer
from argosy.errors import ArgosyError
from argosy.journal.reader import read_rows
from argosy.launch.attempt import open_attempt
from argosy.launch.devices import resolve_slots
from argosy.layout.layout import Layout
from argosy.recipe.load import load_recipe
from argosy.registry.run_folder import RunFolder
from argosy.training import peak
from argosy.training.rank import Place, train_rank
from tiny_runs import RECIPE, SMALL, digests, leave_default_group

BASE = (*SMALL, "eval.every_steps=2", "checkpoint.every_steps=2", "tokenizer.kind=bytes")
LLAMA = tuple(
    f"model.rope_scaling.{name}"
    for name in ("factor=4.0", "low_freq_factor=1.0", "high_freq_factor=4.0", "original_positions=64")
)

CHANGES: dict[str, str | tuple[str, ...]] = {
    "run.name": "other",
    "run.seed": "1",
    "run.device": "cuda",
    "model.preset": "gpt2",
    "model.vocab_size": "300",
    "model.layers": "1",
    "model.hidden_size": "48",
    "model.heads": "4",
    "model.kv_heads": "2",
    "model.head_dim": "8",
    "model.ffn_size": "48",
    "model.activation": "gelu",
    "model.norm": "layernorm",
    "model.norm_eps": "0.1",
    "model.positions": "learned",
    "model.max_positions": ("64", "model.positions=learned"),
    "model.rope_theta": "100.0",
    "model.rope_scaling.factor": ("2.0", *LLAMA),
    "model.rope_scaling.low_freq_factor": ("2.0", *LLAMA),
    "model.rope_scaling.high_freq_factor": ("8.0", *LLAMA),
    "model.rope_scaling.original_positions": ("32", *LLAMA),
    "model.qk_norm": "false",
    "model.bias": "all",
    "model.tied_embeddings": "false",
    "model.init_std": "0.1",
    "data.source": "{tmp}/nothing",
    "data.sources": '[{{name="words", folder="stdlib"}}]',
    "data.sequence_length": "64",
    "data.packing": "best_fit",
    "data.document_masks": "true",
    "data.held_out_share": "0.5",
    "data.cache": "{tmp}/other-cache",
    "data.digest": "0123",
    "tokenizer.kind": "bpe",
    "tokenizer.vocab_size": ("270", "tokenizer.kind=bpe", "tokenizer.vocab_size=260"),
    "tokenizer.path": ("{tmp}/b.json", "tokenizer.kind=file", "tokenizer.path={tmp}/a.json"),
    "optimizer.kind": "sgd",
    "optimizer.learning_rate": "0.01",
    "optimizer.momentum": ("0.5", "optimizer.kind=muon"),
    "optimizer.beta1": "0.5",
    "optimizer.beta2": "0.5",
    "optimizer.eps": "0.1",
    "optimizer.weight_decay": "0.5",
    "optimizer.clip_norm": "0.01",
    "schedule.kind": "cosine",
    "schedule.warmup_tokens": "768",
    "schedule.decay_share": "0.6",
    "schedule.final_share": "0.5",
    "batch.tokens": "192",
    "precision.compute": "bf16",
    "objective.tokens": "1536",
    "objective.z_loss": "0.1",
    "objective.target_loss": "100.0",
    "objective.patience_evals": ("1", "objective.min_gain=100.0"),
    "objective.min_gain": ("100.0", "objective.patience_evals=1"),
    "eval.every_steps": "3",
    "eval.tokens": "256",
    "eval.final_tokens": "256",
    "eval.stride_share": "0.5",
    "eval.sample_prompt": "word",
    "eval.sample_tokens": ("1", "eval.sample_prompt=word"),
    "checkpoint.every_steps": "3",
    "checkpoint.every_s": ("0.000001", "checkpoint.every_steps="),
    "checkpoint.failures_per_day": ("1e15", "checkpoint.every_steps="),
    "checkpoint.background": "true",
    "checkpoint.snapshot_every_steps": "1",
    "checkpoint.copy_to": "{tmp}/copies",
    "checkpoint.keep_last": "1",
    "checkpoint.keep_every_steps": ("2", "checkpoint.keep_last=1"),
    "checkpoint.keep_best": ("2", "checkpoint.keep_last=1", "checkpoint.every_steps=1", "eval.every_steps=1"),
    "checkpoint.keep_before_steps": ("2", "checkpoint.keep_last=1", "checkpoint.every_steps=1"),
    "resilience.skipped_updates_limit": "1",
    "budget.money": ("0.000000001", "budget.price_per_device_hour=1"),
    "budget.device_hours": "0.000000001",
    "budget.deadline_s": "0.000001",
    "budget.price_per_device_hour": "2",
    "budget.currency": ("EUR", "budget.price_per_device_hour=1"),
    "budget.hold": "reserved",
    "layout.dp": "2",
    "layout.fsdp": "2",
    "layout.cp": "2",
    "layout.tp": "2",
    "layout.pp": "2",
    "layout.ep": "2",
    "layout.order": '["dp", "pp", "fsdp", "cp", "tp"]',
    "layout.zero": ("1", "layout.fsdp=1"),
    "layout.schedule": "gpipe",
    "layout.virtual_stages": "2",
    "layout.stage_layers": "[7]",
    "layout.micro_batch_sequences": "3",
    "layout.recompute": "full",
    "layout.recompute_budget_bytes": ("1", "layout.recompute=full"),
    "layout.prefetch": "2",
    "journal.sample_every": "7",
    "journal.profile_share": ("0", "journal.sample_every=1", "objective.tokens=4608"),
}
"""Another value of each knob; after it, what it needs to matter."""

VOLATILE = {
    *("q", "t", "t0", "t1", "a", "u", "wall", "boot", "proc_start"),
    *("p", "d", "e", "m", "b", "cost", "ev", "rss", "peak_rss"),
    *("run", "host", "boot_id", "pid", "code", "id"),
}


class Words:
    """Stands for the standard library: a hundred short texts."""

    name = "words"
    digest = "words"

    def __iter__(self) -> Iterator[Document]:
        for number in range(100):
            text = " ".join(f"word{(number * number + k) % 23}" for k in range(40))
            yield Document(f"{number}", text, f"{number}".encode())


def outcome(sets: tuple[str, ...], folder: Path) -> dict[str, Any]:
    """Everything that a user could see of one training run, part by part."""
    try:
        recipe = load_recipe(RECIPE, sets)
        slots = resolve_slots(recipe.run.device, 1)
        layout = Layout.from_recipe(recipe.layout, 1)
        run = RunFolder.create(folder, recipe)
        with open_attempt(run, recipe, layout, slots):
            pass  # a first attempt that ends before it begins: what is paid between two attempts is seen too
        with open_attempt(run, recipe, layout, slots) as attempt:
            data = prepare(recipe)
            place = Place(run.path, attempt.number, 0, 1, 0, 0)
            exit_code = train_rank(place, [BadGradient(0, {1})])
    except ArgosyError as error:
        return {"refused": str(error).replace(str(folder), "RUN")}
    steps = sorted(int(path.name[5:]) for path in run.checkpoints.glob("step-*"))
    journal = [
        {key: value for key, value in row.items() if key not in VOLATILE}
        for row in read_rows(run.rank_file(2, 0))
        if row["k"] not in ("span", "close", "peak")
    ]
    return {
        "exit": int(exit_code),
        "name": run.info.name,
        "data": str(data.folder),
        "program": {name: str(value) for name, value in asdict(layout).items()},
        "checkpoints": steps,
        "weights": digests(run, steps[-1]) if steps else None,
        "journal": json.dumps(journal, sort_keys=True),
        "prices": [(row["amount"], row["currency"]) for row in read_rows(run.price_file)],
        "paid": [(row["ph"], row["state"]) for row in read_rows(run.paid_file)],
    }


def differences(tmp: Path) -> dict[str, list[str]]:
    """For each change: the parts of the outcome that differ. The key "nothing" stands for no change at all."""
    leave_default_group()
    peak._SIZE["cpu"] = 8
    StandardLibrary.of_this_python = classmethod(lambda cls: Words())  # type: ignore[method-assign, assignment]
    Tokenizer.bytes().save(tmp / "a.json")
    Tokenizer.train(["abc abd abe " * 9], 260).save(tmp / "b.json")
    home = f"data.cache={tmp}/cache"
    runs: dict[tuple[str, ...], dict[str, Any]] = {}

    def result(sets: tuple[str, ...], fresh: bool = False) -> dict[str, Any]:
        if fresh or sets not in runs:
            name = hashlib.sha256(repr((sets, fresh)).encode()).hexdigest()[:12]
            runs[sets] = outcome(tuple(one.format(tmp=tmp) for one in (*BASE, home, *sets)), tmp / name)
        return runs[sets]

    found = {}
    base = result(())
    assert "refused" not in base, base
    again = result((), fresh=True)
    found["nothing"] = [part for part in base if base[part] != again[part]]
    for key, change in CHANGES.items():
        value, *needs = (change,) if isinstance(change, str) else change
        before, after = result(tuple(needs)), result((*needs, f"{key}={value}"))
        assert "refused" not in before, (key, before)
        found[key] = ["refused"] if "refused" in after else [part for part in before if before[part] != after[part]]
    return found
