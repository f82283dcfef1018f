"""Checked, deeply frozen snapshots of payloads: what is stored is what was checked."""

from functools import cache
from typing import Final, get_args, get_type_hints

import msgspec

from dsh_brand import (
    MAX_SAFE_INT,
    FrozenDict,
    FrozenList,
    Json,
    JsonObject,
    NotJsonError,
    freeze_json,
)
from dsh_session.events import EventData, RawData, SessionEventData

_PLAIN: Final = frozenset({str, bool, type(None)})
_FROZEN: Final = frozenset({FrozenDict, FrozenList})


def freeze_payload(data: EventData) -> EventData:
    """`data` itself if it is deeply frozen, else a frozen copy.

    Raises:
        NotJsonError: Something in it is no lossless JSON; `path` tells where.
    """
    try:
        if isinstance(data, RawData):
            frozen = freeze_json(data.json)
            return data if frozen is data.json else RawData(frozen)
        result = _freeze_struct(data, "")
    except RecursionError:
        raise NotJsonError("cyclic, or structs nested too deeply") from None
    assert isinstance(result, SessionEventData)
    return result


def _freeze_struct(value: msgspec.Struct, path: str) -> msgspec.Struct:
    cls = type(value)
    if not cls.__struct_config__.frozen:
        raise NotJsonError(f"a struct of type {cls.__qualname__}, which is not frozen", path)
    changes: dict[str, object] = {}
    json_fields = _json_fields(cls)
    for name in cls.__struct_fields__:
        item = getattr(value, name)
        kind = type(item)
        if kind in _PLAIN or item is msgspec.UNSET:
            continue
        if name in json_fields:
            frozen: object = freeze_json(item)
        else:
            frozen = _freeze_item(item, f"{path}.{name}" if path else name)
        if frozen is not item:
            changes[name] = frozen
    return msgspec.structs.replace(value, **changes) if changes else value


def _freeze_item(value: object, path: str) -> object:
    kind = type(value)
    if kind in _PLAIN or kind in _FROZEN:
        return value
    if kind is int:
        if -MAX_SAFE_INT <= value <= MAX_SAFE_INT:  # type: ignore[operator]  # `kind` says int
            return value
        raise NotJsonError(f"integer {value!r} is beyond 2^53-1", path)
    if kind is tuple or kind is list:
        return _freeze_items(value, path)  # type: ignore[arg-type]  # `kind` says tuple or list
    if isinstance(value, msgspec.Struct):
        return _freeze_struct(value, path)
    return freeze_json(value)


def _freeze_items(value: tuple[object, ...] | list[object], path: str) -> tuple[object, ...]:
    kinds = set(map(type, value))
    if kinds <= _PLAIN or (kinds == {int} and _all_safe(value)):
        return value if type(value) is tuple else tuple(value)
    items = tuple(_freeze_item(item, f"{path}[{index}]") for index, item in enumerate(value))
    if type(value) is tuple and all(map(_same, items, value)):
        return value
    return items


def _all_safe(value: tuple[object, ...] | list[object]) -> bool:
    return max(value) <= MAX_SAFE_INT and min(value) >= -MAX_SAFE_INT  # type: ignore[type-var, operator]  # the caller saw that all are int


def _same(left: object, right: object) -> bool:
    return left is right


@cache
def _json_fields(cls: type[msgspec.Struct]) -> frozenset[str]:
    hints = get_type_hints(cls)
    return frozenset(
        name for name in cls.__struct_fields__ if _JSON & {hints[name], *get_args(hints[name])}
    )


_JSON: Final[frozenset[object]] = frozenset({Json, JsonObject})
