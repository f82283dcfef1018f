"""One session: an append-only log with what is folded from it.

Upstream: packages/session/session/src/session.ts.
"""

import time as _time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from typing_extensions import override

from dsh_brand import NotJsonError
from dsh_llm import Message, ToolHistory
from dsh_session._freeze import freeze_payload
from dsh_session._seed import (
    check_id,
    check_restored,
    check_seed,
    complete_seed,
    is_marker,
    marker_at,
    snapshot_event,
)
from dsh_session.checked_log import CheckedLog
from dsh_session.checks import check_event
from dsh_session.codec import data_from_json
from dsh_session.errors import InvalidEventError, ReentrantAppendError
from dsh_session.event_log import EventLog
from dsh_session.events import (
    DeveloperMessageEvent,
    EndSeed,
    EventData,
    RequestContext,
    RequestHeader,
    RequestHeaderEvent,
    SessionEvent,
    SessionEventData,
    SurfaceOp,
)
from dsh_session.header import SessionHeader, SessionId
from dsh_session.headers import canonical_header, header_of
from dsh_session.message_projections import MessageProjections, SessionMessageProjection
from dsh_session.messages import derive_event_message, message_of
from dsh_session.surface import SurfaceManager
from dsh_session.tool_history import ToolHistoryFold

_SCANNED: Final = frozenset(
    {RequestHeaderEvent.type, RequestContext.type, DeveloperMessageEvent.type}
)
"""What the folds of headers, contexts and tools look at."""


def system_now_ms() -> int:
    """The time of day in milliseconds."""
    return _time.time_ns() // 1_000_000


class SessionObserver(Protocol):
    """Where a session that lives in a store announces its events."""

    def admit(self, session: "Session", event: SessionEvent) -> Callable[[], None]:
        """The event is about to be committed and breaks no rule of the log; raise to refuse it.

        Returns:
            What tells of the event once it is in the log, and must not raise.
        """
        ...


