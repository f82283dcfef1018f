"""Extending a log: one transaction a batch, durable when it returns."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from dsh_session import SessionEvent, SessionHeader
from dsh_session_persistence import (
    SessionAlreadyExistsError,
    SessionLog,
    SessionOwnershipLostError,
)
from dsh_session_sqlite._database import Database, explained
from dsh_session_sqlite._lease import Lease
from dsh_session_sqlite._reader import LogReader, location_of
from dsh_session_sqlite._tables import (
    EncodedBatch,
    extend_session,
    find_session,
    insert_session,
)


class LogWriter(SessionLog):
    """The one writer of a log: of a new session, or of a stored one (`resume`)."""

    def __init__(
        self, database: Database, header: SessionHeader, inherited_event_count: int
    ) -> None:
        """Prepare a new session; nothing is touched before its first write."""
        self._database = database
        self._header = header
        self._inherited = inherited_event_count
        self._events: list[SessionEvent] = []
        self._number: int | None = None
        self._lease: Lease | None = None
        self._holds_database = False
        self._lost: str | None = None

    @classmethod
    def resume(cls, database: Database, reader: LogReader, lease: Lease) -> "LogWriter":
        """Go on with a stored log that was read under `lease`, which belongs to the writer now."""
        log = cls(database, reader.header, reader.inherited_event_count)
        log._events = list(reader.read())
        log._number = reader.number
        log._hold()
        log._lease = lease
        return log

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
    def materialized(self) -> bool:
        return self._number is not None

    @property
    @override
    def path(self) -> Path | None:
        return self._database.path

    @override
    def read(self) -> Sequence[SessionEvent]:
        return self._events

    @override
    def append(self, events: Sequence[SessionEvent]) -> None:
        batch = EncodedBatch.of(events)
        with self._explained():
            if self._number is None:
                self._number = self._materialize(batch)
            else:
                self._check_owned()
                self._extend(self._number, batch)
        self._events.extend(events)

    @override
    def flush(self) -> None:
        # What was appended is on the disk: a commit waits for it.
        with self._explained():
            if self._number is None:
                self._number = self._materialize(EncodedBatch.of(()))
            else:
                self._check_owned()

    @override
    def close(self) -> None:
        try:
            if self._holds_database:
                self._holds_database = False
                self._database.release()
        finally:
            self._release()

    def _materialize(self, batch: EncodedBatch) -> int:
        self._database.make()
        self._lease = Lease.acquire(self._database.path, self._header.id)
        try:
            self._hold()
            with self._database.transaction("IMMEDIATE") as connection:
                if find_session(connection, self._header.id) is not None:
                    raise SessionAlreadyExistsError(self._header.id, str(self._database.path))
                return insert_session(connection, self._header, batch)
        except BaseException:
            self.close()
            raise

    def _extend(self, number: int, batch: EncodedBatch) -> None:
        with self._database.transaction("IMMEDIATE") as connection:
            if not extend_session(connection, number, self._header.id, batch):
                self._lose("somebody else changed the stored log")

    def _check_owned(self) -> None:
        if self._lost is None:
            if self._lease is None or not self._lease.is_held():
                self._lost = "its lock file was removed or replaced"
            else:
                self._lost = self._database.displaced()
        if self._lost is not None:
            self._lose(self._lost)

    def _lose(self, reason: str) -> None:
        self._lost = reason
        raise SessionOwnershipLostError(self._header.id, reason)

    def _hold(self) -> None:
        self._database.hold()
        self._holds_database = True

    def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    def _explained(self) -> contextlib.AbstractContextManager[None]:
        return explained(
            f"session {self._header.id!r} could not be written; what was stored before is "
            "intact, try again when the disk can take it",
            location_of(self._database.path, self._header.id),
        )
