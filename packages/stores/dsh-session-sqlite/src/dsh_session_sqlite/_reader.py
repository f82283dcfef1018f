"""From rows to valid events, also beside a writer. A transaction sees a whole state, always."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from typing_extensions import override

from dsh_brand import decode_json
from dsh_session import (
    FormatVersionError,
    InvalidEventError,
    InvalidHeaderError,
    InvalidLogError,
    SessionEvent,
    SessionHeader,
    SessionId,
    UnsupportedEventError,
    decode_stored_event,
    header_from_json,
    inherited_count_of,
)
from dsh_session_persistence import (
    SessionFormatUnsupportedError,
    SessionLog,
    SessionPersistenceCorruptionError,
    SessionPersistenceNotFoundError,
    StoredLogRules,
)
from dsh_session_sqlite._database import Database, explained
from dsh_session_sqlite._tables import (
    SessionRow,
    find_session,
    id_key,
    stored_events,
)


def location_of(database: Path, session_id: str) -> str:
    """Where a session lies, for people."""
    return f"{database}, session {session_id!r}"


def parse_header(row: SessionRow, location: str) -> SessionHeader:
    """Read a stored header.

    Raises:
        SessionFormatUnsupportedError: Another format version.
        SessionPersistenceCorruptionError: It is no header, or another session's.
    """
    try:
        header = header_from_json(decode_json(row.header))
    except FormatVersionError as error:
        raise SessionFormatUnsupportedError(error.message, location, cause=error) from error
    except (InvalidHeaderError, ValueError, TypeError) as error:
        raise SessionPersistenceCorruptionError(
            f"no valid header: {error}", location, cause=error
        ) from error
    if id_key(header.id) != row.key:
        raise SessionPersistenceCorruptionError(
            f"the header is of another session: id {header.id!r}", location
        )
    return header


class _Fold:
    """The valid events of a log so far; broken for good when `feed` raises."""

    def __init__(self, row: SessionRow, location: str) -> None:
        self.number = row.number
        self.header = parse_header(row, location)
        self.events: list[SessionEvent] = []
        self._rules = StoredLogRules(self.header)
        self._location = location

    def feed(self, rows: Sequence[tuple[int, bytes]], event_count: int) -> None:
        """Take the rows behind `events`; with them the log has `event_count`."""
        for seq, data in rows:
            self._take(seq, data)
        if len(self.events) != event_count:
            raise self._corrupt(f"{len(self.events)} of {event_count} events are there")
        with self._judged("the log as a whole"):
            self._rules.finish()

    def _take(self, seq: int, data: bytes) -> None:
        expected = len(self.events)
        if seq != expected:
            raise self._corrupt(f"the event of seq {expected} is missing")
        with self._judged(f"the event of seq {seq}"):
            event = decode_stored_event(data)
            if event.seq != seq:
                raise ValueError(f"it says it has seq {event.seq}")
            self._rules.take(event)
        self.events.append(event)

    @contextlib.contextmanager
    def _judged(self, what: str) -> Iterator[None]:
        try:
            yield
        except UnsupportedEventError as error:
            raise SessionFormatUnsupportedError(
                error.message, self._location, cause=error
            ) from error
        except (InvalidEventError, InvalidLogError) as error:
            raise self._corrupt(f"{what} is damaged: {error.message}", error) from error
        except (ValueError, TypeError) as error:
            raise self._corrupt(f"{what} is damaged: {error}", error) from error

    def _corrupt(
        self, message: str, cause: BaseException | None = None
    ) -> SessionPersistenceCorruptionError:
        return SessionPersistenceCorruptionError(message, self._location, cause=cause)


class LogReader(SessionLog):
    """A log opened for reading; later readings fetch what was added."""

    def __init__(self, database: Database, session_id: SessionId) -> None:
        """Read the log once; raises as `read`."""
        self._database = database
        self._session_id = session_id
        self._location = location_of(database.path, session_id)
        self._fold: _Fold | None = None
        self._served: Sequence[SessionEvent] = ()
        fold = self._refresh()
        self._header = fold.header
        self._inherited = inherited_count_of(fold.events)
        self._number = fold.number

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
        return len(self._served)

    @property
    @override
    def materialized(self) -> bool:
        return True

    @property
    @override
    def path(self) -> Path | None:
        return self._database.path

    @property
    def number(self) -> int:
        """What stands for the session in the tables."""
        return self._number

    @override
    def read(self) -> Sequence[SessionEvent]:
        return self._refresh().events

    @override
    def append(self, events: Sequence[SessionEvent]) -> None:
        raise NotImplementedError("a log for reading only")

    @override
    def flush(self) -> None:
        raise NotImplementedError("a log for reading only")

    @override
    def close(self) -> None:
        """Nothing is held open between two reads."""

    def _refresh(self) -> _Fold:
        # Kept only if it takes everything: a broken one would be in the middle of its rules.
        fold, self._fold = self._fold, None
        row, rows = self._fetch(fold)
        if fold is None or fold.number != row.number:
            fold = _Fold(row, self._location)
        fold.feed(rows, row.event_count)
        self._fold = fold
        self._served = fold.events
        return fold

    def _fetch(self, fold: _Fold | None) -> tuple[SessionRow, Sequence[tuple[int, bytes]]]:
        """The session's row, and the events behind those of `fold` if it is still about them."""
        with explained(f"session {self._session_id!r} could not be read", self._location):
            try:
                with self._database.transaction("DEFERRED") as connection:
                    row = find_session(connection, self._session_id)
                    if row is None:
                        raise SessionPersistenceNotFoundError(self._session_id)
                    known = len(fold.events) if fold and fold.number == row.number else 0
                    return row, stored_events(connection, row.number, known)
            except FileNotFoundError:
                raise SessionPersistenceNotFoundError(self._session_id) from None
