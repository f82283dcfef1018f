"""Events as JSON and as stored rows.

A stored row is read by `_rows` where that can tell, else on the exact path, which stands here.
"""

from collections.abc import Mapping
from typing import Final, cast

import msgspec

from dsh_brand import (
    JsonObject,
    JsonValue,
    NotJsonError,
    Wire,
    decode_json,
    encode,
    freeze_json,
    freeze_object,
    to_json,
)
from dsh_llm import Message
from dsh_session._rows import decode_row
from dsh_session._tolerant import typed_payload
from dsh_session.checks import check_event, check_stored_event
from dsh_session.errors import InvalidEventError
from dsh_session.events import (
    SURFACE_EVENT_TYPES,
    EventData,
    RawData,
    ReplaceOp,
    SessionEvent,
    SurfaceOp,
    ToolResultEvent,
    UserMessageEvent,
)
from dsh_session.integers import as_integer
from dsh_session.seqs import decode_seq_ranges, encode_seq_ranges
from dsh_session.vocabulary import (
    is_known_event_type,
    registered_class,
)

_KEYS: Final = frozenset(
    ["type", "seq", "time", "data", "sourceEventSeqs", "surfaceOp", "ignorable"]
)


class _Row(Wire, frozen=True, kw_only=True):
    """What an event is on disk; the order of the fields is the order of the keys."""

    type: str
    seq: int
    time: int
    data: object
    source_event_seqs: object = None
    surface_op: SurfaceOp | None = None
    ignorable: bool = False


class _ToolMessage(Wire, frozen=True, kw_only=True):
    """A tool message in the key order of the shared format."""

    id: object
    role: object
    source: object
    tool_call_id: object
    content: object
    is_error: object = None


class _ToolResultData(Wire, frozen=True, kw_only=True):
    turn: int
    step: int
    message: _ToolMessage
    error: object = None
    meta: object = msgspec.UNSET


def data_to_json(data: EventData) -> JsonValue:
    """The payload as the builtins that are stored."""
    return to_json(_wire(data))


def event_to_json(event: SessionEvent) -> dict[str, JsonValue]:
    """The event as JSON builtins, cited seqs in full."""
    return cast("dict[str, JsonValue]", to_json(_row(event, event.source_event_seqs)))


def encode_event(event: SessionEvent) -> bytes:
    """The event as a stored row, without a line end; cited seqs in storage form."""
    cited = event.source_event_seqs
    return encode(_row(event, None if cited is None else encode_seq_ranges(cited)))


def _row(event: SessionEvent, cited: object) -> _Row:
    return _Row(
        type=event.type,
        seq=event.seq,
        time=event.time,
        data=_wire(event.data),
        source_event_seqs=cited,
        surface_op=event.surface_op,
        ignorable=event.ignorable,
        extra=event.opaque,
    )


def _wire(data: EventData) -> object:
    if isinstance(data, RawData):
        return data.json
    if isinstance(data, UserMessageEvent):
        return data.message
    if isinstance(data, ToolResultEvent):
        return _ToolResultData(
            turn=data.turn,
            step=data.step,
            message=_tool_message(data.message),
            error=data.error,
            meta=data.meta,
            extra=data.extra,
        )
    return data


def _tool_message(message: Message) -> _ToolMessage:
    return _ToolMessage(
        id=message.id,
        role=message.role,
        source=message.source,
        tool_call_id=message.tool_call_id,
        content=message.content,
        is_error=message.is_error,
        extra=message.extra,
    )


def decode_event(data: bytes) -> SessionEvent:
    """Read a stored row; an unknown type is kept as it is.

    Raises:
        InvalidEventError: Not JSON, not an event, or a rule for single events is broken.
        UnsupportedEventError: It needs a message projection that this build does not have.
    """
    return decode_row(data) or _decode_exactly(data)


def decode_stored_event(data: bytes) -> SessionEvent:
    """As `decode_event`, and refuse a required event of an unknown or retired type.

    Raises:
        InvalidEventError: As `decode_event`.
        UnsupportedEventError: This build may not read past the event.
    """
    event = decode_row(data)
    if event is None:
        event = _decode_exactly(data)
        check_stored_event(event)
    return event


