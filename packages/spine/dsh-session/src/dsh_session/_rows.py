"""Stored rows through one typed decoder: a union of row classes, one for each payload class.

A row class takes only what a sound event of its type has, so that what decodes needs few further
checks. What does not decode may still be sound (unknown types and fields, half characters, odd
numbers), and takes the exact path of `codec`.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, Union

import msgspec
from msgspec import UnsetType

from dsh_llm import Message, TokenUsage
from dsh_session._stored_stream import StoredStream, freeze_hook
from dsh_session.checks import PAYLOAD_CHECKS, PayloadCheck, check_event
from dsh_session.events import (
    AssistantAttempt,
    AssistantMessageEvent,
    ReplaceOp,
    SessionEvent,
    SessionEventData,
    UserMessageEvent,
)
from dsh_session.integers import MAX_SAFE_INT
from dsh_session.seqs import decode_seq_ranges
from dsh_session.vocabulary import (
    RETIRED_SESSION_EVENT_TYPES,
    registered_classes,
    watch_registrations,
)

_DOLLAR: Final = ord("$")
_BRACKET: Final = ord("[")

_Seq = Annotated[int, msgspec.Meta(ge=0, le=MAX_SAFE_INT)]
_Time = Annotated[int, msgspec.Meta(ge=-MAX_SAFE_INT, le=MAX_SAFE_INT)]
_Cited = tuple[int | tuple[int, ...], ...]
_Build: TypeAlias = Callable[[Any], SessionEventData | None]  # from data of the row class


def decode_row(data: bytes) -> SessionEvent | None:
    """The checked event of a stored row, or `None` if only the exact path can tell.

    Raises:
        InvalidEventError: A rule for single events is broken.
    """
    if _DOLLAR in data and b'"$extra$":' in data:  # a number is sought much faster than bytes
        return None
    try:
        row = _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    name, plain, build, check = _decoder.shapes[type(row)]
    if plain and row.ignorable is None:
        return SessionEvent(type=name, seq=row.seq, time=row.time, data=row.data)
    payload = row.data
    if build is not None:
        payload = build(payload)
        # Inside a stream nobody looked at the characters.
        if payload is None or not (data.isascii() or _is_utf8(data)):
            return None
    op = row.surface_op
    if row.source_event_seqs is not None or row.ignorable is not None or type(op) is ReplaceOp:
        return _unusual(row, name, payload)
    event = SessionEvent(type=name, seq=row.seq, time=row.time, data=payload, surface_op=op)
    if check is not None:
        check(event, payload)
    return event


def _unusual(row: Any, name: str, payload: SessionEventData) -> SessionEvent | None:  # any row
    cited = None
    if row.ignorable is False:
        return None
    if row.source_event_seqs is not None:
        try:
            cited = decode_seq_ranges(row.source_event_seqs, row.seq)
        except ValueError:
            return None
    event = SessionEvent(
        type=name,
        seq=row.seq,
        time=row.time,
        data=payload,
        source_event_seqs=cited,
        surface_op=row.surface_op,
        ignorable=row.ignorable is True,
    )
    check_event(event)
    return event


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class _Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The data of an `AssistantAttempt`, its stream not looked into."""

    turn: int
    step: int
    stream: msgspec.Raw


class _Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The data of an `AssistantMessageEvent`, its stream not looked into."""

    turn: int
    step: int
    message: Message
    stream: msgspec.Raw
    usage: TokenUsage | None = None
    interrupted: bool | None = None


def _attempt(data: _Attempt) -> AssistantAttempt | None:
    text = bytes(data.stream)
    if text[0] != _BRACKET:
        return None
    return AssistantAttempt(turn=data.turn, step=data.step, stream=StoredStream(text))


def _answer(data: _Answer) -> AssistantMessageEvent | None:
    text = bytes(data.stream)
    if text[0] != _BRACKET:
        return None
    return AssistantMessageEvent(
        turn=data.turn,
        step=data.step,
        message=data.message,
        stream=StoredStream(text),
        usage=data.usage,
        interrupted=data.interrupted,
    )


_DATA: Final[dict[type[SessionEventData], tuple[type, _Build]]] = {
    UserMessageEvent: (Message, lambda message: UserMessageEvent(message=message)),
    AssistantMessageEvent: (_Answer, _answer),
    AssistantAttempt: (_Attempt, _attempt),
}
"""Payload classes whose data is decoded as something else first."""


class _Shape(NamedTuple):
    """What a row class stands for."""

    name: str
    plain: bool
    """What decodes is the payload of a log-only event, with nothing left to check."""
    build: _Build | None
    check: PayloadCheck | None


def _shape(name: str, cls: type[SessionEventData]) -> _Shape:
    build = _DATA[cls][1] if cls in _DATA else None
    check = PAYLOAD_CHECKS.get(cls)
    return _Shape(name, not cls.surface and build is None and check is None, build, check)


class _RowDecoder:
    """The typed decoder of the classes that are registered now."""

    def __init__(self) -> None:
        self.shapes: dict[type, _Shape] = {}
        self.decode: Callable[[bytes], Any] = self._build  # the rows are made at run time
        watch_registrations(self._forget)

    def _forget(self) -> None:
        self.decode = self._build

    def _build(self, data: bytes) -> Any:  # as above
        self.shapes = {
            _row_class(name, cls): _shape(name, cls)
            for name, cls in registered_classes().items()
            if name not in RETIRED_SESSION_EVENT_TYPES
        }
        kind: Any = Union.__getitem__(tuple(self.shapes))  # a union of classes made just now
        self.decode = msgspec.json.Decoder(kind, dec_hook=freeze_hook).decode
        return self.decode(data)


_decoder = _RowDecoder()


def _row_class(name: str, cls: type[SessionEventData]) -> type[msgspec.Struct]:
    """A row of that type; keys that such an event cannot have are none of its fields."""
    fields: list[tuple[str, Any, Any] | tuple[str, Any]] = [  # annotation forms, as msgspec has it
        ("seq", _Seq),
        ("time", _Time),
        ("data", _DATA[cls][0] if cls in _DATA else cls),
        ("ignorable", bool | UnsetType, None),
    ]
    if cls.surface:
        fields.append(("surface_op", Literal["append"] | ReplaceOp))
        if cls is not AssistantMessageEvent:
            fields.append(("source_event_seqs", _Cited | UnsetType, None))
    present = {field[0] for field in fields}
    return msgspec.defstruct(
        f"Row_{cls.__name__}",
        fields,
        namespace={key: None for key in ("surface_op", "source_event_seqs") if key not in present},
        tag_field="type",
        tag=name,
        rename="camel",
        forbid_unknown_fields=True,
        kw_only=True,
        gc=False,
    )
