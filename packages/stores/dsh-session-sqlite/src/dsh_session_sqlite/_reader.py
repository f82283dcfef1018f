"""From rows to valid events, also beside a writer. A transaction sees a whole state, always."""

from collections.abc import Sequence
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
    header_from_json,
)
from dsh_session_persistence import (
    ReadLog,
    SessionFormatUnsupportedError,
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


class Reading:
    """The valid events of a log so far; broken for good when `feed` raises."""

    def __init__(self, row: SessionRow, location: str) -> None:
        self.number = row.number
        """Stands for the session in the tables."""

        self.header = parse_header(row, location)
        self.rules = StoredLogRules(self.header)
        self._location = location

    def feed(self, rows: Sequence[tuple[int, bytes]], event_count: int) -> None:
        """Take the rows behind what is known; with them the log has `event_count` events."""
        seqs = range(len(self.rules), len(self.rules) + len(rows))
        gap = next((due for due, (seq, _) in zip(seqs, rows, strict=True) if seq != due), None)
        present = rows if gap is None else rows[: gap - seqs.start]
        try:
            self.rules.decode([row for _, row in present])
            if gap is not None:
                raise self._corrupt(f"the event of seq {gap} is missing")
            if len(self.rules) != event_count:
                raise self._corrupt(f"{len(self.rules)} of {event_count} events are there")
            self.rules.finish()
        except UnsupportedEventError as error:
            raise SessionFormatUnsupportedError(
                error.message, self._location, cause=error
            ) from error
        except (InvalidEventError, InvalidLogError) as error:
            what = "the log as a whole"
            if len(self.rules) < seqs.stop:
                what = f"the event of seq {len(self.rules)}"
            raise self._corrupt(f"{what} is damaged: {error.message}", error) from error

    def _corrupt(
        self, message: str, cause: BaseException | None = None
    ) -> SessionPersistenceCorruptionError:
        return SessionPersistenceCorruptionError(message, self._location, cause=cause)


class LogReader(ReadLog):
    """A log opened for reading; later readings fetch what was added."""

    def __init__(self, database: Database, session_id: SessionId) -> None:
        """Read the log once; raises as `read`."""
        self._database = database
        self._session_id = session_id
        self._location = location_of(database.path, session_id)
        self._reading: Reading | None = None
        events = self._newest()
        rules = self.reading.rules
        super().__init__(
            self.reading.header, rules.inherited_event_count, events, path=database.path
        )

    @property
    def reading(self) -> Reading:
        """What the last reading found."""
        assert self._reading is not None, "the last reading did not fail"
        return self._reading

    @override
    def _newest(self) -> Sequence[SessionEvent]:
        # Kept only if it takes everything: a broken one would be in the middle of its rules.
        reading, self._reading = self._reading, None
        row, rows = self._fetch(reading)
        if reading is None or reading.number != row.number:
            reading = Reading(row, self._location)
        reading.feed(rows, row.event_count)
        self._reading = reading
        return reading.rules.events

    def _fetch(self, known: Reading | None) -> tuple[SessionRow, Sequence[tuple[int, bytes]]]:
        """The session's row, and the events behind those of `known` if it is still about them."""
        with explained(f"session {self._session_id!r} could not be read", self._location):
            try:
                with self._database.transaction("DEFERRED") as connection:
                    row = find_session(connection, self._session_id)
                    if row is None:
                        raise SessionPersistenceNotFoundError(self._session_id)
                    same = known is not None and known.number == row.number
                    start = len(known.rules) if known is not None and same else 0
                    return row, stored_events(connection, row.number, start)
            except FileNotFoundError:
                raise SessionPersistenceNotFoundError(self._session_id) from None
