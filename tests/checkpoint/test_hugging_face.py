"""Beside `transformers` itself: equal logits, bit-equal tensors, and folders that it opens."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    LlamaConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)
from transformers.utils import logging

from argosy.checkpoint.export import export
from argosy.checkpoint.imports import import_folder
from argosy.checkpoint.origin import find_origin
from argosy.data.tokenizer import Tokenizer
from argosy.models.build import build
from argosy.models.hf.tensors import HfFolder
from argosy.training.sample import open_speaker
from hf_folders import tensors_in_folder
from tiny_runs import SMALL, make_run, train

logging.disable_progress_bar()

ROPE = {
    "rope_type": "llama3",
    "rope_theta": 5000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
SHAPE = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.1,
}
CONFIGS: dict[str, PretrainedConfig] = {
    "llama 3.1, grouped": LlamaConfig(**SHAPE, rope_parameters=ROPE, max_position_embeddings=256),
    "llama, biases, tied": LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "llama, wide heads": LlamaConfig(**SHAPE, head_dim=20, rms_norm_eps=1e-5),
    "qwen2": Qwen2Config(**SHAPE),
    "qwen3, tied": Qwen3Config(**SHAPE, head_dim=16, tie_word_embeddings=True),
    "gpt2": GPT2Config(
        vocab_size=96,
        n_embd=48,
        n_layer=2,
        n_head=4,
        n_positions=64,
        initializer_range=0.1,
        bos_token_id=1,
        eos_token_id=1,
    ),
}
TOKENS = torch.randint(96, (2, 50), generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=CONFIGS)
def theirs(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Path]:
    """A random model, no parameter of which is 0 or 1, and its folder in several shards."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIGS[request.param]).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path / "theirs", max_shard_size="50KB")
    return model, tmp_path / "theirs"


@torch.no_grad()
def test_logits_equal_those_of_transformers(theirs: tuple[Any, Path]) -> None:
    model, path = theirs
    with HfFolder(path) as folder:
        ours = build(folder.table, 96, device="cpu")
        parameters = ours.state_dict()
        for name, tensor in folder.parameters():
            parameters[name].copy_(tensor)
    expected = model(TOKENS).logits
    assert expected.std() > 0.1, "logits that are all alike would prove nothing"
    assert (ours(TOKENS) - expected).abs().max() <= 1e-5


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_import_and_export_are_bit_equal(theirs: tuple[Any, Path], tmp_path: Path, dtype: torch.dtype) -> None:
    model, path = theirs
    if dtype != torch.float32:
        path = tmp_path / "narrow"
        model.to(dtype).save_pretrained(path)
    imported = import_folder(path, tmp_path / "imported")
    done = export(find_origin(str(imported.folder)), tmp_path / "back", shard_bytes=40_000)
    assert done.files > 1
    before, after = tensors_in_folder(path), tensors_in_folder(tmp_path / "back")
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert (tensor.dtype, tensor.shape) == (after[name].dtype, after[name].shape)
        assert tensor.equal(after[name]), name
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "back").eval()
    assert again.dtype == dtype
    if dtype == torch.float32:  # transformers rounds its rotation table when a model is cast
        assert torch.equal(again(TOKENS).logits, model(TOKENS).logits)
    config, old = again.config.to_dict(), model.config.to_dict()
    for key in ("bos_token_id", "eos_token_id", "vocab_size", "tie_word_embeddings", "rope_parameters"):
        assert config.get(key) == old.get(key), key


@pytest.mark.dist
@torch.no_grad()
def test_a_trained_run_opens_with_model_and_tokenizer(run_ranks: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", *SMALL, "objective.tokens=768")
    train(run_ranks, run, 1)
    done = export(find_origin(str(run.path)), tmp_path / "out")
    assert done.architecture == "Qwen3ForCausalLM"

    speaker = open_speaker(run.path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    text = "def f(x):\n    return 'ä€😀'  # x\t\n\n"
    ids = speaker.tokenizer.encode(text).tolist()
    assert tokenizer(text)["input_ids"] == ids
    assert tokenizer.decode(ids) == text
    assert (tokenizer.eos_token, tokenizer.eos_token_id) == ("<|endoftext|>", speaker.tokenizer.end_of_text)

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    assert model.generation_config.eos_token_id == speaker.tokenizer.end_of_text
    tokens = torch.tensor([ids])
    ours = torch.stack([speaker.next_logits(tokens[0, : n + 1]) for n in range(len(ids))])
    assert (model(tokens).logits[0] - ours).abs().max() <= 1e-5

    half = export(find_origin(f"{run.path}@2"), tmp_path / "half", dtype="bf16")
    assert half.dtype == "bfloat16"
    narrow = tensors_in_folder(tmp_path / "half")
    assert all(t.to(torch.bfloat16).equal(narrow[name]) for name, t in tensors_in_folder(tmp_path / "out").items())


def test_tokenizer_of_an_import_comes_back_as_it_was(tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_config(LlamaConfig(**SHAPE | {"vocab_size": 257}))
    model.save_pretrained(tmp_path / "theirs")
    Tokenizer.bytes().save(tmp_path / "theirs" / "tokenizer.json")
    settings = (
        '{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>", "chat_template": "{{ 1 }}"}'
    )
    (tmp_path / "theirs" / "tokenizer_config.json").write_text(settings)
    import_folder(tmp_path / "theirs", tmp_path / "in")
    export(find_origin(str(tmp_path / "in")), tmp_path / "out")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()
    assert (
        AutoTokenizer.from_pretrained(tmp_path / "out").apply_chat_template(
            [{"role": "user", "content": "?"}], tokenize=False
        )
        == "1"
    )
