"""Conversations as text: the Jinja template of a tokenizer, and which characters the assistant has to write."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from argosy.data.companions import CHAT_TEMPLATE, TOKENIZER_CONFIG
from argosy.errors import InputError

PLAIN = (
    "{% for message in messages %}{{ '### ' + message.role + '\\n' + message.content + '\\n\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '### assistant\\n' }}{% endif %}"
)
"""For a tokenizer that brings none: plain words, so that any tokenizer can spell it."""

Message = Mapping[str, Any]
Span = tuple[int, int]


@dataclass(frozen=True)
class ChatTemplate:
    """A template with the variables that it may use beside the messages.

    Attributes:
        source: Jinja, in the dialect of `transformers` (sandboxed; `{% generation %}` marks are understood).
        tokens: text of the special tokens, such as ``bos_token``.
        name: where it comes from.
    """

    source: str = PLAIN
    tokens: Mapping[str, str] = field(default_factory=dict)
    name: str = "plain"

    @classmethod
    def beside(cls, tokenizer: Path) -> "ChatTemplate":
        """The template in the folder of a tokenizer.json, or the plain one. Raises InputError when it is damaged."""
        folder = tokenizer.parent
        settings: dict[str, Any] = {}
        try:
            if (folder / TOKENIZER_CONFIG).exists():
                settings = json.loads((folder / TOKENIZER_CONFIG).read_bytes())
            own = (folder / CHAT_TEMPLATE).read_text("utf-8") if (folder / CHAT_TEMPLATE).exists() else None
        except (OSError, ValueError) as error:
            raise InputError(f"cannot be read ({error})", where=str(folder)) from None
        tokens = {name: _text(token) for name, token in settings.items() if name.endswith("_token") and token}
        source = own or _default_of(settings.get("chat_template"))
        return cls(source, tokens, str(folder)) if source else cls(tokens=tokens)

    @classmethod
    def read(cls, path: Path, tokenizer: Path | None = None) -> "ChatTemplate":
        """The template in the file `path`, with the special tokens of `tokenizer`. Raises InputError."""
        try:
            source = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot be read ({error})", where=str(path), do="give a Jinja template") from None
        return cls(source, cls.beside(tokenizer).tokens if tokenizer else {}, str(path))

    def render(self, messages: Sequence[Message], *, ask: bool = False) -> str:
        """The text of `messages`; `ask` ends it where the assistant is to write.

        Raises InputError when the template has an error or refuses the messages.
        """
        try:
            return self._compiled.render(messages=messages, add_generation_prompt=ask, **self.tokens)
        except TemplateError as error:
            raise InputError(f"the template refuses: {error}", where=self.name) from None

    def spans(self, messages: Sequence[Message]) -> tuple[str, list[Span]]:
        """The text of `messages`, and the characters in it that the assistant wrote, to the end of each turn.

        A turn whose text a template shows otherwise once the conversation has gone on (thoughts are left out, say) has
        no span: nobody will ever have to write that. Raises InputError when the last turn cannot be told apart either.
        """
        text = self.render(messages)
        found = []
        for place, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            before = self.render(messages[:place], ask=True)
            after = text if place == len(messages) - 1 else self.render(messages[: place + 1])
            if text.startswith(after) and after.startswith(before) and len(after) > len(before):
                found.append((len(before), len(after)))
        if not found or found[-1][1] != len(text):
            raise InputError("does not show where the last answer begins", where=f"template of {self.name}")
        return text, found

    @cached_property
    def _compiled(self) -> Any:
        # The flags of transformers: templates are written for them.
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
        )
        environment.globals["raise_exception"] = _refuse
        environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
        try:
            return environment.from_string(self.source)
        except TemplateError as error:
            raise InputError(f"is no Jinja template ({error})", where=self.name) from None


class _Generation(Extension):
    """``{% generation %} … {% endgeneration %}`` is its contents; the spans are found by asking the template."""

    tags = {"generation"}  # noqa: RUF012  the base class declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _text(token: Any) -> str:
    return str(token["content"]) if isinstance(token, dict) else str(token)


def _default_of(templates: Any) -> str | None:
    """A tokenizer may have several templates, with names."""
    if isinstance(templates, list):
        named = {entry["name"]: entry["template"] for entry in templates}
        return named.get("default")
    return templates
