"""A schema compiled to a function that says whether a value fits, and nothing more.

Nearly every value fits, so this is what a call pays; who needs to know what is wrong walks schema
and value once more (`validation`).
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from dsh_brand import JsonValue, json_equal

MAX_DEPTH: Final = 128
"""Levels below the root that are walked; nothing deeper fits a schema that says something there."""

Fits: TypeAlias = Callable[[JsonValue], bool]


def compile_fits(schema: Mapping[str, JsonValue], depth: int = 0) -> Fits:
    """The check for a schema of the subset."""
    kind, branches = schema.get("type"), schema.get("oneOf")
    if kind is None and branches is None:
        return _anything
    if depth > MAX_DEPTH:
        return _nothing
    if isinstance(branches, list):
        return _one_of([compile_fits(b, depth + 1) for b in branches if isinstance(b, Mapping)])
    if kind == "object":
        return _object(schema, depth)
    if kind == "array":
        return _array(schema, depth)
    return _scalar(schema, _SCALARS[str(kind)])


def _anything(_: JsonValue) -> bool:
    return True


def _nothing(_: JsonValue) -> bool:
    return False


def _one_of(branches: list[Fits]) -> Fits:
    def fits(value: JsonValue) -> bool:
        return sum(branch(value) for branch in branches) == 1

    return fits


def _object(schema: Mapping[str, JsonValue], depth: int) -> Fits:
    properties, names = schema.get("properties", {}), schema.get("required", ())
    assert isinstance(properties, Mapping)
    assert isinstance(names, list | tuple)
    required = tuple(names)
    closed = schema.get("additionalProperties") is False
    members = {
        name: compile_fits(child, depth + 1)
        for name, child in properties.items()
        if isinstance(child, Mapping)
    }

    def fits(value: JsonValue) -> bool:
        if not isinstance(value, dict) and not isinstance(value, Mapping):  # the first is faster
            return False
        for name in required:
            if name not in value:
                return False
        for name, item in value.items():
            member = members.get(name)
            if member is None:
                if closed:
                    return False
            elif not member(item):
                return False
        return True

    return fits


def _array(schema: Mapping[str, JsonValue], depth: int) -> Fits:
    items = schema.get("items")
    each = compile_fits(items, depth + 1) if isinstance(items, Mapping) else _anything

    def fits(value: JsonValue) -> bool:
        return isinstance(value, list | tuple) and all(map(each, value))

    return fits


def _scalar(schema: Mapping[str, JsonValue], is_kind: Fits) -> Fits:
    literals = schema.get("enum")
    if not isinstance(literals, list):
        if "const" not in schema:
            return is_kind
        literals = [schema["const"]]
    elif "const" in schema:
        literals = [each for each in literals if json_equal(each, schema["const"])]

    def fits(value: JsonValue) -> bool:
        return is_kind(value) and any(json_equal(value, literal) for literal in literals)

    return fits


def _is_string(value: JsonValue) -> bool:
    return isinstance(value, str)


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: JsonValue) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


def _is_boolean(value: JsonValue) -> bool:
    return isinstance(value, bool)


def _is_null(value: JsonValue) -> bool:
    return value is None


_SCALARS: Final[Mapping[str, Fits]] = {
    "string": _is_string,
    "number": _is_number,
    "integer": _is_integer,
    "boolean": _is_boolean,
    "null": _is_null,
}
