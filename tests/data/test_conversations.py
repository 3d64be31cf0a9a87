"""Fine-tuning data: loss on what the assistant writes, nothing else, and not one token off."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from texts import split_loader

from argosy.data.build import Options, TokenizerSpec, build_data_set
from argosy.data.chat_template import ChatTemplate
from argosy.data.conversations import Conversations
from argosy.data.corpus import Document, Rejected
from argosy.data.inspect import inspect
from argosy.data.shards import TokenShards
from argosy.data.tokenizer import END_OF_TEXT, Tokenizer
from argosy.data.windows import EvaluationWindows
from argosy.errors import InputError

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}"
    "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ m['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
FORGETFUL = (  # leaves the thoughts of earlier turns out, as Qwen3's does
    "{% for m in messages %}{{ m.role + ': ' }}"
    "{% if m.role == 'assistant' and loop.last %}{{ '(thinking) ' }}{% endif %}"
    "{{ m.content + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


def turns(*contents: str) -> list[dict[str, str]]:
    return [{"role": "user" if n % 2 == 0 else "assistant", "content": content} for n, content in enumerate(contents)]


def write_jsonl(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def read(path: Path, records: list[Any], **options: Any) -> list[Document | Rejected]:
    return list(Conversations(write_jsonl(path, records), ChatTemplate(), **options))


def learned(document: Document) -> list[str]:
    assert document.spans is not None
    return [document.text[start:stop] for start, stop in document.spans]


@pytest.fixture
def chat_tokenizer(tmp_path: Path) -> Path:
    """Bytes, with the special tokens of ChatML and their settings beside."""
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    Tokenizer.bytes().save(folder / "plain.json")
    inner = json.loads((folder / "plain.json").read_text())
    for number, name in enumerate(("<|im_start|>", "<|im_end|>"), start=257):
        inner["added_tokens"].append(inner["added_tokens"][0] | {"id": number, "content": name})
    (folder / "tokenizer.json").write_text(json.dumps(inner))
    settings = {"chat_template": CHATML, "eos_token": {"content": "<|im_end|>"}, "bos_token": None}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder / "tokenizer.json"


# -- templates -----------------------------------------------------------------------------------------


def test_plain_template() -> None:
    text, spans = ChatTemplate().spans(turns("2 + 2?", "4", "3 + 3?", "6"))
    assert text == "### user\n2 + 2?\n\n### assistant\n4\n\n### user\n3 + 3?\n\n### assistant\n6\n\n"
    assert [text[start:stop] for start, stop in spans] == ["4\n\n", "6\n\n"]


def test_template_beside_a_tokenizer(chat_tokenizer: Path) -> None:
    template = ChatTemplate.beside(chat_tokenizer)
    assert template.tokens == {"eos_token": "<|im_end|>"}
    text, spans = template.spans(turns("a", "b"))
    assert text == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
    assert [text[start:stop] for start, stop in spans] == ["b<|im_end|>\n"]
    (chat_tokenizer.parent / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert ChatTemplate.beside(chat_tokenizer).render(turns("a")) == "a", "the file stands above the settings"


def test_turns_that_the_template_rewrites_later_carry_no_loss() -> None:
    text, spans = ChatTemplate(FORGETFUL).spans(turns("a", "b", "c", "d"))
    assert text == "user: a\nassistant: b\nuser: c\nassistant: (thinking) d\n"
    assert [text[start:stop] for start, stop in spans] == ["(thinking) d\n"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% for %}", "is no Jinja template"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[9].content }}", "refuses"),
        ("answer first: {{ messages[-1].content }}", "does not show where the last answer begins"),
        ("{{ messages.__class__.__mro__ }}", "refuses"),
    ],
)
def test_bad_templates(source: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        ChatTemplate(source, name="test").spans(turns("a", "b"))


# -- records -------------------------------------------------------------------------------------------


def test_pairs_and_messages_with_any_field_names(tmp_path: Path) -> None:
    records = [{"q": "1", "a": "one", "note": 0}, {"chat": [{"role": "system", "content": "s"}, *turns("2", "two")]}]
    found = read(tmp_path / "x.jsonl", records, prompt_field="q", response_field="a", messages_field="chat")
    assert [learned(document) for document in found if isinstance(document, Document)] == [["one\n\n"], ["two\n\n"]]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"prompt": "a"}, r"no response: neither 'response' nor 'messages' is among its fields \(prompt\)"),
        ({"response": "a"}, "no prompt: neither"),
        ({"prompt": "a", "response": " "}, "no response"),
        ({"prompt": "a", "response": None}, "a text as content"),
        ({"messages": turns("a", "b", "c")}, "no response: 'messages' does not end with an answer"),
        ({"messages": turns("a", "b")[1:]}, "no prompt"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "lacks a role"),
        ({"messages": "hello"}, "is no list of messages"),
        ({"messages": []}, "no response"),
        (["a", "b"], "no JSON object"),
        ({"prompt": "a", "response": f"{END_OF_TEXT} b"}, "contains the special token"),
        ({"prompt": "a", "response": "\ud800"}, "surrogate"),
    ],
)
def test_records_that_teach_nothing_are_set_aside(tmp_path: Path, record: Any, reason: str) -> None:
    (found,) = read(tmp_path / "x.jsonl", [record], special_tokens=(END_OF_TEXT,))
    assert isinstance(found, Rejected)
    assert found.name == "x.jsonl:1"
    assert re.search(reason, found.reason)


def test_data_without_any_response_says_so(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "x.jsonl", [{"prompt": "a", "answer": "b"}] * 5)
    with pytest.raises(InputError, match="5 records were set aside, the first for: no response"):
        build(source, tmp_path / "out", Path("bytes"))


def test_answers_to_one_prompt_fall_on_one_side(tmp_path: Path) -> None:
    found = read(tmp_path / "x.jsonl", [{"prompt": "a", "response": answer} for answer in ("b", "c")])
    assert len({document.split_key for document in found if isinstance(document, Document)}) == 1


# -- shards and batches --------------------------------------------------------------------------------


def build(source: Path, out: Path, tokenizer: Path) -> None:
    plain = tokenizer == Path("bytes")
    spec = TokenizerSpec("bytes") if plain else TokenizerSpec("file", path=tokenizer)
    template = ChatTemplate() if plain else ChatTemplate.beside(tokenizer)
    special = (END_OF_TEXT,) if plain else Tokenizer.load(tokenizer).special_tokens
    build_data_set(
        Conversations(source, template, special_tokens=special),
        out,
        spec,
        Options(held_out_share=0.3, most_rejected=100, chat_template=template.source),
        say=lambda line: None,
    )


@pytest.fixture
def data_set(tmp_path: Path, chat_tokenizer: Path) -> Path:
    records = [{"prompt": f"say {n}", "response": f"n{n}" * (1 + n % 3)} for n in range(60)]
    build(write_jsonl(tmp_path / "x.jsonl", records), tmp_path / "out", chat_tokenizer)
    return tmp_path / "out"


def expected_stream(shards: TokenShards) -> tuple[list[int], list[bool]]:
    """Tokens and loss rebuilt by reading the tokens alone: between ``assistant\\n`` and the end of the document."""
    start, end_of_text = 257, 256
    marker = [start, *b"assistant\n"]
    tokens = shards.read(0, shards.tokens).tolist()
    loss, answering = [], False
    for place, token in enumerate(tokens):
        loss.append(answering)
        if tokens[max(0, place - len(marker) + 1) : place + 1] == marker:
            answering = True
        elif token == end_of_text:
            answering = False
    return tokens, loss


@pytest.mark.parametrize("part", ["train", "held_out"])
def test_loss_is_on_the_answer_to_the_end_of_text(data_set: Path, part: str) -> None:
    shards = TokenShards.open(data_set / part, verify=True)
    tokens, loss = expected_stream(shards)
    assert shards.read_loss(0, shards.tokens).tolist() == loss
    assert shards.loss_tokens == sum(loss) < shards.tokens
    assert tokens[-3:] == [258, ord("\n"), 256], "the end of a turn, then that of the document"
    plain = [token for token, carries in zip(tokens, loss, strict=True) if carries and token < 256]
    assert shards.text_bytes == len(plain)


@pytest.mark.parametrize("length", [5, 16, 33])
def test_loader_gives_no_loss_elsewhere(data_set: Path, length: int) -> None:
    shards = TokenShards.open(data_set / "train")
    tokens, loss = expected_stream(shards)
    loader = split_loader(shards, length, seed=1)
    for step in range(5):
        batch = loader.batch(((4 * step, 4),))
        for row, sample in enumerate(batch.sample_ids.tolist()):
            places = range(sample * length + 1, sample * length + length + 1)
            wanted = [tokens[place] if loss[place] else -100 for place in places]
            assert batch.targets[row].tolist() == wanted
            assert batch.tokens[row].tolist() == tokens[sample * length : (sample + 1) * length]
        assert batch.loss_tokens == int((batch.targets != -100).sum())
        assert batch.loss_tokens + batch.context_tokens == batch.targets.numel()


@pytest.mark.parametrize("stride_share", [1.0, 0.5])
def test_evaluation_predicts_each_answer_once(data_set: Path, stride_share: float) -> None:
    shards = TokenShards.open(data_set / "held_out")
    tokens, loss = expected_stream(shards)
    sizes = Tokenizer.load(data_set / "tokenizer.json").token_bytes
    windows = EvaluationWindows(shards, 16, stride_share=stride_share, token_bytes=sizes)
    batches = list(windows.batches(3))
    predicted = sorted(t for batch in batches for t in batch.targets[batch.targets != -100].tolist())
    assert predicted == sorted(token for token, carries in zip(tokens, loss, strict=True) if carries)
    assert sum(batch.loss_tokens for batch in batches) == shards.loss_tokens
    assert sum(batch.text_bytes or 0 for batch in batches) == shards.text_bytes
    for batch in batches:
        assert batch.loss_tokens + batch.context_tokens + batch.pad_tokens == batch.targets.numel()


def test_what_belongs_to_the_tokenizer_comes_along(data_set: Path, chat_tokenizer: Path) -> None:
    assert (data_set / "chat_template.jinja").read_text() == CHATML
    settings = (chat_tokenizer.parent / "tokenizer_config.json").read_bytes()
    assert (data_set / "tokenizer_config.json").read_bytes() == settings
    found = inspect(data_set)
    assert found["splits"]["train"]["loss_tokens"] < found["splits"]["train"]["tokens"]


def test_a_damaged_mask_is_noticed(data_set: Path) -> None:
    before = TokenShards.open(data_set / "train").digest
    file = data_set / "train" / "loss-00000.bin"
    mask = np.fromfile(file, dtype=np.uint8)
    mask[3] ^= 1
    mask.tofile(file)
    shards = TokenShards.open(data_set / "train")
    with pytest.raises(InputError, match=r"loss-00000.bin: wrong digest"):
        shards.verify()
    assert shards.digest == before, "digests are those of the manifest; verifying compares the files"
    file.unlink()
    with pytest.raises(InputError, match="shard is missing"):
        TokenShards.open(data_set / "train")


def test_a_template_may_end_with_the_end_of_text(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "x.jsonl", [{"prompt": f"{n}", "response": "yes"} for n in range(20)])
    template = ChatTemplate(
        "{% for m in messages %}{{ m.content }}{% endfor %}{% if not add_generation_prompt %}<|endoftext|>{% endif %}"
    )
    build_data_set(
        Conversations(source, template),
        tmp_path / "out",
        TokenizerSpec("bytes"),
        Options(held_out_share=0.3),
        say=lambda line: None,
    )
    shards = TokenShards.open(tmp_path / "out" / "train")
    assert (shards.read(0, shards.tokens) == 256).sum() == shards.documents
