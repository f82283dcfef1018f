"""What flows over the seam. Upstream: packages/session/session-persistence."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import msgspec

from dsh_session import SessionEvent, SessionHeader, SessionId

Access: TypeAlias = Literal["read", "write"]
"""`"write"` claims the single writer of a session, `"read"` never claims anything."""


class SessionPersistenceSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a store says about one session without reading its events."""

    header: SessionHeader
    revision: str
    """Opaque; equal revisions of one id from one store mean that the log did not change."""

    size_bytes: int | None = None
    event_count: int | None = None


class ListingProblem(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact that a listing could not use; the others are listed all the same."""

    location: str
    """Path of the artifact, or what the store has instead."""

    error: Exception
    session_id: SessionId | None = None
    """The session it belongs to, when that is known."""


class SessionListing(msgspec.Struct, frozen=True, kw_only=True):
    """All sessions of a store, and what could not be listed."""

    sessions: Sequence[SessionPersistenceSnapshot] = ()
    problems: Sequence[ListingProblem] = ()


class SessionLog(Protocol):
    """One opened log of a store. Blocking: called on worker threads, one call at a time.

    A log of read access serves `read` and `close` only.
    """

    @property
    def header(self) -> SessionHeader:
        """The header as stored; known as soon as the log is open."""
        ...

    @property
    def inherited_event_count(self) -> int:
        """Length of the fork prefix, 0 for a session that is no fork."""
        ...

    @property
    def end(self) -> int:
        """The seq that comes next: number of valid events this log has seen."""
        ...

    @property
    def materialized(self) -> bool:
        """Whether others can see the session: false between `create` and the first write."""
        ...

    @property
    def path(self) -> Path | None:
        """Where the log lies, for people; `None` when it is no file."""
        ...

    def read(self) -> Sequence[SessionEvent]:
        """All valid events now: at least what this log returned or wrote before.

        `StoredLogRules.events`, if all of them came through it: then nobody checks them again.

        Raises:
            SessionFormatUnsupportedError: The log needs another build.
            SessionPersistenceCorruptionError: The stored bytes are no valid log.
        """
        ...

    def append(self, events: Sequence[SessionEvent]) -> None:
        """Write a non-empty batch that starts at `end`; all of it is stored, or nothing."""
        ...

    def flush(self) -> None:
        """Make everything written so far survive a crash; an empty session begins to exist."""
        ...

    def close(self) -> None:
        """Give up what the log holds, the writer's claim included; called once."""
        ...


class SessionLogStore(Protocol):
    """What a store implements. Blocking: called on worker threads, also concurrently."""

    def create(self, header: SessionHeader, inherited_event_count: int) -> SessionLog:
        """Prepare a new session without leaving anything behind before its first write.

        Raises:
            SessionAlreadyExistsError: The store holds this id.
        """
        ...

    def open(self, session_id: SessionId, access: Access) -> SessionLog:
        """Open a stored session; a log for writing excludes writers of other processes.

        Raises:
            SessionPersistenceNotFoundError: The store does not hold this id.
            SessionAlreadyOwnedError: Another process writes it.
            SessionFormatUnsupportedError: The log needs another build.
            SessionPersistenceCorruptionError: The stored bytes are no valid log.
        """
        ...

    def stat(self, session_id: SessionId) -> SessionPersistenceSnapshot:
        """Describe one session by its header alone; raises as `open` for reading."""
        ...

    def list(self) -> SessionListing:
        """Describe all sessions by their headers; what cannot be read is a problem entry."""
        ...
