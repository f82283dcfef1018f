"""Checked, deeply frozen snapshots of payloads: what is stored is what was checked."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, Union, get_args, get_type_hints

import msgspec
from msgspec.structs import astuple

from dsh_brand import (
    MAX_SAFE_INT,
    FrozenDict,
    FrozenList,
    Json,
    JsonObject,
    NotJsonError,
    freeze_json,
)
from dsh_session._stored_stream import StoredStream
from dsh_session.events import EventData, RawData, SessionEventData

# All by exact type: what a subclass holds, nobody knows.
_PLAIN: Final = frozenset({str, bool, type(None)})
_INT: Final = frozenset({int})
_AS_IT_IS: Final = _PLAIN | {FrozenDict, FrozenList, StoredStream, msgspec.UnsetType}
"""Types of fields that are frozen already; `UNSET` stands for a field that is left out."""

_Path: TypeAlias = Union[tuple["_Path", str], None]  # noqa: UP007  # names itself as a string
"""Where a value stands: its parent's place and what to write behind it; written out for errors."""

_fields: Final[dict[type, tuple[tuple[str, bool], ...]]] = {}
"""The fields of each frozen struct class that was met, and whether they hold any JSON."""


def freeze_payload(data: EventData) -> EventData:
    """`data` itself if it is deeply frozen, else a frozen copy.

    Raises:
        NotJsonError: Something in it is no lossless JSON; `path` tells where.
    """
    try:
        if isinstance(data, RawData):
            frozen = freeze_json(data.json)
            return data if frozen is data.json else RawData(frozen)
        result = _freeze_struct(data, None)
    except RecursionError:
        raise NotJsonError("cyclic, or structs nested too deeply") from None
    assert isinstance(result, SessionEventData)
    return result


def _freeze_struct(value: msgspec.Struct, path: _Path) -> msgspec.Struct:
    fields = _fields.get(type(value)) or _look_up(type(value), path)
    changes: dict[str, object] | None = None
    index = -1
    for item in astuple(value):
        index += 1
        kind = type(item)
        if kind in _AS_IT_IS or (kind is int and -MAX_SAFE_INT <= item <= MAX_SAFE_INT):
            continue
        name, is_json = fields[index]
        frozen = freeze_json(item) if is_json else _freeze_item(item, kind, (path, name))
        if frozen is not item:
            changes = changes or {}
            changes[name] = frozen
    return msgspec.structs.replace(value, **changes) if changes else value


def _freeze_item(value: Any, kind: type, path: _Path) -> object:  # what it is, is looked at here
    if kind in _fields:
        return _freeze_struct(value, path)
    if kind is tuple or kind is list:
        return _freeze_items(value, path)
    if issubclass(kind, msgspec.Struct):
        return _freeze_struct(value, path)
    if kind is int and not -MAX_SAFE_INT <= value <= MAX_SAFE_INT:
        raise NotJsonError(f"integer {value!r} is beyond 2^53-1", _text(path))
    return freeze_json(value)


def _freeze_items(value: Sequence[Any], path: _Path) -> Sequence[object]:  # as above
    if _PLAIN.issuperset(map(type, value)) or (
        _INT.issuperset(map(type, value))
        and max(value) <= MAX_SAFE_INT
        and min(value) >= -MAX_SAFE_INT
    ):
        return tuple(value)  # a tuple gives itself
    changed = type(value) is list
    items: list[object] = []
    for item in value:
        frozen = _freeze_item(item, type(item), (path, f"[{len(items)}]"))
        changed = changed or frozen is not item
        items.append(frozen)
    return tuple(items) if changed else value


def _text(path: _Path) -> str:
    parts: list[str] = []
    while path is not None:
        path, part = path
        parts.append(part)
    return ".".join(reversed(parts)).replace(".[", "[")


def _look_up(cls: type[msgspec.Struct], path: _Path) -> tuple[tuple[str, bool], ...]:
    if not cls.__struct_config__.frozen:
        raise NotJsonError(f"a struct of type {cls.__qualname__}, which is not frozen", _text(path))
    hints = get_type_hints(cls)
    json = {Json, JsonObject}
    _fields[cls] = tuple(
        (name, bool(json & {hints[name], *get_args(hints[name])})) for name in cls.__struct_fields__
    )
    return _fields[cls]
