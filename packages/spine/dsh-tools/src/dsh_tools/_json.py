"""JSON types, compact texts of values and paths, as messages to a model spell them."""

import json
from collections.abc import Mapping
from typing import Final

from dsh_brand import JsonValue, freeze_json

TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")

_EMPTY: Final = freeze_json({})


def snapshot(value: object) -> JsonValue:
    """`value`, checked to be lossless JSON and frozen.

    Raises:
        NotJsonError: It is not; the message says what and where.
    """
    # Most values are plain text, and many calls have no arguments.
    if (type(value) is str and value.isascii()) or value is None or value is True or value is False:
        return value
    if type(value) is dict and not value:
        return _EMPTY
    return freeze_json(value, tuples=False, surrogates=False)


def has_json_type(value: JsonValue, kind: str) -> bool:
    """True if `value` is of the JSON type `kind`; booleans are no numbers, `2.0` is an integer."""
    match value:
        case None:
            return kind == "null"
        case bool():
            return kind == "boolean"
        case str():
            return kind == "string"
        case int():
            return kind in {"integer", "number"}
        case float():
            return kind == "number" or (kind == "integer" and value.is_integer())
        case Mapping():
            return kind == "object"
        case _:
            return kind == "array"


def compact(value: object, limit: int = 80) -> str:
    """`value` as compact JSON, cut at `limit` characters."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        text = f"<{type(value).__name__}>"
    # Half a surrogate pair cannot be written to a log or a terminal.
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= limit else text[:limit] + "…"


def member_path(path: str, key: str) -> str:
    """Path of a member: ``a.b``, or ``a["odd key"]``."""
    if key.isidentifier():
        return f"{path}.{key}" if path else key
    return f"{path}[{compact(key)}]"
