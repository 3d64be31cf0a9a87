import json

import pytest

from argosy.data import textfiles
from argosy.data.corpus import Document, Rejected
from argosy.data.textfiles import TextFiles
from argosy.errors import InputError


def records(source, field="text"):
    return list(TextFiles(source, field))


def test_a_folder_is_read_in_sorted_order_without_hidden_files(tmp_path):
    for name in ("b.txt", "a/z.md", "a/b.txt", ".hidden", ".git/config", "empty.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("" if name == "empty.txt" else f"text of {name}\r\n", newline="")
    assert [(r.name, r.text) for r in records(tmp_path)] == [
        ("b.txt", "text of b.txt\r\n"),
        ("a/b.txt", "text of a/b.txt\r\n"),
        ("a/z.md", "text of a/z.md\r\n"),
    ]


def test_bad_records_are_named_and_the_good_ones_kept(tmp_path):
    path = tmp_path / "x.jsonl"
    lines = [
        json.dumps({"text": "good"}),
        '{"text": ',
        "[1]",
        json.dumps({"body": "x", "id": 1}),
        json.dumps({"text": 3}),
        r'{"text": "\ud800"}',
        "",
        json.dumps({"text": ""}),
        json.dumps({"text": "gut 🚢"}),
    ]
    path.write_text("\n".join(lines))
    found = records(path)
    assert [r.text for r in found if isinstance(r, Document)] == ["good", "gut 🚢"]
    bad = {r.name: r.reason for r in found if isinstance(r, Rejected)}
    assert list(bad) == ["x.jsonl:2", "x.jsonl:3", "x.jsonl:4", "x.jsonl:5", "x.jsonl:6"]
    assert "no field 'text'; it has body, id" in bad["x.jsonl:4"]
    assert "surrogate" in bad["x.jsonl:6"]


def test_another_field(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"content": "a"}\n{"content": "b"}\n')
    assert [r.text for r in records(path, "content")] == ["a", "b"]


def test_bytes_that_are_no_utf8_are_rejected(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"fine")
    (tmp_path / "b.txt").write_bytes(b"ab\xff\xfe")
    good, bad = records(tmp_path)
    assert good.text == "fine"
    assert (bad.name, bad.reason) == ("b.txt", "no UTF-8 (invalid start byte at byte 2)")


def test_a_line_too_long_is_rejected_and_the_next_one_read(tmp_path, monkeypatch):
    monkeypatch.setattr(textfiles, "LONGEST_LINE_BYTES", 64)
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"text": "a" * 500}) + "\n" + json.dumps({"text": "b"}) + "\n")
    bad, good = records(path)
    assert "longer than" in bad.reason
    assert (good.name, good.text) == ("x.jsonl:2", "b")


@pytest.mark.parametrize("line", ["ä€🚢 words\n", "ä€🚢b", "x" * 70 + "\n"])
def test_a_long_file_is_cut_without_losing_a_byte(tmp_path, monkeypatch, line):
    monkeypatch.setattr(textfiles, "LONG_FILE_BYTES", 100)
    monkeypatch.setattr(textfiles, "PIECE_BYTES", 61)
    path = tmp_path / "long.txt"
    text = line * 40
    path.write_text(text)
    found = records(path)
    assert all(isinstance(r, Document) for r in found)
    assert "".join(r.text for r in found) == text
    assert [r.name for r in found] == [f"long.txt#{number}" for number in range(len(found))]
    assert len(found) > len(text.encode()) // 61
    if line.startswith("ä") and line.endswith("\n"):
        assert all(r.text.endswith("\n") for r in found)


def test_nothing_there(tmp_path):
    with pytest.raises(InputError, match="no such file or folder"):
        records(tmp_path / "missing")
