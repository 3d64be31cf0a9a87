"""What every field of a recipe is made of: its marks, exact numbers, lists, and the strict table that holds it."""

from fractions import Fraction
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

Affects = Literal["learn", "run", "books"]


def knob(default: Any, affects: Affects, doc: str, *, unit: str = "", **checks: Any) -> Any:
    """A recipe field; `default` may be ``...`` for a required one."""
    return Field(
        default,
        description=doc,
        json_schema_extra={"affects": affects, "unit": unit},
        **checks,
    )


def exact(value: Any) -> Any:
    """The decimal number that was written, exactly: 0.1 and "0.1" are 1/10."""
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            return Fraction(str(value))
        except (ValueError, ZeroDivisionError):
            raise ValueError(f'{value!r} is no exact number; write 2.49, or "2.49", or "1/3"') from None
    return value


def decimal(value: Fraction) -> str:
    """Shortest exact text: "2.49", or "1/3" where no decimal is exact."""
    digits = 0
    while digits < 30 and (value * 10**digits).denominator != 1:
        digits += 1
    scaled = value * 10**digits
    if scaled.denominator != 1:
        return str(value)
    sign, text = "-" * (value < 0), str(abs(scaled.numerator)).rjust(digits + 1, "0")
    return sign + (f"{text[:-digits]}.{text[-digits:]}" if digits else text)


Item = TypeVar("Item")
Several = Annotated[tuple[Item, ...], BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)]
"""A list in the file, immutable in the program."""

Exact = Annotated[Fraction, BeforeValidator(exact), PlainSerializer(decimal, return_type=str)]
"""Money, kept exact from the file to the books (INTERFACES 9)."""


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _whole_floats_are_integers(cls, values: Any) -> Any:
        # 1e9 reads better than 1_000_000_000; strict mode would refuse it for a count
        if isinstance(values, dict):
            return {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in values.items()}
        return values
