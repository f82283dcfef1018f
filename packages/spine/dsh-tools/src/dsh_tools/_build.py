"""A type as its schema and two conversions, and building values with what validators refuse."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from ._disjoint import Schema


class Codec(msgspec.Struct, frozen=True, kw_only=True):
    """Schema of a type and its conversions."""

    schema: Schema
    build: Callable[[Any], object]  # takes what the schema admits
    dump: Callable[[Any], object]  # takes what the annotation admits


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter, or a member of a nested object."""

    name: str
    """In Python."""
    key: str
    """In JSON."""
    codec: Codec
    required: bool


Location = tuple[str | int, ...]


class BuildError(ValueError):
    """Values that fit their schema, and that a validator refuses.

    Attributes:
        problems: Where, and what is wrong there.
    """

    def __init__(self, problems: list[tuple[Location, str]]) -> None:
        super().__init__("; ".join(text for _, text in problems))
        self.problems = problems


def build_all(parts: Iterable[tuple[str | int, Codec, Any]]) -> list[object]:
    """Build values; each part is a step of the path, a codec and what the codec takes.

    Raises:
        BuildError: All that validators refuse.
    """
    built: list[object] = []
    problems: list[tuple[Location, str]] = []
    for step, codec, value in parts:
        try:
            built.append(codec.build(value))
        except ValueError as error:
            problems += [((step, *rest), text) for rest, text in _problems_of(error)]
    if problems:
        raise BuildError(problems)
    return built


def _problems_of(error: ValueError) -> list[tuple[Location, str]]:
    if isinstance(error, BuildError):
        return error.problems
    errors = getattr(error, "errors", None)  # of a pydantic error, not imported here
    if callable(errors):
        return [(each["loc"], each["msg"]) for each in errors()]
    return [((), str(error))]
