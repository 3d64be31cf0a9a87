"""Text ↔ token ids, without loss: byte-level BPE, plain bytes, or a tokenizer.json.

Every kind is a Hugging Face `tokenizers` object underneath, so that one file format holds them all and
exported models carry it. Only byte-level ones are accepted: each token then stands for a known number
of bytes, which makes bits per byte exact on any part of the text.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import tokenizers
import xxhash
from numpy.typing import NDArray
from tokenizers import decoders, models, pre_tokenizers, trainers

from argosy.data.files import digest_json
from argosy.errors import InputError

Kind = Literal["bpe", "bytes", "file"]

END_OF_TEXT = "<|endoftext|>"
KNOWN_ENDS = (END_OF_TEXT, "<|end_of_text|>", "<|begin_of_text|>", "</s>", "<eos>")

SPLIT = "gpt2"
"""Where BPE may not merge across: GPT-2's rule, measured against others on Python source (docs/data.md)."""


class Tokenizer:
    """Tokens of one vocabulary.

    Attributes:
        vocab_size: ids are in ``range(vocab_size)``.
        end_of_text: id of the token that separates documents; text never encodes to it.
    """

    def __init__(self, inner: tokenizers.Tokenizer, kind: Kind, where: str = "tokenizer"):
        self._inner = inner
        self.kind = kind
        # A document that contains the *text* of a special token must not be able to end itself.
        inner.encode_special_tokens = True
        self.vocab_size = max(inner.get_vocab(with_added_tokens=True).values()) + 1
        ends = [token for name in KNOWN_ENDS if (token := inner.token_to_id(name)) is not None]
        if not ends:
            raise InputError(f"has no end-of-text token (one of {', '.join(KNOWN_ENDS)})", where=where)
        self.end_of_text: int = ends[0]
        if '"ByteLevel"' not in inner.to_str():
            raise InputError(
                "is not byte-level, so bits per byte would not be exact",
                where=where,
                do="use a byte-level BPE (GPT-2, Llama 3, Qwen …)",
            )

    # -- making one ---------------------------------------------------------------------------------

    @classmethod
    def bytes(cls) -> "Tokenizer":
        """256 bytes and end-of-text."""
        symbols = _byte_symbols()
        vocabulary = {symbol: byte for byte, symbol in enumerate(symbols)}
        return cls(_byte_level(models.BPE(vocab=vocabulary, merges=[]), ends_at=256), "bytes")

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int) -> "Tokenizer":
        """Train a BPE of at most ``vocab_size`` tokens; the same texts in the same order give the same tokens."""
        inner = _byte_level(models.BPE())
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[END_OF_TEXT],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        inner.train_from_iterator(texts, trainer)
        return cls(inner, "bpe")

    @classmethod
    def load(cls, path: Path, kind: Kind = "file") -> "Tokenizer":
        """Read a tokenizer.json.

        Raises:
            InputError: it is missing, unreadable, not byte-level or without an end-of-text token.
        """
        if not path.is_file():
            raise InputError("no such tokenizer file", where=str(path), do="give a tokenizer.json")
        try:
            inner = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise InputError(f"unreadable tokenizer ({error})", where=str(path)) from error
        return cls(inner, kind, where=str(path))

    def save(self, path: Path) -> None:
        """Write tokenizer.json."""
        path.write_text(self._inner.to_str(pretty=False), encoding="utf-8")

    # -- using it -----------------------------------------------------------------------------------

    def encode(self, text: str) -> NDArray[np.int64]:
        """Token ids of a text, without end-of-text; ``decode(encode(x)) == x``."""
        return self.encode_batch([text])[0]

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """Texts of all special tokens."""
        return tuple(token.content for token in self._inner.get_added_tokens_decoder().values() if token.special)

    def encode_batch(self, texts: Sequence[str], *, special: bool = False) -> list[NDArray[np.int64]]:
        """Token ids of many texts, on all cores.

        With `special` the text of a special token becomes that token: for templates, never for what people wrote.
        """
        if special:
            self._inner.encode_special_tokens = False
            try:
                encodings = self._inner.encode_batch_fast(list(texts), add_special_tokens=False)
            finally:
                self._inner.encode_special_tokens = True
            return [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]
        if self.kind == "bytes":
            return [np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int64) for text in texts]
        encodings = self._inner.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of token ids; end-of-text shows as its name, broken UTF-8 as U+FFFD."""
        return self._inner.decode([int(token) for token in ids], skip_special_tokens=False)

    def token_id(self, token: str) -> int | None:
        """Id of the token that is called `token`, such as ``<|im_end|>``; None if there is none."""
        return self._inner.token_to_id(token)

    @cached_property
    def token_bytes(self) -> NDArray[np.int64]:
        """[vocab_size] bytes of text that each token stands for; 0 for special tokens."""
        lengths = np.zeros(self.vocab_size, dtype=np.int64)
        for text, token in self._inner.get_vocab(with_added_tokens=False).items():
            lengths[token] = len(text)  # byte-level: one character per byte
        for token, added in self._inner.get_added_tokens_decoder().items():
            lengths[token] = 0 if added.special else len(added.content.encode())
        return lengths

    @cached_property
    def vocabulary_digest(self) -> str:
        """xxh3_128 of which id stands for which token: weights fit any tokenizer that agrees on that."""
        vocabulary = self._inner.get_vocab(with_added_tokens=True)
        return digest_json(sorted((token, text) for text, token in vocabulary.items()))

    @cached_property
    def digest(self) -> str:
        """xxh3_128 of the tokenizer's definition."""
        return xxhash.xxh3_128(self._inner.to_str(pretty=False).encode()).hexdigest()


def _byte_level(model: models.Model, ends_at: int | None = None) -> tokenizers.Tokenizer:
    inner = tokenizers.Tokenizer(model)
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    inner.decoder = decoders.ByteLevel()
    if ends_at is not None:
        inner.add_special_tokens([END_OF_TEXT])
        assert inner.token_to_id(END_OF_TEXT) == ends_at
    return inner


def _byte_symbols() -> list[str]:
    """The visible character that byte-level BPE writes for each byte (GPT-2's table).

    Bytes that print stand for themselves; the others take the code points from 256 on, in order.
    """
    printing = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printing else chr(next(others)) for byte in range(256)]
