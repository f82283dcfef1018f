"""Typed payloads from JSON, where parts that no class can hold stay as they were found.

A stored log is judged by the few rules of `checks`, and by nothing beyond them: a broken content
block or stream record is no reason to refuse it.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from dsh_brand import JsonValue, Wire, freeze_object, from_json, replace
from dsh_llm import Block, Message, OpaqueBlock
from dsh_llm.records import OpaqueRecord, StreamRecordBase
from dsh_session.events import (
    SURFACE_EVENT_TYPES,
    AssistantAttempt,
    AssistantMessageEvent,
    SessionEventData,
    UserMessageEvent,
)

W = TypeVar("W", bound=Wire)

_HAVE_STREAM: Final = (AssistantMessageEvent, AssistantAttempt)


def typed_payload(cls: type[SessionEventData], value: JsonValue) -> SessionEventData:
    """A payload of that class from frozen JSON.

    Raises:
        ValueError: The class cannot hold it.
    """
    if cls is UserMessageEvent:
        return UserMessageEvent(message=_message(value))
    try:
        return from_json(cls, value, "data")
    except ValueError:
        if not isinstance(value, Mapping):
            raise
        return _piecewise(cls, value)


def _piecewise(cls: type[SessionEventData], value: Mapping[str, JsonValue]) -> SessionEventData:
    """The payload with its message and its stream read part by part."""
    changes: dict[str, object] = {}
    plain = dict(value)
    if issubclass(cls, _HAVE_STREAM) and isinstance(value.get("stream"), list):
        changes["stream"] = _parts(value["stream"], StreamRecordBase, OpaqueRecord, "data.stream")
        plain["stream"] = []
    message = value.get("message")
    if cls.type in SURFACE_EVENT_TYPES and isinstance(message, Mapping):
        changes["message"] = _message(message)
        plain["message"] = {**message, "content": []}
    return replace(from_json(cls, plain, "data"), **changes)


def _message(value: JsonValue) -> Message:
    try:
        return from_json(Message, value, "data.message")
    except ValueError:
        if not isinstance(value, Mapping) or not isinstance(value.get("content"), list):
            raise
        content = _parts(value["content"], Block, OpaqueBlock, "data.message.content")
        empty = from_json(Message, {**value, "content": []}, "data.message")
        return replace(empty, content=content)


def _parts(values: object, kind: type[W], opaque: Callable[..., W], path: str) -> tuple[W, ...]:
    assert isinstance(values, list)
    return tuple(_part(value, kind, opaque, f"{path}[{i}]") for i, value in enumerate(values))


def _part(value: JsonValue, kind: type[W], opaque: Callable[..., W], path: str) -> W:
    try:
        return from_json(kind, value, path)
    except ValueError:
        if not isinstance(value, Mapping):
            raise
        return opaque(extra=freeze_object(value))
