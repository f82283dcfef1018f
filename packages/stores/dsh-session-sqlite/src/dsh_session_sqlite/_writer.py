"""Extending a log: one transaction a batch, durable when it returns."""

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from typing_extensions import override

from dsh_session import SessionEvent, SessionHeader
from dsh_session_persistence import Claim, Lease, SessionAlreadyExistsError, WriteLog
from dsh_session_persistence.files import make_folders
from dsh_session_sqlite._database import Database, explained
from dsh_session_sqlite._reader import LogReader, location_of
from dsh_session_sqlite._tables import EncodedBatch, extend_session, find_session, insert_session

_NAME_LENGTH: Final = 40


def take_lease(database: Path, session_id: str) -> Lease:
    """Lock a session by a small file in a folder beside the database.

    Raises:
        SessionAlreadyOwnedError: Somebody else writes it.
        OSError: The system refused.
    """
    # Of any id this makes a name that every file system takes.
    digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
    folder = database.with_name(f"{database.name}-locks")
    make_folders(folder)
    return Lease.acquire(folder / f"{digest[:_NAME_LENGTH]}.lock", session_id, remove=True)


class LogWriter(WriteLog[EncodedBatch]):
    """The one writer of a log: of a new session, or of a stored one that was read under a lease."""

    def __init__(
        self,
        database: Database,
        header: SessionHeader,
        inherited_event_count: int = 0,
        *,
        stored: LogReader | None = None,
        claim: Claim | None = None,
    ) -> None:
        """Prepare the log; nothing is touched before the first write.

        Args:
            database: Where it lies. With `stored` it is held, and the writer lets it go.
            header: The session's header.
            inherited_event_count: Length of the fork prefix.
            stored: The log as it was read; `None` for a new session.
            claim: Under which it was read.
        """
        super().__init__(
            header,
            inherited_event_count,
            path=database.path,
            location=location_of(database.path, header.id),
            stored=() if stored is None else stored.reading.rules.events,
            claim=claim,
        )
        self._database = database
        self._number = None if stored is None else stored.reading.number
        self._holds_database = stored is not None

    @override
    def _encode(self, events: Sequence[SessionEvent]) -> EncodedBatch:
        return EncodedBatch.of(events)

    @override
    def _take_claim(self) -> Claim:
        self._database.make()
        return take_lease(self._database.path, self.header.id)

    @override
    def _create(self, batch: EncodedBatch) -> None:
        self._database.hold()
        self._holds_database = True
        with self._database.transaction("IMMEDIATE") as connection:
            if find_session(connection, self.header.id) is not None:
                raise SessionAlreadyExistsError(self.header.id, str(self._database.path))
            self._number = insert_session(connection, self.header, batch)

    @override
    def _extend(self, batch: EncodedBatch) -> None:
        assert self._number is not None, "a stored session has a number"
        with self._database.transaction("IMMEDIATE") as connection:
            if not extend_session(connection, self._number, self.header.id, batch):
                self._lose("somebody else changed the stored log")

    @override
    def _displaced(self) -> str | None:
        return self._database.displaced()

    @override
    def _let_go(self) -> None:
        if self._holds_database:
            self._holds_database = False
            self._database.release()

    @override
    def _explained(self) -> contextlib.AbstractContextManager[None]:
        return explained(self._failure, self._location)
