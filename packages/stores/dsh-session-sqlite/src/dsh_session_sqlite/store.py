"""Finding, creating and listing the sessions of one database."""

import contextlib
import os
from collections.abc import Iterator, MutableSequence
from pathlib import Path

from typing_extensions import override

from dsh_brand import HarnessError
from dsh_session import SessionHeader, SessionId
from dsh_session_persistence import (
    Access,
    ListingProblem,
    SessionAlreadyExistsError,
    SessionListing,
    SessionLog,
    SessionLogStore,
    SessionPersistenceError,
    SessionPersistenceNotFoundError,
    SessionPersistenceSnapshot,
    SessionStorageError,
)
from dsh_session_persistence.files import check_folder
from dsh_session_sqlite._database import Database, explained
from dsh_session_sqlite._identity import CheckedFile
from dsh_session_sqlite._reader import LogReader, location_of, parse_header
from dsh_session_sqlite._tables import SessionRow, all_sessions, find_session, id_of_key
from dsh_session_sqlite._writer import LogWriter, take_lease


class SqliteStore(SessionLogStore):
    """The sessions of one database. Blocking; `SqlitePersistence` is the async service."""

    def __init__(self, path: Path) -> None:
        """Look at the file if there is one, create nothing.

        Raises:
            SessionStorageError: The path cannot be a session database, or holds something else.
            SessionFormatUnsupportedError: A newer build made the database.
        """
        path = path.expanduser().absolute()
        # The last part stays as it is: a symbolic link there is refused, not followed.
        self.path = path.parent.resolve() / path.name
        with explained("the session database cannot be used", str(self.path)):
            check_folder(self.path.parent, "the folder of the session database")
            with contextlib.suppress(FileNotFoundError):
                CheckedFile(self.path).release()
        self._database = Database(self.path)

    @override
    def create(self, header: SessionHeader, inherited_event_count: int) -> SessionLog:
        if self._find(header.id) is not None:
            raise SessionAlreadyExistsError(header.id, str(self.path))
        return LogWriter(self._database, header, inherited_event_count)

    @override
    def open(self, session_id: SessionId, access: Access) -> SessionLog:
        if access == "read":
            return LogReader(self._database, session_id)
        with self._held(session_id) as kept:
            self._found(session_id)
            _check_writable(self.path)
            with explained(
                f"session {session_id!r} could not be opened", self._location(session_id)
            ):
                lease = take_lease(self.path, session_id)
            kept.callback(lease.release)
            reader = LogReader(self._database, session_id)
            writer = LogWriter(
                self._database,
                reader.header,
                reader.inherited_event_count,
                stored=reader,
                claim=lease,
            )
            kept.pop_all()
            return writer

    @override
    def stat(self, session_id: SessionId) -> SessionPersistenceSnapshot:
        return _snapshot(self._found(session_id), self._location(session_id))

    @override
    def list(self) -> SessionListing:
        sessions: list[SessionPersistenceSnapshot] = []
        problems: list[ListingProblem] = []
        try:
            for row in self._rows():
                self._add(row, sessions, problems)
        except SessionPersistenceError as error:
            problems.append(ListingProblem(location=str(self.path), error=error))
        return SessionListing(sessions=tuple(sessions), problems=tuple(problems))

    @contextlib.contextmanager
    def _held(self, session_id: SessionId) -> Iterator[contextlib.ExitStack]:
        """Keep one connection for all the steps; what it gives undoes them unless it is emptied."""
        with explained(f"session {session_id!r} could not be opened", self._location(session_id)):
            try:
                self._database.hold()
            except FileNotFoundError:
                raise SessionPersistenceNotFoundError(session_id) from None
        with contextlib.ExitStack() as kept:
            kept.callback(self._database.release)
            yield kept

    def _add(
        self,
        row: SessionRow,
        sessions: MutableSequence[SessionPersistenceSnapshot],
        problems: MutableSequence[ListingProblem],
    ) -> None:
        session_id = id_of_key(row.key)
        location = self._location(session_id or repr(row.key))
        try:
            sessions.append(_snapshot(row, location))
        except HarnessError as error:
            problems.append(ListingProblem(location=location, error=error, session_id=session_id))

    def _rows(self) -> MutableSequence[SessionRow]:
        with explained("the sessions could not be listed", str(self.path)):
            try:
                with self._database.transaction("DEFERRED") as connection:
                    return [*all_sessions(connection)]
            except FileNotFoundError:
                return []

    def _find(self, session_id: SessionId) -> SessionRow | None:
        with explained(f"session {session_id!r} could not be found", self._location(session_id)):
            try:
                with self._database.transaction("DEFERRED") as connection:
                    return find_session(connection, session_id)
            except FileNotFoundError:
                return None

    def _found(self, session_id: SessionId) -> SessionRow:
        row = self._find(session_id)
        if row is None:
            raise SessionPersistenceNotFoundError(session_id)
        return row

    def _location(self, session_id: str) -> str:
        return location_of(self.path, session_id)


def _snapshot(row: SessionRow, location: str) -> SessionPersistenceSnapshot:
    return SessionPersistenceSnapshot(
        header=parse_header(row, location),
        revision=row.revision,
        size_bytes=row.size_bytes,
        event_count=row.event_count,
    )


def _check_writable(path: Path) -> None:
    # SQLite opens what may only be read, and refuses the first batch.
    if not os.access(path, os.W_OK):
        raise SessionStorageError(
            "the session database may be read and not written: no permission", str(path)
        )
