"""What opened logs share, whatever keeps them: a store adds how its bytes are read and written."""

import contextlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Generic, NoReturn, TypeVar

from typing_extensions import override

from dsh_session import CheckedLog, SessionEvent, SessionHeader
from dsh_session_persistence.errors import SessionOwnershipLostError, SessionStorageError
from dsh_session_persistence.leases import Claim
from dsh_session_persistence.types import SessionLog

B = TypeVar("B")


class _OpenLog(SessionLog):
    """Whose log it is, where it lies, and the events it has seen."""

    def __init__(
        self,
        header: SessionHeader,
        inherited_event_count: int,
        path: Path | None,
        events: Sequence[SessionEvent],
    ) -> None:
        self._header = header
        self._inherited = inherited_event_count
        self._path = path
        self._events = events

    @property
    @override
    def header(self) -> SessionHeader:
        return self._header

    @property
    @override
    def inherited_event_count(self) -> int:
        return self._inherited

    @property
    @override
    def end(self) -> int:
        return len(self._events)

    @property
    @override
    def path(self) -> Path | None:
        return self._path


class ReadLog(_OpenLog):
    """A log opened for reading, with what the first reading found. A store writes `_newest`."""

    def __init__(
        self,
        header: SessionHeader,
        inherited_event_count: int,
        events: Sequence[SessionEvent] = (),
        *,
        path: Path | None = None,
    ) -> None:
        super().__init__(header, inherited_event_count, path, events)

    @property
    @override
    def materialized(self) -> bool:
        return True

    @override
    def read(self) -> Sequence[SessionEvent]:
        events = self._newest()
        # Fewer is what a reader sees while a writer replaces what a crash left.
        if len(events) >= len(self._events):
            self._events = events
        return self._events

    @abstractmethod
    def _newest(self) -> Sequence[SessionEvent]:
        """All valid events in the store now; raises as `read`."""

    @override
    def append(self, events: Sequence[SessionEvent]) -> None:
        raise NotImplementedError("a log for reading only")

    @override
    def flush(self) -> None:
        raise NotImplementedError("a log for reading only")

    @override
    def close(self) -> None:
        """Nothing is held open between two reads."""


class WriteLog(_OpenLog, Generic[B]):
    """The one writer of a log: of a new session, or of a stored one that it goes on with.

    A store writes `_encode` (a batch becomes a `B`), `_take_claim`, `_create`, `_extend`,
    `_displaced` and `_let_go`. When the claim is taken and given back, who may still write and what
    an error says is the same for all stores.
    """

    def __init__(
        self,
        header: SessionHeader,
        inherited_event_count: int,
        *,
        path: Path | None = None,
        location: str,
        stored: Sequence[SessionEvent] = (),
        claim: Claim | None = None,
    ) -> None:
        """Prepare a new session, touching nothing; or go on with a stored one.

        Args:
            header: The session's header.
            inherited_event_count: Length of the fork prefix.
            path: Where the log lies or will lie, if that is a file.
            location: The same for people: a path, or what the store has instead.
            stored: What the log holds.
            claim: Under which it was read; the writer owns it from here on. `None`: a new session.
        """
        if not isinstance(stored, CheckedLog):
            stored = tuple(stored)  # it may be the store's own list, which grows
        super().__init__(header, inherited_event_count, path, stored)
        self._appended: list[SessionEvent] | None = None
        """The whole log from the first append on: what is stored is handed on as it was read."""
        self._location = location
        self._claim = claim
        self._materialized = claim is not None
        self._lost: str | None = None

    @property
    @override
    def materialized(self) -> bool:
        return self._materialized

    @override
    def read(self) -> Sequence[SessionEvent]:
        return self._events

    @override
    def append(self, events: Sequence[SessionEvent]) -> None:
        batch = self._encode(events)
        with self._explained():
            if self._materialized:
                self._check_owned()
                self._extend(batch)
            else:
                self._begin(batch)
        if self._appended is None:
            self._events = self._appended = list(self._events)
        self._appended.extend(events)

    @override
    def flush(self) -> None:
        with self._explained():
            if self._materialized:
                self._check_owned()
                self._sync()
            else:
                self._begin(self._encode(()))

    @override
    def close(self) -> None:
        claim, self._claim = self._claim, None
        try:
            self._let_go()
        finally:
            if claim is not None:
                claim.release()

    @abstractmethod
    def _encode(self, events: Sequence[SessionEvent]) -> B:
        """The batch as it is stored; comes before anything is touched.

        Raises:
            SessionStorageError: This store cannot hold one of the events.
        """

    @abstractmethod
    def _take_claim(self) -> Claim:
        """Exclude other writers of a session that is to be stored for the first time.

        Raises:
            SessionAlreadyOwnedError: Somebody else writes it.
        """

    @abstractmethod
    def _create(self, batch: B) -> None:
        """Store the session with its first events, if any, durably: all of it, or nothing.

        Raises:
            SessionAlreadyExistsError: It is stored already.
        """

    @abstractmethod
    def _extend(self, batch: B) -> None:
        """Store a batch behind what is there: all of it, or nothing."""

    @abstractmethod
    def _displaced(self) -> str | None:
        """Why what is written now would be lost or do harm; `None` if all is as it was left."""

    @abstractmethod
    def _let_go(self) -> None:
        """Close what is open, but for the claim; also after a creation that failed."""

    def _sync(self) -> None:
        """Make durable what `_extend` stored, where it does not do that itself."""

    @property
    def _failure(self) -> str:
        return (
            f"session {self._header.id!r} could not be written; what was stored before is "
            "intact, try again when the disk can take it"
        )

    def _explained(self) -> contextlib.AbstractContextManager[None]:
        """Say which log could not be written, whatever the system's own words are."""
        return _storage_errors(self._failure, self._location)

    def _lose(self, reason: str) -> NoReturn:
        """Give up for good: somebody else has the log.

        Raises:
            SessionOwnershipLostError: Always.
        """
        self._lost = reason
        raise SessionOwnershipLostError(self._header.id, reason)

    def _begin(self, batch: B) -> None:
        claim = self._take_claim()
        try:
            self._create(batch)
        except BaseException:
            try:
                self._let_go()
            finally:
                claim.release()
            raise
        self._claim = claim
        self._materialized = True

    def _check_owned(self) -> None:
        reason = self._lost
        if reason is None:
            held = self._claim is not None and self._claim.is_held()
            reason = self._displaced() if held else "its lock file was removed or replaced"
        if reason is not None:
            self._lose(reason)


@contextlib.contextmanager
def _storage_errors(failure: str, location: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ExceptionGroup) as error:
        raise SessionStorageError(failure, location, cause=error) from error
