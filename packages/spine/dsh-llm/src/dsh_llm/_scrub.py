"""Make every string of a value encodable; what already is comes back by identity."""

from collections.abc import Iterable
from typing import TypeVar, cast

import msgspec

from dsh_brand import (
    FrozenDict,
    FrozenList,
    JsonValue,
    freeze_json,
    has_surrogates,
    scrub_surrogates,
    thaw_json,
)

T = TypeVar("T")


def scrub(value: T) -> T:
    """`value` with halves of a pair joined and lone ones replaced by U+FFFD, at every level."""
    return value if _encodes(value) else cast("T", _scrub(value))


def _encodes(value: object) -> bool:
    """Whether there is nothing to scrub, which is so for nearly everything, and cheap to see."""
    below = [value]
    for item in below:  # it grows on the way
        if type(item) is str:
            if not item.isascii() and has_surrogates(item):
                return False
        elif item is None:
            continue
        elif type(item) is tuple:
            below += item
        elif isinstance(item, msgspec.Struct):
            below += msgspec.structs.astuple(item)
        elif isinstance(item, FrozenDict | FrozenList) and _has_halves(item):
            return False
    return True


def _scrub(value: object) -> object:
    if isinstance(value, str):
        return scrub_surrogates(value)
    if isinstance(value, FrozenDict | FrozenList):
        return _scrub_json(value)
    if isinstance(value, tuple):
        items = tuple(_scrub(item) for item in value)
        return value if _same(items, value) else items
    if isinstance(value, msgspec.Struct):
        return _scrub_struct(value)
    return value


def _same(left: Iterable[object], right: Iterable[object]) -> bool:
    return all(a is b for a, b in zip(left, right, strict=True))


def _scrub_struct(value: msgspec.Struct) -> msgspec.Struct:
    changes: dict[str, object] = {}
    for name in value.__struct_fields__:
        old = getattr(value, name)
        new = _scrub(old)
        if new is not old:
            changes[name] = new
    return msgspec.structs.replace(value, **changes) if changes else value


def _scrub_json(value: FrozenDict[JsonValue] | FrozenList[JsonValue]) -> JsonValue:
    # JSON may be nested to any depth, so neither walk recurses.
    if not _has_halves(value):
        return value
    top = thaw_json(value)
    stack: list[JsonValue] = [top]
    while stack:
        target = stack.pop()
        if isinstance(target, list):
            target[:] = [_text(item) for item in target]
            stack.extend(target)
        elif isinstance(target, dict):
            items = [(scrub_surrogates(key), _text(item)) for key, item in target.items()]
            target.clear()
            target.update(items)
            stack.extend(target.values())
    return freeze_json(top)


def _text(value: JsonValue) -> JsonValue:
    return scrub_surrogates(value) if isinstance(value, str) else value


def _has_halves(value: JsonValue) -> bool:
    stack: list[JsonValue] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            if has_surrogates(item):
                return True
        elif isinstance(item, dict):
            if any(has_surrogates(key) for key in item):
                return True
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return False
