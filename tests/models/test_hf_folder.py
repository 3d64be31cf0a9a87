"""Folders of Hugging Face that are old, incomplete, of another kind, or not what they say."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from argosy.errors import InputError, UsageError
from argosy.models.hf.config import FAMILIES, family_of, make_config, model_table
from argosy.models.hf.tensors import HfFolder, parameter_shapes
from argosy.recipe.model_table import ModelTable
from argosy.recipe.presets import PRESETS
from hf_folders import QWEN3, change_config, change_tensors, tensors_in_folder, write_folder

GPT2 = {
    "vocab_size": 257,
    "layers": 2,
    "hidden_size": 32,
    "heads": 2,
    "ffn_size": 64,
    "activation": "gelu",
    "norm": "layernorm",
    "positions": "learned",
    "max_positions": 64,
    "bias": "all",
    "tied_embeddings": True,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path / "model")
    return tmp_path / "model"


def refusal(folder: Path) -> str:
    with pytest.raises(InputError) as caught, HfFolder(folder):
        pass
    assert str(folder) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_a_family_and_survives_its_config(tmp_path: Path, preset: str) -> None:
    table = ModelTable(preset=preset)
    if table.vocab_size is None:
        table = ModelTable(preset=preset, vocab_size=4096)
    config = make_config(table, table.vocab_size, "float32", {})
    (tmp_path / "config.json").write_text(json.dumps(config))
    back = model_table(tmp_path)
    assert back.model_dump(exclude={"preset"}) == table.model_dump(exclude={"preset"})


@pytest.mark.parametrize("preset", ["llama3.2-1b", "qwen3-0.6b", "gpt2", "argosy-3m"])
def test_every_parameter_is_in_exactly_one_tensor(preset: str) -> None:
    table = ModelTable(preset=preset)
    held = [name for weight in family_of(table).weights(table) for name in weight.ours]
    assert sorted(held) == sorted(parameter_shapes(table, 4096))


@pytest.mark.parametrize("fields", [QWEN3, GPT2], ids=["qwen3", "gpt2"])
def test_reads_what_was_written(tmp_path: Path, fields: dict) -> None:
    parameters = write_folder(tmp_path / "model", fields)
    with HfFolder(tmp_path / "model") as found:
        read = dict(found.parameters())
    assert read.keys() == parameters.keys()
    assert all(torch.equal(read[name], parameters[name]) for name in parameters)


def test_gpt2_saved_without_its_head_and_with_masks(tmp_path: Path) -> None:
    """As the folders of the first hour are: no prefix, and the causal mask among the tensors."""
    parameters = write_folder(tmp_path / "model", GPT2)
    tensors = {name.partition(".")[2]: t for name, t in tensors_in_folder(tmp_path / "model").items()}
    tensors["h.0.attn.bias"] = torch.ones(1, 1, 64, 64).tril()
    save_file(tensors, tmp_path / "model" / "model.safetensors")
    with HfFolder(tmp_path / "model") as found:
        assert all(torch.equal(found.read(name), parameters[name]) for name in parameters)


def test_a_stored_head_that_is_tied_must_be_the_embedding(tmp_path: Path) -> None:
    write_folder(tmp_path / "model", QWEN3 | {"tied_embeddings": True})
    embedding = tensors_in_folder(tmp_path / "model")["model.embed_tokens.weight"]
    change_tensors(tmp_path / "model", {"lm_head.weight": embedding.clone()})
    with HfFolder(tmp_path / "model") as found:
        assert "head.weight" not in found.shapes
    change_tensors(tmp_path / "model", {"lm_head.weight": embedding + 1})
    assert "lm_head.weight is not the embedding" in refusal(tmp_path / "model")


def test_unknown_architecture_names_what_is_known_and_the_first_misfit(folder: Path) -> None:
    change_config(folder, architectures=["MixtralForCausalLM"], model_type="mixtral")
    change_tensors(folder, {"model.layers.0.block_sparse_moe.gate.weight": torch.zeros(8, 32)})
    said = refusal(folder)
    assert "unknown architecture MixtralForCausalLM" in said
    assert all(family.architecture in said for family in FAMILIES)
    assert "does not fit Qwen3ForCausalLM is model.layers.0.block_sparse_moe.gate.weight → " in said, (
        "the nearest family by names"
    )
    change_tensors(folder, {"model.layers.0.block_sparse_moe.gate.weight": None})
    assert "all tensors are named as in Qwen3ForCausalLM" in refusal(folder)


def test_tensor_that_does_not_belong(folder: Path) -> None:
    change_tensors(folder, {"model.layers.1.self_attn.sinks": torch.zeros(2)})
    assert "model.layers.1.self_attn.sinks does not fit Qwen3ForCausalLM" in refusal(folder)


def test_tensor_that_is_missing(folder: Path) -> None:
    change_tensors(folder, {"model.layers.1.mlp.up_proj.weight": None})
    assert "model.layers.1.mlp.up_proj.weight of Qwen3ForCausalLM is missing" in refusal(folder)


def test_wrong_vocabulary_size(folder: Path) -> None:
    change_config(folder, vocab_size=300)
    said = refusal(folder)
    assert re.search(r"lm_head.weight is \[257, 32\], config.json makes it \[300, 32\]", said)
    assert "vocab_size in config.json must be the number of rows" in said


def test_missing_shard(folder: Path) -> None:
    tensors = tensors_in_folder(folder)
    names = sorted(tensors)
    save_file({name: tensors[name] for name in names[:5]}, folder / "model-00001-of-00002.safetensors")
    places = {name: f"model-0000{1 if name in names[:5] else 2}-of-00002.safetensors" for name in names}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert "1 of 2 shards are missing: model-00002-of-00002.safetensors" in refusal(folder)


def test_truncated_file(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    assert "damaged" in refusal(folder)


def test_no_safetensors(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "holds neither model.safetensors nor" in refusal(folder)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"use_sliding_window": True}, "use_sliding_window is True"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding attention"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_type is 'yarn'"),
        ({"hidden_size": None}, "lacks hidden_size"),
        ({"num_attention_heads": 3}, "heads 3 is not divisible by kv_heads"),
    ],
)
def test_config_asks_for_what_argosy_has_not(folder: Path, changes: dict, said: str) -> None:
    if said.startswith("heads 3"):
        changes = changes | {"num_key_value_heads": 2}
    change_config(folder, **changes)
    assert said in refusal(folder)


def test_config_that_is_no_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    assert "is no JSON" in refusal(folder)


def test_shape_of_no_family_is_refused_field_by_field() -> None:
    with pytest.raises(
        UsageError, match=r"LlamaForCausalLM has no activation.*GPT2LMHeadModel has no positions = 'rope', bias"
    ):
        family_of(ModelTable(norm="layernorm", activation="gelu"))