class Session:
    """An append-only log of events, and what follows from it.

    Made by `create` and `from_restore`; `ctx.sessions` gives sessions that others can find and
    follow. All of it is for one thread, and synchronous.
    """

    def __init__(
        self,
        header: SessionHeader,
        log: CheckedLog,
        *,
        inherited_event_count: int,
        first_live_seq: int,
        first_lifecycle_seq: int,
        now_ms: Callable[[], int],
        projections: MessageProjections | Iterable[SessionMessageProjection] = (),
    ) -> None:
        """Take the log over; use `create` or `from_restore`."""
        self.header = header
        self.inherited_event_count = inherited_event_count
        """Length of the fork prefix; 0 without one."""
        self.first_live_seq = first_live_seq
        """Length of the log as it was given."""
        self.first_lifecycle_seq = first_lifecycle_seq
        """Where this session's own life begins: the cut of a fresh fork, else `first_live_seq`."""
        self._events = events = list(log)
        self._now_ms = now_ms
        self._view: EventLog | None = None
        if not isinstance(projections, MessageProjections):
            projections = MessageProjections(projections)
        self.surface = SurfaceManager(events.__getitem__, projections=projections)
        """Which events the model sees, in which order."""
        self._messages: list[Message] = []
        self._derived_nodes = 0
        self._derived_generation = 0
        self._scanned = 0
        self._header: RequestHeader | None = None
        self._context: RequestContext | None = None
        self._tools = ToolHistoryFold()
        self._tool_history: ToolHistory | None = None
        self.observer: SessionObserver | None = None
        """Set by the store that the session lives in."""
        self._appending = False
        self._after_append: list[Callable[[], None]] = []
        self._fold_surface(events)

    def _fold_surface(self, events: Iterable[SessionEvent]) -> None:
        admit = self.surface.admit
        for event in events:
            if event.surface_op is not None or event.data.projects:
                admit(event)

    @classmethod
    def create(
        cls,
        id: SessionId,  # noqa: A002  # the name of the header's key
        seed: Iterable[SessionEvent | Mapping[str, object]] | None = None,
        header: SessionHeader | None = None,
        inherited_event_count: int = 0,
        *,
        projections: MessageProjections | Iterable[SessionMessageProjection] = (),
        now_ms: Callable[[], int] = system_now_ms,
    ) -> "Session":
        """A new session.

        Args:
            id: Its id.
            seed: Events it begins with, checked and copied; `None` and an empty list differ: a
                given seed ends with a marker.
            header: Its header; a plain one by default.
            inherited_event_count: How many of the seed's events are a fork prefix; only with a
                header that is seeded.
            projections: What its events that change messages do.
            now_ms: The clock.

        Raises:
            InvalidEventError: An event of the seed breaks a rule; names its index.
            UnsupportedEventError: An event changes messages, and its projection is not given.
            InvalidLogError: The seed does not fit the header and the count.
        """
        if header is None:
            header = SessionHeader(id=id, created_at=now_ms())
        check_id(id, header)
        given = None if seed is None else [snapshot_event(event) for event in seed]
        check_seed(header, given, inherited_event_count)
        events, cut = complete_seed(header, given, inherited_event_count, now_ms)
        return cls(
            header,
            CheckedLog.of(events),
            inherited_event_count=inherited_event_count,
            first_live_seq=0 if given is None else len(given),
            first_lifecycle_seq=cut,
            now_ms=now_ms,
            projections=projections,
        )

    @classmethod
    def from_restore(
        cls,
        id: SessionId,  # noqa: A002  # as in create
        seed: Iterable[SessionEvent],
        header: SessionHeader,
        inherited_event_count: int = 0,
        *,
        projections: MessageProjections | Iterable[SessionMessageProjection] = (),
        now_ms: Callable[[], int] = system_now_ms,
    ) -> "Session":
        """A session from its stored log; the frozen events are taken over without copying.

        A log that does not end with a marker gets one, and the owner stores it. Of a `CheckedLog`
        only what the events do together is looked at; the events of anything else are checked.

        Raises:
            InvalidEventError: An event breaks a rule; names its index.
            UnsupportedEventError: An event changes messages, and its projection is not given.
            InvalidLogError: Log, header and count do not fit together.
        """
        check_id(id, header)
        log = CheckedLog.of(seed)
        given = len(log)
        check_restored(header, log, inherited_event_count)
        if not (log and is_marker(log[-1])):
            log = log.extended([marker_at(given, now_ms())])
        return cls(
            header,
            log,
            inherited_event_count=inherited_event_count,
            first_live_seq=given,
            first_lifecycle_seq=given,
            now_ms=now_ms,
            projections=projections,
        )

    @property
    def id(self) -> SessionId:
        """The session's id."""
        return self.header.id

    @property
    def seq(self) -> int:
        """Length of the log: the seq of the next event."""
        return len(self._events)

    @property
    def appending(self) -> bool:
        """True while listeners are being told of the last event."""
        return self._appending

    @property
    def events(self) -> EventLog:
        """The log as it is now; the same object until the next append."""
        if self._view is None:
            self._view = EventLog(self._events)
        return self._view

    def event_at(self, seq: int) -> SessionEvent:
        """The event of that seq.

        Raises:
            IndexError: There is none.
        """
        if not 0 <= seq < len(self._events):
            raise IndexError(f"session {self.id!r} has {len(self._events)} events, none at {seq}")
        return self._events[seq]

    def own_events(self) -> tuple[SessionEvent, ...]:
        """The events behind the fork prefix."""
        return tuple(self._events[self.inherited_event_count :])

    def is_own_seq(self, seq: int) -> bool:
        """True for a seq behind the fork prefix."""
        return self.inherited_event_count <= seq < len(self._events)

    def append(
        self,
        payload: SessionEventData | str,
        data: object = None,
        *,
        surface_op: SurfaceOp | None = None,
        source_event_seqs: Iterable[int] | None = None,
        ignorable: bool = False,
    ) -> SessionEvent:
        """Append one event and tell the listeners; no I/O, nothing is awaited.

        Args:
            payload: The event's data; or the name of an event type, with `data`.
            data: JSON of an event that is given by name.
            surface_op: Mandatory on surface events: `"append"` or a `ReplaceOp`.
            source_event_seqs: Earlier events that this one is made from.
            ignorable: A reader that does not know the type may skip the event.

        Raises:
            InvalidEventError: A rule is broken; the log is as before.
            UnsupportedEventError: It changes messages, and its projection is not registered.
            ReentrantAppendError: Called by a listener of this session's events.
        """
        frozen, name = _snapshot(payload, data)
        cited = None if source_event_seqs is None else tuple(source_event_seqs)
        if self._appending:
            raise ReentrantAppendError(self.id)
        self._appending = True
        try:
            event = SessionEvent(
                type=name,
                seq=len(self._events),
                time=self._now_ms(),
                data=frozen,
                source_event_seqs=cited,
                surface_op=surface_op,
                ignorable=ignorable,
            )
            tell = self._commit(event)
            if tell is not None:
                tell()
        finally:
            self._appending = False
            if self._after_append:
                self._run_deferred()
        return event

    def _commit(self, event: SessionEvent) -> Callable[[], None] | None:
        check_event(event)
        if type(event.data) is EndSeed and event.data.inherited:
            reason = "the tagged marker is written by forking only"
            raise InvalidEventError(reason, event_type=event.type, seq=event.seq)
        change = self.surface.check(event)
        tell = None if self.observer is None else self.observer.admit(self, event)
        self._events.append(event)
        self._view = None
        if change is not None:
            self.surface.commit(change)
        return tell

    def derive_messages(self, start: int = 0) -> list[Message]:
        """The history the model sees: a fresh list over the frozen messages of the events.

        Args:
            start: How many messages to leave out at the beginning, for those who have them.

        Raises:
            ProjectionUnavailableError: A projection that changed messages is no longer registered.
        """
        nodes = self.surface.nodes
        if self._derived_generation != self.surface.content_generation:
            self._messages, self._derived_nodes = [], 0
            self._derived_generation = self.surface.content_generation
        projected = self.surface.projected_messages()
        events, add = self._events, self._messages.append
        for seq in nodes[self._derived_nodes :]:
            message = message_of(events[seq].data, projected.get(seq) if projected else None)
            if message is not None:
                add(message)
        self._derived_nodes = len(nodes)
        return self._messages[start:]

    def derive_event_message(self, event: SessionEvent) -> Message | None:
        """The message of one event of this log, as `derive_messages` gives it; raises as that."""
        return derive_event_message(event, self.surface.projected_message(event.seq))

    def request_header(self) -> RequestHeader | None:
        """The header in force, in canonical form; `None` before the first."""
        self._scan()
        return self._header

    def request_context(self) -> RequestContext | None:
        """The last context record; `None` before the first."""
        self._scan()
        return self._context

    def tool_history(self) -> ToolHistory | None:
        """Which tools the model was told of in this series; `None` before the first header."""
        self._scan()
        if self._tool_history is None:
            self._tool_history = self._tools.snapshot()
        return self._tool_history

    def _scan(self) -> None:
        events = self._events
        while self._scanned < len(events):
            event = events[self._scanned]
            self._scanned += 1
            if event.type not in _SCANNED:
                continue
            header = header_of(event)
            if header is not None:
                self._header = canonical_header(header)
            elif isinstance(event.data, RequestContext):
                self._context = event.data
            self._tools.push(event)
            self._tool_history = None

    def defer(self, action: Callable[[], None]) -> bool:
        """Keep `action` for the end of a running append; false if none runs."""
        if self._appending:
            self._after_append.append(action)
        return self._appending

    def _run_deferred(self) -> None:
        while self._after_append:
            self._after_append.pop(0)()

    @override
    def __repr__(self) -> str:
        return f"<Session {self.id!r}: {len(self._events)} events>"


def snapshot_session_event(event: SessionEvent | Mapping[str, object]) -> SessionEvent:
    """A checked, deeply frozen event from one that is borrowed, JSON or not.

    Raises:
        InvalidEventError: A rule for single events is broken.
    """
    frozen = snapshot_event(event)
    check_event(frozen)
    return frozen


def adopt_session_event(event: SessionEvent) -> SessionEvent:
    """The frozen event itself, checked.

    Raises:
        InvalidEventError: A rule for single events is broken.
    """
    check_event(event)
    return event


def _snapshot(payload: SessionEventData | str, data: object) -> tuple[EventData, str]:
    name = payload if isinstance(payload, str) else getattr(payload, "type", None)
    if type(name) is not str or not name:
        raise InvalidEventError(f"{payload!r} is neither a payload nor the name of an event type")
    try:
        if isinstance(payload, str):
            return data_from_json(name, data), name
        if data is not None:
            raise InvalidEventError("data goes with the name of a type only", event_type=name)
        return freeze_payload(payload), name
    except InvalidEventError:
        raise
    except (NotJsonError, ValueError) as error:
        raise InvalidEventError(str(error), event_type=name, cause=error) from None
