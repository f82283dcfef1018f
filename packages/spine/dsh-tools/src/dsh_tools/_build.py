"""A type as its schema and two conversions, and building values with what validators refuse."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ._disjoint import Schema


class Codec(msgspec.Struct, frozen=True, kw_only=True):
    """Schema of a type and its conversions."""

    schema: Schema
    build: Callable[[Any], object]  # takes what the schema admits, frozen; gives what is free
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
Problem = tuple[Location, str]


class BuildError(ValueError):
    """Values that fit their schema, and that a validator refuses.

    Attributes:
        problems: Where, and what is wrong there.
    """

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(text for _, text in problems))
        self.problems = problems


def build_members(fields: Iterable[Field], given: Mapping[str, Any]) -> dict[str, object]:
    """The members of an object that are given, by their names in Python.

    Raises:
        BuildError: All that validators refuse.
    """
    built: dict[str, object] = {}
    problems: list[Problem] = []
    for field in fields:
        key = field.key
        if key in given:
            try:
                built[field.name] = field.codec.build(given[key])
            except ValueError as error:
                problems += _below(key, error)
    if problems:
        raise BuildError(problems)
    return built


def build_items(codec: Codec, given: Sequence[Any]) -> list[object]:
    """The items of an array.

    Raises:
        BuildError: All that validators refuse.
    """
    built: list[object] = []
    problems: list[Problem] = []
    for index, item in enumerate(given):
        try:
            built.append(codec.build(item))
        except ValueError as error:
            problems += _below(index, error)
    if problems:
        raise BuildError(problems)
    return built


def _below(step: str | int, error: ValueError) -> list[Problem]:
    return [((step, *rest), text) for rest, text in _problems_of(error)]


def _problems_of(error: ValueError) -> list[Problem]:
    if isinstance(error, BuildError):
        return error.problems
    errors = getattr(error, "errors", None)  # of a pydantic error, not imported here
    if callable(errors):
        return [(each["loc"], each["msg"]) for each in errors()]
    return [((), str(error))]
