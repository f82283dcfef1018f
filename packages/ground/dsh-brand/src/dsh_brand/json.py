"""Lossless JSON: what may be stored, frozen copies of it, and text as JavaScript writes it.

Every function takes values nested to any depth that memory allows, `freeze_json` up to `MAX_DEPTH`.
"""

import json as _stdlib
import math
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, cast

import msgspec

from dsh_brand import _jsontext
from dsh_brand.errors import HarnessError
from dsh_brand.frozen import FrozenDict, FrozenList
from dsh_brand.text import has_surrogates

JsonValue: TypeAlias = (
    "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
)
"""Any JSON value, read-only."""

MAX_SAFE_INT: Final = 2**53 - 1
MAX_DEPTH: Final = 10_000
"""Deepest nesting that is frozen; a cycle runs into it."""

_Container: TypeAlias = FrozenDict[object] | FrozenList[object]
_put = dict.__setitem__
_add = list.append


class NotJsonError(HarnessError, ValueError):
    """A value that JSON cannot hold without loss.

    Attributes:
        path: Where in the value, like ``items[0].name``; empty for the value itself.
    """

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(
            f"not lossless JSON{f' at {path!r}' if path else ''}: {reason}", "NOT_JSON"
        )
        self.path = path


class _Freezer:
    """One traversal that checks and copies. Holds the options, so that the walk stays small."""

    __slots__ = ("loading", "stack", "surrogates", "tuples")

    def __init__(self, *, tuples: bool, surrogates: bool, loading: bool) -> None:
        self.tuples = tuples
        self.surrogates = surrogates
        self.loading = loading
        self.stack: list[tuple[object, _Container, int, str]] = []

    def run(self, value: object) -> JsonValue:
        result = self.enter(value, 0, "", None)
        while self.stack:
            source, target, depth, path = self.stack.pop()
            if isinstance(target, FrozenDict):
                self.fill_object(cast("dict[object, object]", source), target, depth, path)
            else:
                for index, item in enumerate(cast("Sequence[object]", source)):
                    _add(cast("list[object]", target), self.enter(item, depth, path, index))
        return cast("JsonValue", result)

    def fill_object(
        self, source: dict[object, object], target: FrozenDict[object], depth: int, path: str
    ) -> None:
        for key, item in source.items():
            if type(key) is not str:
                raise NotJsonError(f"key {key!r} is no string", path)
            if not self.surrogates and has_surrogates(key):
                raise NotJsonError(f"key {key!r} holds half a surrogate pair", path)
            _put(target, key, self.enter(item, depth, path, key))

    def enter(self, value: object, depth: int, path: str, key: str | int | None) -> object:
        kind = type(value)
        if kind is str:
            if not self.surrogates and has_surrogates(cast("str", value)):
                raise NotJsonError(f"{value!r} holds half a surrogate pair", _at(path, key))
            return value
        if value is None or kind is bool:
            return value
        if kind is int or kind is float:
            try:
                return self.number(cast("int | float", value))
            except ValueError as error:
                raise NotJsonError(str(error), _at(path, key)) from None
        return self.container(value, depth, _at(path, key))

    def container(self, value: object, depth: int, path: str) -> _Container:
        kind = type(value)
        if (kind is FrozenDict or kind is FrozenList) and self.surrogates:
            return cast("_Container", value)
        target: _Container
        if kind is dict or kind is FrozenDict:
            target = FrozenDict.__new__(FrozenDict)
        elif kind is list or kind is FrozenList or (kind is tuple and self.tuples):
            target = FrozenList.__new__(FrozenList)
        else:
            raise NotJsonError(f"a value of type {kind.__qualname__}", path)
        if depth >= MAX_DEPTH:
            raise NotJsonError(f"cyclic, or nested deeper than {MAX_DEPTH} levels")
        self.stack.append((value, target, depth + 1, path))
        return target

    def number(self, value: float) -> int | float:
        if type(value) is int:
            if -MAX_SAFE_INT <= value <= MAX_SAFE_INT:
                return value
            if not self.loading:
                raise ValueError(beyond_safe_int(value))
            value = _jsontext.double_of(value)
        if not math.isfinite(value):
            raise ValueError(f"number {value!r}")
        if value == 0 and math.copysign(1, value) < 0 and not self.loading:
            raise ValueError("number -0.0")
        if abs(value) <= MAX_SAFE_INT and value.is_integer():
            return int(value)
        if _jsontext.is_odd(value):
            _jsontext.note_odd_float()
        return value


def beyond_safe_int(value: int) -> str:
    """Why an integer beyond 2^53-1 is refused, in words."""
    bits = value.bit_length()
    # Python refuses to write integers of thousands of digits.
    return f"integer {value if bits < 1_000 else f'of {bits} bits'} is beyond 2^53-1"


