"""Session events: the payload classes and the event that carries one.

A payload's class is the event's type: ``session.append(TurnStart(turn=1))``, and a reader says
``match event.data: case TurnStart(turn=n)``. Upstream: packages/session/session/src/types.ts.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias, TypeVar

import msgspec

from dsh_brand import Json, JsonObject, JsonValue, Wire
from dsh_llm import AdapterDefaults, CallId, LlmCallConfig, Message, StreamRecord, TokenUsage
from dsh_llm import ToolSchema as ToolSchema
from dsh_session.reasons import EndReason

P = TypeVar("P", bound="SessionEventData")


if TYPE_CHECKING:  # the decoder makes a tuple; of a stored attempt it is one that is read late
    StreamRecords: TypeAlias = Sequence[StreamRecord]
else:
    StreamRecords = tuple[StreamRecord, ...]


class SessionEventData(Wire, frozen=True, kw_only=True, gc=False):
    """Base of the payloads. A subclass names its event in `type` and is registered once.

    Payloads are JSON, which has no cycles: the collector of garbage passes them by.
    """

    type: ClassVar[str]
    surface: ClassVar[bool] = False
    """The event takes part in the surface; the set of these types is closed."""
    projects: ClassVar[bool] = False
    """The event changes messages before it; see `SessionMessageProjection`."""


class RawData(msgspec.Struct, frozen=True, gc=False):
    """The payload of an event whose type nobody registered, or that its class cannot hold."""

    projects: ClassVar[bool] = False
    json: JsonValue


EventData: TypeAlias = SessionEventData | RawData


class ReplaceOp(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    tag_field="op",
    tag="replace",
    forbid_unknown_fields=True,
    gc=False,
):
    """The event takes the place of the surface nodes from one to the other, both included."""

    start_seq: int
    end_seq: int


SurfaceOp: TypeAlias = Literal["append"] | ReplaceOp


class SessionEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event of a log, deeply immutable."""

    type: str
    seq: int
    """Index in the log."""
    time: int
    """Unix epoch milliseconds; need not increase."""
    data: EventData
    source_event_seqs: tuple[int, ...] | None = None
    """Earlier events that this one is made from."""
    surface_op: SurfaceOp | None = None
    ignorable: bool = False
    """A reader that does not know the type may skip the event."""
    opaque: JsonObject | None = None
    """Surface keys of an unknown ignorable event: kept, never looked at."""


class TurnStart(SessionEventData, frozen=True, kw_only=True):
    """A turn begins; turns count from 1."""

    type: ClassVar[str] = "turn/start"
    turn: int
    """Number of the turn, from 1."""


class TurnEnd(SessionEventData, frozen=True, kw_only=True):
    """A turn is over, with the reason."""

    type: ClassVar[str] = "turn/end"
    turn: int
    """Number of the turn, from 1."""
    reason: EndReason
    """Why it ended."""


class StepStart(SessionEventData, frozen=True, kw_only=True):
    """A step begins: one model attempt that is kept, and its tools. Steps restart at 1."""

    type: ClassVar[str] = "step/start"
    turn: int
    """Number of the turn, from 1."""
    step: int
    """Number of the step within the turn, from 1."""


class StepEnd(SessionEventData, frozen=True, kw_only=True):
    """A step is over; every call of it has its result."""

    type: ClassVar[str] = "step/end"
    turn: int
    """Number of the turn, from 1."""
    step: int
    """Number of the step within the turn, from 1."""


class SystemMessageEvent(SessionEventData, frozen=True, kw_only=True):
    """A system prompt; the first surface node of a session is one."""

    type: ClassVar[str] = "system/message"
    surface: ClassVar[bool] = True
    turn: int
    """Number of the turn, from 1."""
    step: int
    """Number of the step within the turn, from 1."""
    message: Message
    """The prompt; without a block when it is empty."""


class DeveloperMessageEvent(SessionEventData, frozen=True, kw_only=True):
    """A change of the tools in the middle of a series."""

    type: ClassVar[str] = "developer/message"
    surface: ClassVar[bool] = True
    turn: int
    """Number of the turn, from 1."""
    step: int
    """Number of the step within the turn, from 1."""
    message: Message
    """Names the added and removed tools."""
    header_seq: int | None = None
    """Seq of the header that defines the added tools; present exactly with an addition."""


class UserMessageEvent(SessionEventData, frozen=True, kw_only=True):
    """A user message. In JSON the data is the message itself."""

    type: ClassVar[str] = "user/message"
    surface: ClassVar[bool] = True
    message: Message
    """The message, from a person or from a producer of the harness."""


class AssistantMessageEvent(SessionEventData, frozen=True, kw_only=True):
    """A model attempt that entered the history, with its whole stream."""

    type: ClassVar[str] = "assistant/message"
    surface: ClassVar[bool] = True
    turn: int
    """Number of the turn, from 1."""
    step: int
    """Number of the step within the turn, from 1."""
    message: Message
    """What entered the history."""
    stream: StreamRecords
    """Everything the model streamed, with its times."""
    usage: TokenUsage | None = None
    """Tokens of the attempt; outranks usage inside the stream."""
    interrupted: bool | None = None
    """True, or absent: the visible prefix of an attempt that was cancelled."""


class AssistantAttempt(SessionEventData, frozen=True, kw_only=True):
    """A model attempt that left no message: failed, retried or cancelled."""

    type: ClassVar[str] = "assistant/attempt"
    turn: int
    """Number of the turn, from 1."""
    step: int
    """Number of the step within the turn, from 1."""
    stream: StreamRecords
    """Everything the model streamed, with its times."""


