"""JSON for policies, views, events and actions: one object with its type's name, exact money as text."""

import json
from dataclasses import fields
from enum import Enum
from fractions import Fraction
from typing import Any, get_args, get_type_hints

from argosy.errors import Exit, UsageError
from argosy.policy.action import Action
from argosy.policy.budget import BudgetPolicy
from argosy.policy.event import Event
from argosy.policy.objective import ObjectivePolicy
from argosy.policy.recovery import RecoveryPolicy
from argosy.policy.replicas import ReplicaPolicy
from argosy.policy.resize import ResizePolicy
from argosy.policy.retention import RetentionPolicy
from argosy.policy.save import SavePolicy
from argosy.policy.spares import SparePolicy
from argosy.policy.view import View

POLICIES = (
    SavePolicy,
    RetentionPolicy,
    RecoveryPolicy,
    SparePolicy,
    ReplicaPolicy,
    ResizePolicy,
    ObjectivePolicy,
    BudgetPolicy,
)
TYPES: dict[str, type] = {t.__name__: t for t in (*POLICIES, View, *get_args(Action), *get_args(Event))}


def to_json(value: Any) -> str:
    """One line of JSON for a policy, view, event or action."""
    assert type(value).__name__ in TYPES, value
    body = {field.name: getattr(value, field.name) for field in fields(value)}
    return json.dumps({"type": type(value).__name__} | body, default=_plain)


def from_json(text: str) -> Any:
    """The inverse of :func:`to_json`. Raises UsageError for an unknown type, an unknown key or no JSON."""
    try:
        content = json.loads(text)
        name = content.pop("type")
        kind = TYPES[name]
        hints = get_type_hints(kind)
        return kind(**{key: _typed(hints[key], item) for key, item in content.items()})
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"is no policy: {error}", where="policy") from None
    except KeyError as error:
        raise UsageError(f"unknown name {error}", where="policy", do=f"types: {', '.join(TYPES)}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Fraction):
        return str(value)
    raise TypeError(f"{value!r} has no JSON form")


def _typed(hint: Any, value: Any) -> Any:
    """`value` as JSON gives it, in the type of its field."""
    choices = (hint, *get_args(hint))
    if Fraction in choices and isinstance(value, str):
        return Fraction(value)
    if isinstance(value, list):
        return tuple(value)
    if any(isinstance(choice, type) and issubclass(choice, Enum) for choice in choices):
        return Exit(value)
    return value