def _at(path: str, key: str | int | None) -> str:
    if key is None:
        return path
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def freeze_json(
    value: object, *, tuples: bool = True, surrogates: bool = True, loading: bool = False
) -> JsonValue:
    """Check `value` and copy it into frozen containers, in one traversal.

    Each part is read once, and what is returned is what was checked. Containers made here before
    pass by identity. A float without a fraction becomes an `int`: JSON does not tell them apart.

    Args:
        value: Plain builtins: `None`, `bool`, `int`, `float`, `str`, `list`, `dict`.
        tuples: Accept tuples as arrays.
        surrogates: Accept strings that hold half a surrogate pair.
        loading: `value` was read from JSON text: integers beyond 2^53-1 take double semantics,
            -0 is 0.

    Raises:
        NotJsonError: Anything else; `path` tells where.
    """
    return _Freezer(tuples=tuples, surrogates=surrogates, loading=loading).run(value)


def freeze_object(value: Mapping[str, object], *, loading: bool = False) -> FrozenDict[JsonValue]:
    """`freeze_json` for an object.

    Raises:
        NotJsonError: Not a JSON object.
    """
    frozen = freeze_json(value, loading=loading)
    if not isinstance(frozen, FrozenDict):
        raise NotJsonError(f"an object was expected, not {type(value).__qualname__}")
    return cast("FrozenDict[JsonValue]", frozen)


def is_json(value: object) -> bool:
    """True if `freeze_json` accepts `value`."""
    try:
        freeze_json(value)
    except NotJsonError:
        return False
    return True


def thaw_json(value: JsonValue) -> JsonValue:
    """A copy in plain `dict` and `list`, free to change."""
    top: list[JsonValue] = [value]
    stack: list[object] = [top]
    while stack:
        target = stack.pop()
        if isinstance(target, list):
            for index, item in enumerate(target):
                target[index] = _thawed(item, stack)
        elif isinstance(target, dict):
            for key, item in target.items():
                target[key] = _thawed(item, stack)
    return top[0]


def _thawed(value: JsonValue, stack: list[object]) -> JsonValue:
    if isinstance(value, Mapping):
        copy: dict[str, JsonValue] | list[JsonValue] = dict(value)
    elif isinstance(value, list | tuple):
        copy = list(value)
    else:
        return value
    stack.append(copy)
    return copy


def json_equal(left: JsonValue, right: JsonValue) -> bool:
    """True if the JSON texts of both mean the same.

    ``1`` and ``true`` differ, ``1`` and ``1.0`` agree, the order of keys is irrelevant.
    """
    stack: list[tuple[JsonValue, JsonValue]] = [(left, right)]
    while stack:
        a, b = stack.pop()
        if a is b:
            continue
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            if a.keys() != b.keys():
                return False
            stack.extend((item, b[key]) for key, item in a.items())
        elif isinstance(a, list | tuple) and isinstance(b, list | tuple):
            if len(a) != len(b):
                return False
            stack.extend(zip(a, b, strict=True))
        elif isinstance(a, bool) or isinstance(b, bool) or not _same_scalar(a, b):
            return False
    return True


def _same_scalar(left: JsonValue, right: JsonValue) -> bool:
    if isinstance(left, int | float) and isinstance(right, int | float):
        # An integer beyond 2^53 means the double next to it.
        return left == right or _jsontext.double_of(left) == _jsontext.double_of(right)
    return left == right


def encode_json(value: JsonValue) -> bytes:
    """Compact UTF-8 text; numbers as JavaScript prints them, half pairs as escapes.

    Raises:
        NotJsonError: The value is no JSON.
    """
    return _jsontext.write(freeze_json(value))


def decode_json(data: bytes | str) -> JsonValue:
    """Read JSON text into plain `dict` and `list`.

    Bare ``NaN`` and ``Infinity`` are refused; a number too large for a double reads as infinity;
    half pairs are kept.

    Raises:
        ValueError: Not JSON, and the message tells the position; or an integer of thousands of
            digits, which most readers refuse.
    """
    try:
        return cast("JsonValue", msgspec.json.decode(data))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        pass  # half pairs, overflowing numbers and deep nesting are for the slower readers
    text = data if isinstance(data, str) else data.decode("utf-8")
    try:
        value = _stdlib.loads(
            text, parse_constant=_jsontext.refuse_constant, parse_int=_jsontext.integer_of
        )
        return cast("JsonValue", value)
    except RecursionError:
        return cast("JsonValue", _jsontext.read_deep(text))
