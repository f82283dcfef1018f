"""What a stored log must satisfy as a whole, beyond each single event.

Every store runs what it reads through `StoredLogRules`. Calls and results that do not pair are no
violation: such a log is opened, and requests are made valid when they are derived.
"""

from collections.abc import Iterable

from dsh_session import (
    CheckedLog,
    CheckedLogBuilder,
    InvalidLogError,
    LogRules,
    SessionEvent,
    SessionHeader,
    SurfaceManager,
)


class StoredLogRules:
    """Follows a log event by event: nesting of turns and steps, the surface, the fork cut."""

    def __init__(self, header: SessionHeader) -> None:
        self._header = header
        self._taken = CheckedLogBuilder()
        self._nesting = LogRules()
        self._surface = SurfaceManager(self._taken.event_at)

    def __len__(self) -> int:
        """How many events were taken."""
        return len(self._taken)

    @property
    def events(self) -> CheckedLog:
        """What was taken so far; it does not grow."""
        return self._taken.log

    @property
    def inherited_event_count(self) -> int:
        """Length of the fork prefix, as far as the log was taken."""
        return self._taken.cut or 0

    def decode(self, rows: Iterable[bytes]) -> None:
        """Take stored rows in order; when one is refused, those before it are taken.

        Raises:
            InvalidEventError: It is no event, or not the next one. Of a whole event in its place
                that breaks a rule, the error knows the event's type.
            UnsupportedEventError: Its type is not for this build.
            InvalidLogError: It cannot stand there; and what else `take` raises.
        """
        self._taken.decode(rows, self._follow)

    def take(self, event: SessionEvent) -> None:
        """Check and follow the next event.

        Raises:
            InvalidEventError: It breaks a rule for single events, or is not the next one.
            InvalidLogError: It cannot stand there (turns, steps).
            SurfaceError: It cannot do that to the surface.
        """
        self._taken.take(event, self._follow)

    def _follow(self, event: SessionEvent) -> None:
        self._nesting.push(event)
        if event.surface_op is not None:
            # Projections change messages, never nodes; the session that takes the log has them.
            self._surface.admit(event)

    def finish(self) -> None:
        """Check what only the end of the log shows; more events may follow all the same.

        Raises:
            InvalidLogError: Fork cut and header disagree, or a turn ends inside a compaction.
        """
        self._nesting.finish()
        cut = self._taken.cut
        if self._header.is_seeded != (cut is not None):
            said = "seeded" if self._header.is_seeded else "not seeded"
            has = "has no" if self._header.is_seeded else "has a"
            raise InvalidLogError(
                f"the header says {said}, and the log {has} marker of an inherited prefix",
                seq=cut,
            )