def _decode_exactly(data: bytes) -> SessionEvent:
    try:
        value = decode_json(data)
    except ValueError as error:
        raise InvalidEventError(f"not JSON: {error}", cause=error) from None
    return event_from_json(value, loading=True)


def event_from_json(value: object, *, loading: bool = False) -> SessionEvent:
    """Build an event from JSON builtins and check it.

    Args:
        value: The event's object.
        loading: It was read from JSON text, so that ``3.0`` is 3, and cited seqs may be ranges.

    Raises:
        InvalidEventError: Not an event, or a rule for single events is broken.
        UnsupportedEventError: It needs a message projection that this build does not have.
    """
    event = _parse(value, loading=loading)
    check_event(event)
    return event


def _parse(value: object, *, loading: bool) -> SessionEvent:
    if not isinstance(value, Mapping):
        raise InvalidEventError(f"an event is an object, not {type(value).__name__}")
    name, seq = value.get("type"), as_integer(value.get("seq"))
    if type(name) is not str or not name:
        raise InvalidEventError(f"type must be a non-empty string, not {name!r}", seq=seq)
    time = as_integer(value.get("time"))
    unknown = sorted(str(key) for key in value if key not in _KEYS)
    if unknown:
        raise InvalidEventError(f"an event has no keys {unknown}", event_type=name, seq=seq)
    if seq is None or seq < 0 or time is None or "data" not in value:
        reason = "seq, time and data must be there, and seq a non-negative integer"
        raise InvalidEventError(reason, event_type=name, seq=seq)
    if value.get("ignorable", True) is not True:
        raise InvalidEventError("ignorable is true or left out", event_type=name, seq=seq)
    try:
        return _assemble(value, name, seq, time, loading=loading)
    except InvalidEventError:
        raise
    except ValueError as error:  # wrong shapes of the payload and of cited seqs, and NotJsonError
        raise InvalidEventError(str(error), event_type=name, seq=seq, cause=error) from None


def _assemble(
    value: Mapping[str, object], name: str, seq: int, time: int, *, loading: bool
) -> SessionEvent:
    ignorable = "ignorable" in value
    opaque: JsonObject | None = None
    cited: tuple[int, ...] | None = None
    op: SurfaceOp | None = None
    if ignorable and not is_known_event_type(name):
        kept = {key: value[key] for key in ("sourceEventSeqs", "surfaceOp") if key in value}
        opaque = freeze_object(kept, loading=loading) if kept else None
    else:
        if "sourceEventSeqs" in value:
            cited = decode_seq_ranges(value["sourceEventSeqs"], seq, ranges=loading)
        if "surfaceOp" in value:
            op = _parse_op(value["surfaceOp"])
    return SessionEvent(
        type=name,
        seq=seq,
        time=time,
        data=data_from_json(name, value["data"], loading=loading),
        source_event_seqs=cited,
        surface_op=op,
        ignorable=ignorable,
        opaque=opaque,
    )


def _parse_op(value: object) -> SurfaceOp:
    if value == "append" and type(value) is str:
        return "append"
    if isinstance(value, Mapping) and value.keys() == {"op", "startSeq", "endSeq"}:
        start, end = as_integer(value["startSeq"]), as_integer(value["endSeq"])
        if value["op"] == "replace" and start is not None and end is not None:
            return ReplaceOp(start_seq=start, end_seq=end)
    raise ValueError(
        f"surfaceOp must be 'append' or {{op: 'replace', startSeq, endSeq}}, not {value!r}"
    )


def data_from_json(event_type: str, value: object, *, loading: bool = False) -> EventData:
    """The payload of an event from JSON builtins, in its class where that can hold it.

    Raises:
        NotJsonError: No lossless JSON.
        ValueError: A surface event whose shape is wrong.
    """
    cls = registered_class(event_type)
    frozen = freeze_json(value, loading=loading)
    if cls is None:
        return RawData(frozen)
    try:
        return typed_payload(cls, frozen)
    except NotJsonError:
        raise
    except ValueError:
        if event_type in SURFACE_EVENT_TYPES:
            raise
        return RawData(frozen)