class ToolCallEvent(SessionEventData, frozen=True, kw_only=True):
    """A tool call is dispatched; written before its body runs."""

    type: ClassVar[str] = "tool/call"
    turn: int
    """Number of the turn, from 1."""
    step: int
    """Number of the step within the turn, from 1."""
    call_id: CallId
    """The model's id of the call, unique in the session."""
    name: str
    """The tool that the model asked for; it may not exist."""
    arguments: str
    """The text the model wrote, never parsed."""


class ToolErrorInfo(Wire, frozen=True, kw_only=True):
    """Why a tool call failed, for programs."""

    name: str
    code: str
    reason: str | None = None


class ToolResultEvent(SessionEventData, frozen=True, kw_only=True):
    """The result of a tool call."""

    type: ClassVar[str] = "tool/result"
    surface: ClassVar[bool] = True
    turn: int
    """Number of the turn, from 1."""
    step: int
    """Number of the step within the turn, from 1."""
    message: Message
    """The tool message that answers the call."""
    error: ToolErrorInfo | None = None
    """Why it failed, for programs; only beside a failed message."""
    meta: Json | msgspec.UnsetType = msgspec.UNSET
    """Any JSON that the tool wants to present; `UNSET` is absent, `None` is null."""


class RequestHeader(Wire, frozen=True, kw_only=True):
    """What a request is made with besides its messages."""

    config: LlmCallConfig
    adapter_defaults: AdapterDefaults | None = None
    """Which values of `config` the adapter supplied."""
    tools: tuple[ToolSchema, ...] | None = None


class RequestHeaderEvent(SessionEventData, frozen=True, kw_only=True):
    """The header of the requests from here on; a whole snapshot."""

    type: ClassVar[str] = "request/header"
    header: RequestHeader
    """Configuration and tools."""
    reason: Literal["initial", "resume", "change", "series"]
    """First header, resumed session, changed header, or a new message series."""
    starts_series: bool | None = None
    """True, or absent: a message series begins with the same request."""


class RequestContext(SessionEventData, frozen=True, kw_only=True):
    """Facts of the model behind the requests from here on."""

    type: ClassVar[str] = "request/context"
    provider: str
    """Route of the requests."""
    model: str
    """Model id on that route."""
    context_window: int | None = None
    """In tokens, where the adapter knows it."""
    system_prompt_update: Literal["in-history"] | None = None
    """How the model takes a changed prompt; absent: at the head only."""


class EndSeed(SessionEventData, frozen=True, kw_only=True):
    """Separates what a session was given from what it does itself."""

    type: ClassVar[str] = "session/end-seed"
    inherited: bool | None = None
    """True, or absent: the events before are a fork prefix."""


class TodoItem(Wire, frozen=True, kw_only=True):
    """One entry of a todo list."""

    content: str
    status: str


class TodoWrite(SessionEventData, frozen=True, kw_only=True):
    """The whole todo list; the last one counts."""

    type: ClassVar[str] = "todo/write"
    todos: tuple[TodoItem, ...]
    """The list, in order."""


class ModelSelectionEvent(SessionEventData, frozen=True, kw_only=True):
    """The model that the next turn uses."""

    type: ClassVar[str] = "model/selection"
    provider: str
    """Route of the chosen model."""
    model: str
    """Model id on that route."""
    reasoning_effort: str | None = None
    """Effort that was asked for; absent: the route's default."""


class InboxSpliced(SessionEventData, frozen=True, kw_only=True):
    """A change of one inbox queue: entries removed at `start`, then others inserted there."""

    type: ClassVar[str] = "agent/inbox/spliced"
    target: Literal["next-turn", "next-step"]
    """The queue that changed."""
    start: int
    """Where, counted from 0."""
    removed_count: int | None = None
    """How many left; absent: none."""
    inserted: tuple[Message, ...]
    """What came in, in order."""
    outcome: str | None = None
    """``canceled`` if entries were removed unused; a claim has none."""


SurfaceEventData: TypeAlias = (
    SystemMessageEvent
    | DeveloperMessageEvent
    | UserMessageEvent
    | AssistantMessageEvent
    | ToolResultEvent
)
SURFACE_EVENT_DATA: Final = (
    SystemMessageEvent,
    DeveloperMessageEvent,
    UserMessageEvent,
    AssistantMessageEvent,
    ToolResultEvent,
)
"""`SurfaceEventData` for `isinstance`."""

SURFACE_EVENT_TYPES: Final = frozenset(cls.type for cls in SURFACE_EVENT_DATA)


def is_surface_eligible_type(event_type: str) -> bool:
    """True if events of this type take part in the surface."""
    return event_type in SURFACE_EVENT_TYPES


def is_surface_event(event: SessionEvent) -> bool:
    """True if the event takes part in the surface: by its type and by its marker."""
    return event.surface_op is not None and event.type in SURFACE_EVENT_TYPES


def is_append_surface_event(event: SessionEvent) -> bool:
    """True for a surface event that was appended: what a human transcript shows."""
    return event.surface_op == "append" and event.type in SURFACE_EVENT_TYPES


def is_replacement_surface_event(event: SessionEvent) -> bool:
    """True for a surface event that took the place of others."""
    return isinstance(event.surface_op, ReplaceOp) and event.type in SURFACE_EVENT_TYPES
