"""What a stored log must satisfy as a whole, beyond each single event.

Every store runs what it reads through `StoredLogRules`. Calls and results that do not pair are no
violation: such a log is opened, and requests are made valid when they are derived.
"""

from collections.abc import Iterable

from dsh_session import (
    EndSeed,
    InvalidEventError,
    InvalidLogError,
    LogRules,
    SessionEvent,
    SessionHeader,
    SurfaceManager,
    decode_stored_event,
)


class StoredLogRules:
    """Follows a log event by event: nesting of turns and steps, the surface, the fork cut."""

    def __init__(self, header: SessionHeader) -> None:
        self._header = header
        self.events: list[SessionEvent] = []
        """What was taken so far; it only grows."""

        self._nesting = LogRules()
        self._surface = SurfaceManager(self.events.__getitem__)
        self._cut: int | None = None

    @property
    def inherited_event_count(self) -> int:
        """Length of the fork prefix, as far as the log was taken."""
        return self._cut or 0

    def decode(self, rows: Iterable[bytes]) -> None:
        """Take stored rows in order; when one is refused, those before it are taken.

        Raises:
            InvalidEventError: It is no event, or not the next one. Of a whole event in its place
                that breaks a rule, the error knows the event's type.
            UnsupportedEventError: Its type is not for this build.
            InvalidLogError: It cannot stand there; and what else `take` raises.
        """
        expected = len(self.events)
        for row in rows:
            event = decode_stored_event(row)
            if event.seq != expected:
                raise InvalidEventError(f"expected seq {expected}", seq=event.seq)
            self.take(event)
            expected += 1

    def take(self, event: SessionEvent) -> None:
        """Follow the next event.

        Raises:
            InvalidLogError: It cannot stand there (turns, steps).
            SurfaceError: It cannot do that to the surface.
        """
        self._nesting.push(event)
        if event.surface_op is not None:
            # Projections change messages, never nodes; the session that takes the log has them.
            self._surface.admit(event)
        self.events.append(event)
        if type(event.data) is EndSeed and event.data.inherited:
            self._cut = event.seq

    def finish(self) -> None:
        """Check what only the end of the log shows; more events may follow all the same.

        Raises:
            InvalidLogError: Fork cut and header disagree, or a turn ends inside a compaction.
        """
        self._nesting.finish()
        if self._header.is_seeded != (self._cut is not None):
            said = "seeded" if self._header.is_seeded else "not seeded"
            has = "has no" if self._header.is_seeded else "has a"
            raise InvalidLogError(
                f"the header says {said}, and the log {has} marker of an inherited prefix",
                seq=self._cut,
            )
