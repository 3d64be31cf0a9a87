"""Fine-tuning data: JSONL of prompts with responses, or of messages. Only what the assistant writes carries loss."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argosy.data.chat_template import ChatTemplate, Message
from argosy.data.corpus import Document, Rejected
from argosy.data.textfiles import TextFiles
from argosy.errors import InputError

ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True)
class Conversations:
    """JSONL records as documents, in the order of the files.

    A record has a prompt and a response, or a list of messages (``{"role": …, "content": …}``) that ends with one of
    the assistant. What has no answer to learn, or contains a special token's text (which could end a turn), becomes
    :class:`Rejected`. The prompt decides whether a document is held out: its other answers fall on the same side.

    Attributes:
        special_tokens: texts that may come from the template only.
    """

    source: Path | str
    template: ChatTemplate
    prompt_field: str = "prompt"
    response_field: str = "response"
    messages_field: str = "messages"
    special_tokens: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return str(self.source)

    @property
    def fingerprint(self) -> str:
        """Changes with the files."""
        return TextFiles(self.source).fingerprint

    def __iter__(self) -> Iterator[Document | Rejected]:
        for where, line in TextFiles(self.source).lines():
            if isinstance(line, Rejected):
                yield line
                continue
            try:
                yield self._document(where, json.loads(line))
            except UnicodeEncodeError:
                yield Rejected(where, "half of a surrogate pair", line[:200])
            except (ValueError, RecursionError) as error:
                yield Rejected(where, f"no JSON ({error})", line[:200])
            except InputError as error:
                yield Rejected(where, str(error), line[:200])

    def _document(self, where: str, record: Any) -> Document:
        messages = self._messages(record)
        for message in messages:
            for token in self.special_tokens:
                if token in message["content"]:
                    raise InputError(f"a message contains the special token {token}")
        text, spans = self.template.spans(messages)
        question = json.dumps([message["content"] for message in messages[:-1]]).encode()
        text.encode()  # half of a surrogate pair must be found here, not in the build
        return Document(where, text, question, tuple(spans))

    def _messages(self, record: Any) -> list[Message]:
        if not isinstance(record, dict):
            raise InputError("no JSON object")
        if self.messages_field in record:
            return _checked(record[self.messages_field], self.messages_field)
        have = ", ".join(record) or "none"
        for field, what in ((self.response_field, "response"), (self.prompt_field, "prompt")):
            if field not in record:
                raise InputError(
                    f"no {what}: neither {field!r} nor {self.messages_field!r} is among its fields ({have})"
                )
        prompt, response = record[self.prompt_field], record[self.response_field]
        return _checked(
            [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}],
            f"{self.prompt_field}, {self.response_field}",
        )


def _checked(messages: Any, field: str) -> list[Message]:
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise InputError(f"{field!r} is no list of messages")
    for message in messages:
        if message.get("role") not in ROLES or not isinstance(message.get("content"), str):
            raise InputError(f"a message of {field!r} lacks a role ({', '.join(ROLES)}) or a text as content")
    if not messages or messages[-1]["role"] != "assistant" or not messages[-1]["content"].strip():
        raise InputError(f"no response: {field!r} does not end with an answer of the assistant")
    if len(messages) < 2:
        raise InputError(f"no prompt: {field!r} has nothing before the answer")
    return messages
