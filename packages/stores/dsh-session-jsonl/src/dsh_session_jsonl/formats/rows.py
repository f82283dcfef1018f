"""What flows through the conversion: events of old formats, their payload plain JSON.

The envelope is taken apart here, once, so that the edges do not know how a format spells it. The
payload stays as it was read; edges copy what they change and share the rest.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from dsh_brand import JsonValue
from dsh_session_jsonl.formats.errors import BrokenRowError, CannotConvertError
from dsh_session_jsonl.formats.vocabulary import FOREIGN_PREFIX

MAX_SAFE_INT: Final = 2**53 - 1
NEW: Final = -1
"""The seq of a row that an edge makes: it stands nowhere in the source."""

Json: TypeAlias = dict[str, JsonValue]
"""A JSON object as it was read."""


class Replace(NamedTuple):
    """The row takes the place of the surface nodes from one to the other."""

    start: int
    end: int


class Row(NamedTuple):
    """One event between two formats."""

    type: str
    seq: int
    time: int
    data: JsonValue
    origin: int
    """Its seq in the file, for messages to people; of a made row, that of what caused it."""

    op: Literal["append"] | Replace | None = None
    cited: tuple[int, ...] | None = None
    ignorable: bool = False
    kept: Mapping[str, JsonValue] | None = None
    """Surface keys of an event that no format knew: never looked at."""

    @property
    def foreign(self) -> bool:
        """Whether no format knew the type: then only its seq may move."""
        return self.ignorable and self.type.startswith(FOREIGN_PREFIX)


def made(row: Row, event_type: str, data: JsonValue) -> Row:
    """A log-only row that an edge adds where `row` stands, at its time."""
    return Row(event_type, NEW, row.time, data, row.origin)


def natural(value: object) -> int | None:
    """`value` as a non-negative safe integer, or `None`; ``3.0`` is 3, a boolean is none."""
    number = integer(value)
    return number if number is not None and number >= 0 else None


def integer(value: object) -> int | None:
    """`value` as a safe integer, or `None`."""
    if type(value) is float and value.is_integer() and str(value) != "-0.0":
        value = int(value)
    if type(value) is not int or abs(value) > MAX_SAFE_INT:
        return None
    return value


def fields(row: Row) -> Json:
    """The payload of a row that must be an object.

    Raises:
        BrokenRowError: It is none.
    """
    return object_of(row, row.data, "data")


def object_of(row: Row, value: JsonValue, name: str) -> Json:
    """A part of the payload that must be an object.

    Raises:
        BrokenRowError: It is none.
    """
    if not isinstance(value, dict):
        raise broken(row, f"{name} must be an object")
    return value


def number_of(row: Row, data: Mapping[str, JsonValue], key: str) -> int:
    """A part of the payload that must be a non-negative integer.

    Raises:
        BrokenRowError: It is none.
    """
    number = natural(data.get(key))
    if number is None:
        raise broken(row, f"{key} must be a non-negative integer, not {data.get(key)!r}")
    return number


def cannot(row: Row, rule: str) -> CannotConvertError:
    """The error for a sound row that has no form in the next format."""
    return CannotConvertError(rule, row.type, row.origin)


def broken(row: Row, rule: str) -> BrokenRowError:
    """The error for a row that its own format does not allow."""
    return BrokenRowError(rule, row.type, row.origin)
