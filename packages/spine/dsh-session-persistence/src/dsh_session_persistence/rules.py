"""What a stored log must satisfy as a whole, beyond each single event.

Every store runs its events through `StoredLogRules` when it reads. Calls and results that do not
pair are no violation: such a log is opened, and requests are made valid when they are derived.
"""

from dsh_session import (
    EndSeed,
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
        self._events: list[SessionEvent] = []
        self._nesting = LogRules()
        self._surface = SurfaceManager(self._events.__getitem__)
        self._cut: int | None = None

    def take(self, event: SessionEvent) -> None:
        """Follow the next event.

        Raises:
            InvalidLogError: It cannot stand there (turns, steps).
            SurfaceError: It cannot do that to the surface.
        """
        self._nesting.push(event)
        if not event.data.projects:
            # Those change messages, never nodes; the session that takes the log has their rules.
            self._surface.admit(event)
        self._events.append(event)
        if isinstance(event.data, EndSeed) and event.data.inherited:
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
