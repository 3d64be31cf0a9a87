import subprocess
import sys

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.data.tokenizer import END_OF_TEXT, Tokenizer
from argosy.errors import InputError

TEXTS = ["def f(self):\n    return self.x + 1\n\n\nclass A:\n\tpass\n" * 20, "x = 0x1234  # größer 你好 🚢\r\n" * 20]


@pytest.fixture(scope="module")
def bpe():
    return Tokenizer.train(TEXTS, 400)


@pytest.fixture(scope="module")
def plain():
    return Tokenizer.bytes()


@given(
    text=st.one_of(
        st.text(),
        st.text(alphabet=" \t\r\n\v\u00a0\u2028ab_0.(é🚢"),
        st.sampled_from([END_OF_TEXT, f"a{END_OF_TEXT}\n"]),
    )
)
@settings(max_examples=300)
def test_decoding_gives_back_any_text(bpe, plain, text):
    for tokenizer in (bpe, plain):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert tokenizer.end_of_text not in ids
        assert tokenizer.token_bytes[ids].sum() == len(text.encode())
        assert ids.size == 0 or (ids.min() >= 0 and ids.max() < tokenizer.vocab_size)


def test_bytes_are_bytes(plain):
    assert plain.vocab_size == 257
    assert plain.end_of_text == 256
    assert plain.encode("é\n").tolist() == list("é\n".encode())
    assert plain.decode([0xC3, 0xA9, 256]) == "é" + END_OF_TEXT


def test_a_batch_is_its_texts(bpe):
    batch = bpe.encode_batch([*TEXTS, ""])
    assert [ids.tolist() for ids in batch] == [bpe.encode(text).tolist() for text in [*TEXTS, ""]]
    assert batch[2].size == 0


def test_indentation_costs_one_token(bpe):
    deep, shallow = (bpe.encode(f"\n{' ' * width}return").size for width in (4, 0))
    assert deep <= shallow + 1


def test_training_gives_the_same_tokens_in_every_process(bpe):
    program = (
        "import ast, sys; from argosy.data.tokenizer import Tokenizer;"
        "print(Tokenizer.train(ast.literal_eval(sys.argv[1]), 400).digest)"
    )
    done = subprocess.run([sys.executable, "-c", program, repr(TEXTS)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == bpe.digest


def test_saved_and_loaded_it_is_the_same(bpe, plain, tmp_path):
    for tokenizer in (bpe, plain):
        tokenizer.save(tmp_path / "tokenizer.json")
        again = Tokenizer.load(tmp_path / "tokenizer.json", kind=tokenizer.kind)
        assert again.digest == tokenizer.digest
        assert again.end_of_text == tokenizer.end_of_text
        assert np.array_equal(again.encode(TEXTS[1]), tokenizer.encode(TEXTS[1]))
        assert np.array_equal(again.token_bytes, tokenizer.token_bytes)


def test_files_that_cannot_serve_are_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(InputError, match="no such tokenizer"):
        Tokenizer.load(path)
    path.write_text("{")
    with pytest.raises(InputError, match="unreadable"):
        Tokenizer.load(path)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, END_OF_TEXT: 1}, unk_token="a"))
    words.save(str(path))
    with pytest.raises(InputError, match="not byte-level"):
        Tokenizer.load(path)
    nameless = tokenizers.Tokenizer(tokenizers.models.BPE())
    nameless.add_tokens(["a"])
    nameless.save(str(path))
    with pytest.raises(InputError, match="end-of-text"):
        Tokenizer.load(path)
