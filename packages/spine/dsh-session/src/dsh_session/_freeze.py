"""Checked, deeply frozen snapshots of payloads: what is stored is what was checked.

Nearly every payload is sound as it is, which a short walk can tell. What it cannot tell, a thorough
one copies, or refuses with the place of what is wrong.
"""

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
from dsh_brand.json import beyond_safe_int
from dsh_session._stored_stream import StoredStream
from dsh_session.events import EventData, RawData, SessionEventData

# All by exact type: what a subclass holds, nobody knows.
_STR: Final = frozenset({str})
_INT: Final = frozenset({int})
_PLAIN: Final = frozenset({str, bool, type(None)})
_AS_IT_IS: Final = _PLAIN | {FrozenDict, FrozenList, StoredStream, msgspec.UnsetType}
"""Types of fields that are frozen already; `UNSET` stands for a field that is left out."""

_Path: TypeAlias = Union[tuple["_Path", str], None]  # noqa: UP007  # names itself as a string
"""Where a value stands: its parent's place and what to write behind it; written out for errors."""

_fields: Final[dict[type, tuple[tuple[str, bool], ...]]] = {}
"""The fields of each frozen struct class that was met, and whether they hold any JSON."""

_quick: Final[set[type]] = set()
"""Those of them that the short walk can judge: none of their own fields holds any JSON."""


def freeze_payload(data: EventData) -> EventData:
    """`data` itself if it is deeply frozen, else a frozen copy.

    Raises:
        NotJsonError: Something in it is no lossless JSON; `path` tells where.
    """
    if type(data) in _quick and _is_sound(data):
        return data
    try:
        if isinstance(data, RawData):
            frozen = freeze_json(data.json)
            return data if frozen is data.json else RawData(frozen)
        result = _freeze_struct(data, None)
    except RecursionError:
        raise NotJsonError("cyclic, or structs nested too deeply") from None
    assert isinstance(result, SessionEventData)
    return result


def _is_sound(value: msgspec.Struct) -> bool:
    """Whether all below is deeply frozen and lossless JSON; of what is unusual it says no."""
    stack = [value]
    while stack:
        owner = stack.pop()
        for item in astuple(owner):
            kind = type(item)
            if kind is str or item is None:
                continue
            if kind is int:
                if not -MAX_SAFE_INT <= item <= MAX_SAFE_INT:
                    return False
            elif kind not in _AS_IT_IS:
                if item is getattr(owner, "extra", None):  # JSON, and no struct
                    return False
                if kind in _quick:
                    stack.append(item)
                elif kind is not tuple or (item and not _are_sound(item, stack)):
                    return False
    return True


def _are_sound(items: tuple[Any, ...], stack: list[msgspec.Struct]) -> bool:  # of any payload
    """As `_is_sound`; structs are left to the caller."""
    kind = type(items[0])
    if kind is str:
        return _STR.issuperset(map(type, items))
    if kind is int:
        return (
            _INT.issuperset(map(type, items))
            and max(items) <= MAX_SAFE_INT
            and min(items) >= -MAX_SAFE_INT
        )
    if not _quick.issuperset(map(type, items)):
        return False
    stack.extend(items)
    return True


def _freeze_struct(value: msgspec.Struct, path: _Path) -> msgspec.Struct:
    fields = _fields.get(type(value)) or _look_up(type(value), path)
    changes: dict[str, object] = {}
    for (name, is_json), item in zip(fields, astuple(value), strict=True):
        kind = type(item)
        if kind in _AS_IT_IS:
            continue
        frozen = freeze_json(item) if is_json else _freeze_item(item, kind, (path, name))
        if frozen is not item:
            changes[name] = frozen
    return msgspec.structs.replace(value, **changes) if changes else value


def _freeze_item(value: Any, kind: type, path: _Path) -> object:  # what it is, is looked at here
    if kind is tuple or kind is list:
        return _freeze_items(value, path)
    if issubclass(kind, msgspec.Struct):
        sound = kind in _quick and _is_sound(value)
        return value if sound else _freeze_struct(value, path)
    if kind is int and not -MAX_SAFE_INT <= value <= MAX_SAFE_INT:
        raise NotJsonError(beyond_safe_int(value), _text(path))
    return freeze_json(value)


def _freeze_items(value: Sequence[object], path: _Path) -> Sequence[object]:
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
    if all(name == "extra" for name, is_json in _fields[cls] if is_json):
        _quick.add(cls)
    return _fields[cls]
