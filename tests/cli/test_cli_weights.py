"""`argosy weights` and `argosy data build --loss response` as they are typed."""

import json
from pathlib import Path

import pytest

from argosy.cli.main import main
from argosy.errors import Exit
from hf_folders import change_config, tensors_in_folder, write_folder


def argosy(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


def test_import_and_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(tmp_path / "hf")
    assert argosy("weights", "import", tmp_path / "hf", tmp_path / "in", "--json") == Exit.DONE
    taken = json.loads(capsys.readouterr().out)
    assert (taken["schema"], taken["architecture"], taken["model"]["layers"]) == (
        "argosy.import/1",
        "Qwen3ForCausalLM",
        2,
    )
    words = ("weights", "export", tmp_path / "in", tmp_path / "out", "--dtype", "bf16", "--json")
    assert argosy(*words) == Exit.DONE
    given = json.loads(capsys.readouterr().out)
    assert (given["dtype"], given["parameters"], given["step"]) == ("bfloat16", taken["parameters"], 0)
    assert tensors_in_folder(tmp_path / "out").keys() == tensors_in_folder(tmp_path / "hf").keys()


def test_bad_input_is_one_line_with_its_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(tmp_path / "hf")
    for words, code, said in (
        (("import", tmp_path / "none", tmp_path / "a"), Exit.INPUT, "no such folder"),
        (("import", tmp_path / "hf", tmp_path / "hf"), Exit.INPUT, "exists already"),
        (("export", tmp_path / "hf", tmp_path / "a"), Exit.USAGE, "is a folder of Hugging Face already"),
        (("export", tmp_path / "hf", tmp_path / "a", "--dtype", "int8"), Exit.USAGE, "--dtype is fp32, bf16, fp16"),
    ):
        assert argosy("weights", *words) == code
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    change_config(tmp_path / "hf", vocab_size=9)
    assert argosy("weights", "import", tmp_path / "hf", tmp_path / "a") == Exit.INPUT
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf"], "nothing is left behind"


def test_answers_with_the_tokenizer_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(tmp_path / "hf")
    lines = [json.dumps({"q": f"{n}?", "a": f"{n}!"}) for n in range(40)]
    (tmp_path / "qa.jsonl").write_text("\n".join([*lines, '{"q": "no answer"}']))
    (tmp_path / "mine.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    words = ["data", "build", tmp_path / "qa.jsonl", tmp_path / "out", "--loss", "response", "--json"]
    words += ["--prompt-field", "q", "--response-field", "a", "--tokenizer", tmp_path / "hf"]
    assert argosy(*words, "--chat-template", tmp_path / "mine.jinja") == Exit.DONE
    found = json.loads(capsys.readouterr().out)
    train = found["splits"]["train"]
    assert train["beginning"].startswith(("0?0!", "1?1!"))
    assert train["loss_tokens"] == train["text_bytes"] + train["documents"], "the answers' bytes and each end of text"
    assert found["source"]["rejected"] == 1
    assert "no response" in (tmp_path / "out" / "rejected.jsonl").read_text()
    assert argosy("data", "build", tmp_path / "qa.jsonl", tmp_path / "x", "--chat-template", "f") == Exit.USAGE
