"""The first difference between two JSON values, in words."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeGuard

from dsh_brand import JsonValue, json_equal

_SHOWN = 60


def differences(
    expected: JsonValue, found: JsonValue, path: str, *, limit: int = 3
) -> tuple[str, ...]:
    """Up to `limit` differences, each with its path and both values, shortened."""
    return tuple(islice(_walk(expected, found, path), limit))


def _walk(expected: JsonValue, found: JsonValue, path: str) -> Iterator[str]:
    if json_equal(expected, found):
        return
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        for key in [*expected, *(key for key in found if key not in expected)]:
            yield from _member(expected, found, key, f"{path}.{key}")
    elif _is_array(expected) and _is_array(found):
        yield from _items(expected, found, path)
    elif isinstance(expected, str) and isinstance(found, str):
        at = _first_difference(expected, found)
        yield f"{path}: recorded {_text(expected, at)}, now {_text(found, at)}"
    else:
        yield f"{path}: recorded {_short(expected)}, now {_short(found)}"


def _member(
    expected: Mapping[str, JsonValue], found: Mapping[str, JsonValue], key: str, path: str
) -> Iterator[str]:
    if key not in found:
        yield f"{path}: recorded {_short(expected[key])}, now absent"
    elif key not in expected:
        yield f"{path}: recorded absent, now {_short(found[key])}"
    else:
        yield from _walk(expected[key], found[key], path)


def _items(expected: Sequence[JsonValue], found: Sequence[JsonValue], path: str) -> Iterator[str]:
    for index, (left, right) in enumerate(zip(expected, found, strict=False)):
        yield from _walk(left, right, f"{path}[{index}]")
    if len(expected) > len(found):
        yield f"{path}[{len(found)}]: recorded {_short(expected[len(found)])}, now absent"
    elif len(found) > len(expected):
        yield f"{path}[{len(expected)}]: recorded absent, now {_short(found[len(expected)])}"


def _is_array(value: JsonValue) -> TypeGuard[Sequence[JsonValue]]:
    return isinstance(value, list | tuple)


def _first_difference(left: str, right: str) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(left), len(right)))


def _text(value: str, at: int) -> str:
    """A long text around the place where it differs."""
    start = max(0, at - _SHOWN // 3)
    before, after = "..." if start else "", "..." if len(value) > start + _SHOWN else ""
    return f"{before}{value[start : start + _SHOWN]!r}{after}"


def _short(value: JsonValue) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
