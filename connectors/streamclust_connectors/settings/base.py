"""Base class of the sections of the settings, and types of values that may be given as text."""

from __future__ import annotations

from collections.abc import Mapping
from json import JSONDecodeError, loads
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_settings import NoDecode


def switch(value: object) -> object:
    """Convert words such as "yes" and "off" to booleans."""
    words = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
    return words.get(value.strip().lower(), value) if isinstance(value, str) else value


def listed(value: object) -> object:
    """Convert text to a list: separated by commas, or JSON."""
    if isinstance(value, str) and not isinstance(plain(value), list):
        return [part.strip() for part in value.split(",") if part.strip()]
    return plain(value)


def plain_values(value: object) -> object:
    """Convert the text values of a mapping to numbers and booleans."""
    return {name: plain(v) for name, v in value.items()} if isinstance(value, Mapping) else value


def plain(value: object) -> object:
    """Parse text as JSON if it is valid JSON; return other values unchanged."""
    if isinstance(value, str):
        try:
            return loads(value)
        except JSONDecodeError:
            return value
    return value


Topic = Annotated[bool | str, BeforeValidator(switch)]
"""True for the default topic, the name of a topic, or False for none."""
Names = Annotated[tuple[str, ...] | None, NoDecode, BeforeValidator(listed)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Section(BaseModel):
    """A section of the settings. An empty value counts as not given."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True
    )

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, given: object) -> object:
        return {k: v for k, v in given.items() if v != ""} if isinstance(given, Mapping) else given
