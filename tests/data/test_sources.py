"""One set of texts in each format that a build reads, and what is wrong with each format."""

import gzip
import json
import struct
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from argosy.data.corpus import Document, Rejected
from argosy.data.megatron import DTYPES, MAGIC, MegatronFiles
from argosy.data.textfiles import TextFiles
from argosy.data.tokenizer import Tokenizer
from argosy.errors import InputError

TEXTS = [f"text number {n} äöü " * (n % 5 + 1) for n in range(3000)]
LINES = "".join(json.dumps({"text": text, "id": f"t{n}"}) + "\n" for n, text in enumerate(TEXTS)).encode()
TABLE = pa.table({"text": TEXTS, "id": [f"t{n}" for n in range(len(TEXTS))], "other": range(len(TEXTS))})


def texts(source, **fields) -> list[str]:
    records = list(TextFiles(source, **fields))
    assert not [one for one in records if isinstance(one, Rejected)]
    return [one.text for one in records if isinstance(one, Document)]


def zst(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def write(path: Path, kind: str) -> Path:
    path = path / f"x.{kind}"
    if kind.startswith("jsonl"):
        path.write_bytes({"jsonl": bytes, "jsonl.gz": gzip.compress, "jsonl.zst": zst}[kind](LINES))
    elif kind == "parquet":
        pq.write_table(TABLE, path, row_group_size=700)
    else:
        with pa.OSFile(str(path), "wb") as sink:
            make = pa.ipc.new_stream if kind == "stream.arrow" else pa.ipc.new_file
            with make(sink, TABLE.schema) as writer:
                writer.write_table(TABLE, max_chunksize=800)
    return path


KINDS = ["jsonl", "jsonl.gz", "jsonl.zst", "parquet", "stream.arrow", "file.arrow"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_same_texts(tmp_path, kind):
    path = write(tmp_path, kind)
    assert texts(path) == TEXTS
    assert texts(tmp_path, text_field="id") == [f"t{n}" for n in range(len(TEXTS))]
    named = [one.name for one in TextFiles(path, id_field="id")]
    assert named == [f"t{n}" for n in range(len(TEXTS))]
    assert next(iter(TextFiles(path))).name == f"x.{kind}:1"


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_was_cut_is_named(tmp_path, kind):
    path = write(tmp_path, kind)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    if kind == "jsonl":  # cut text is text; the last line is set aside
        assert sum(isinstance(one, Rejected) for one in TextFiles(path)) <= 1
        return
    with pytest.raises(InputError, match=rf"x\.{kind}: is damaged"):
        list(TextFiles(path))


@pytest.mark.parametrize("kind", ["parquet", "stream.arrow"])
def test_a_column_that_is_not_there_is_named(tmp_path, kind):
    with pytest.raises(InputError, match=r"has no column 'body'; it has text, id, other.*--text-field"):
        list(TextFiles(write(tmp_path, kind), text_field="body"))


def test_rows_without_text_are_set_aside(tmp_path):
    pq.write_table(pa.table({"text": ["a", None, "", "b"]}), tmp_path / "x.parquet")
    records = list(TextFiles(tmp_path))
    assert [(one.name, type(one).__name__) for one in records] == [
        ("x.parquet:1", "Document"),
        ("x.parquet:2", "Rejected"),
        ("x.parquet:4", "Document"),
    ]


def test_a_data_set_of_hugging_face_is_read_in_its_order(tmp_path):
    names = [f"data-0000{n}-of-00002.arrow" for n in (1, 0)]  # the state says the order, not the names
    for part, name in enumerate(names):
        with pa.OSFile(str(tmp_path / name), "wb") as sink, pa.ipc.new_stream(sink, TABLE.schema) as writer:
            writer.write_table(TABLE.slice(part * 1500, 1500))
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (tmp_path / "dataset_info.json").write_text("{}")
    assert texts(tmp_path) == TEXTS
    (tmp_path / names[0]).unlink()
    with pytest.raises(InputError, match="lacks data-00001"):
        texts(tmp_path)


def test_of_several_splits_one_has_to_be_chosen(tmp_path):
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "state.json").write_text('{"_data_files": []}')
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(InputError, match=r"several splits \(test, train\)"):
        texts(tmp_path)


def test_an_address_is_read_like_a_folder():
    system = fsspec.filesystem("memory")
    for name, content in (("b/x.jsonl.gz", gzip.compress(LINES)), ("a.txt", b"plain"), (".hidden", b"no")):
        system.pipe(f"/corpus/{name}", content)
    assert texts("memory://corpus") == ["plain", *TEXTS]
    before = TextFiles("memory://corpus").fingerprint
    system.pipe("/corpus/a.txt", b"plain text")
    assert TextFiles("memory://corpus").fingerprint != before
    system.rm("/corpus", recursive=True)
    with pytest.raises(InputError, match="no such file or folder"):
        texts("memory://corpus")
    with pytest.raises(InputError, match="cannot be reached"):
        texts("gopher://corpus")


def write_megatron(base: Path, documents: list[list[int]], dtype: str = "<u2") -> None:
    """NAME.bin and NAME.idx as Megatron-LM's preprocessing writes them, one sequence for each document."""
    code = next(code for code, name in DTYPES.items() if name == dtype)
    arrays = [np.array(ids, dtype=dtype) for ids in documents]
    base.with_suffix(".bin").write_bytes(b"".join(array.tobytes() for array in arrays))
    lengths = np.array([array.size for array in arrays], dtype="<i4")
    places = np.cumsum([0, *(array.nbytes for array in arrays)])[:-1].astype("<i8")
    bounds = np.arange(len(arrays) + 1, dtype="<i8")
    head = MAGIC + struct.pack("<QBQQ", 1, code, len(arrays), len(bounds))
    base.with_suffix(".idx").write_bytes(head + lengths.tobytes() + places.tobytes() + bounds.tobytes())


@pytest.mark.parametrize("dtype", ["<u2", "<i4"])
def test_tokens_of_megatron_come_over_as_they_are(tmp_path, dtype):
    documents = [[1, 2, 3, 256], [4, 5], [256], [7, 256, 8, 256]]
    write_megatron(tmp_path / "m", documents, dtype)
    for name in ("m.idx", "m.bin"):
        found = list(MegatronFiles(tmp_path / name, Tokenizer.bytes()))
        assert [one.ids.tolist() for one in found] == [[1, 2, 3], [4, 5], [7, 256, 8]]
        assert found[0].text == "\x01\x02\x03"


def test_damaged_megatron_files_are_named(tmp_path):
    tokenizer = Tokenizer.bytes()
    with pytest.raises(InputError, match="no such file"):
        list(MegatronFiles(tmp_path / "m.idx", tokenizer))
    write_megatron(tmp_path / "m", [[1, 2], [3, 999]])
    with pytest.raises(InputError, match=r"token 999 of document 1 is beyond the tokenizer's 257"):
        list(MegatronFiles(tmp_path / "m.idx", tokenizer))
    write_megatron(tmp_path / "m", [[1, 2], [3, 4]])
    content = (tmp_path / "m.idx").read_bytes()
    for damaged, message in ((content[:-3], "cut short"), (b"x" + content, "no index of Megatron-LM")):
        (tmp_path / "m.idx").write_bytes(damaged)
        with pytest.raises(InputError, match=message):
            list(MegatronFiles(tmp_path / "m.idx", tokenizer))
    (tmp_path / "m.idx").write_bytes(content)
    (tmp_path / "m.bin").write_bytes(b"abc")
    with pytest.raises(InputError, match="has 3 bytes, the index needs more"):
        list(MegatronFiles(tmp_path / "m.idx", tokenizer))
