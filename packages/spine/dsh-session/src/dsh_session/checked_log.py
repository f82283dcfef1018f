"""Logs of which it is known that each event is sound, so that nobody has to look again."""

from collections.abc import Callable, Iterable
from typing import Self, TypeAlias

from dsh_session.checks import check_event
from dsh_session.codec import decode_stored_event
from dsh_session.errors import InvalidEventError
from dsh_session.event_log import EventLog
from dsh_session.events import EndSeed, SessionEvent

Follow: TypeAlias = Callable[[SessionEvent], object]
"""Is told of a sound event before it is taken, and raises to refuse it."""


class CheckedLog(EventLog):
    """A whole log whose events were checked one by one, each at its own seq; immutable.

    Empty as it is made. A longer one comes from `extended`, or from a `CheckedLogBuilder` that
    reads stored rows: no event gets into it but through the checks.
    """

    __slots__ = ("_cut",)

    def __init__(self) -> None:
        """The empty log."""
        super().__init__([])
        self._cut: int | None = None

    @property
    def cut(self) -> int | None:
        """Seq of the last tagged marker: the length of the fork prefix."""
        return self._cut

    @staticmethod
    def of(events: Iterable[SessionEvent]) -> "CheckedLog":
        """The log of these events: themselves, if that is what they are; else they are checked.

        Raises:
            InvalidEventError: An event breaks a rule, or is not the next one.
            UnsupportedEventError: It needs a message projection that this build does not have.
        """
        return events if isinstance(events, CheckedLog) else CheckedLog().extended(events)

    def extended(self, events: Iterable[SessionEvent]) -> "CheckedLog":
        """A log with these events, which are checked, behind those of this one.

        Raises:
            InvalidEventError: An event breaks a rule, or is not the next one.
            UnsupportedEventError: It needs a message projection that this build does not have.
        """
        builder = CheckedLogBuilder(self)
        for event in events:
            builder.take(event)
        return builder.log

    @classmethod
    def _of(cls, checked: list[SessionEvent], cut: int | None) -> Self:
        log = cls()
        EventLog.__init__(log, checked)
        log._cut = cut
        return log


def _nobody(_event: SessionEvent) -> None:
    """Follow nothing."""


class CheckedLogBuilder:
    """Takes one event after another, each of them checked."""

    def __init__(self, start: CheckedLog | None = None) -> None:
        """Go on behind `start`; at 0 by default."""
        self._events: list[SessionEvent] = [] if start is None else list(start)
        self._cut = None if start is None else start.cut

    def __len__(self) -> int:
        return len(self._events)

    @property
    def log(self) -> CheckedLog:
        """What was taken so far; it does not grow."""
        return CheckedLog._of(self._events, self._cut)

    @property
    def cut(self) -> int | None:
        """Seq of the last tagged marker so far."""
        return self._cut

    def event_at(self, seq: int) -> SessionEvent:
        """The event of a seq that was taken."""
        return self._events[seq]

    def decode(self, rows: Iterable[bytes], follow: Follow = _nobody) -> None:
        """Take stored rows in order; when one is refused, those before it are taken.

        Raises:
            InvalidEventError: It is no event, or not the next one. Of a whole event in its place
                that breaks a rule, the error knows the event's type.
            UnsupportedEventError: Its type is not for this build.
            Exception: What `follow` raised.
        """
        events = self._events
        add = events.append
        for seq, row in enumerate(rows, len(events)):
            event = decode_stored_event(row)
            if event.seq != seq:
                raise InvalidEventError(f"expected seq {seq}", seq=event.seq)
            follow(event)
            add(event)
            if type(event.data) is EndSeed:
                self._note_marker(seq, event.data)

    def take(self, event: SessionEvent, follow: Follow = _nobody) -> None:
        """Take the next event.

        Raises:
            InvalidEventError: It breaks a rule for single events, or is not the next one.
            UnsupportedEventError: It needs a message projection that this build does not have.
            Exception: What `follow` raised.
        """
        seq = len(self._events)
        if event.seq != seq:
            reason = f"stands at index {seq}; seqs count from 0 without gaps"
            raise InvalidEventError(reason, event_type=event.type, seq=event.seq)
        check_event(event)
        follow(event)
        self._events.append(event)
        if type(event.data) is EndSeed:
            self._note_marker(seq, event.data)

    def _note_marker(self, seq: int, marker: EndSeed) -> None:
        if marker.inherited:
            self._cut = seq
