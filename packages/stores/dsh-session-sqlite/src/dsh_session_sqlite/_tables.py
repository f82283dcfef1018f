"""The statements: what the two tables hold of a session, and how it gets there."""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dsh_brand import encode_json
from dsh_session import SessionEvent, SessionHeader, SessionId, encode_event, header_to_json

_COLUMNS: Final = "number, id, CAST(header AS BLOB), event_count, size_bytes, writes"


class DisagreementError(sqlite3.DatabaseError):
    """Table and index disagree, which SQLite itself finds only when asked to."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    sqlite_errorname = "SQLITE_CORRUPT"


class SessionRow(NamedTuple):
    """One row of `sessions`."""

    number: int
    """Stands for the session in `events`; never used twice."""
    key: bytes
    header: bytes
    event_count: int
    size_bytes: int
    writes: int

    @property
    def revision(self) -> str:
        """What changes whenever the log does."""
        return f"{self.number:x}-{self.writes:x}"


class EncodedBatch(NamedTuple):
    """A batch as it is stored."""

    start: int
    rows: Sequence[bytes]

    @classmethod
    def of(cls, events: Sequence[SessionEvent]) -> "EncodedBatch":
        """Encode events that follow one another."""
        return cls(events[0].seq if events else 0, [encode_event(event) for event in events])

    @property
    def size_bytes(self) -> int:
        """Bytes of all rows."""
        return sum(map(len, self.rows))


def id_key(session_id: str) -> bytes:
    """How an id stands in the table: also one that no UTF-8 text can hold."""
    return session_id.encode("utf-8", "surrogatepass")


def id_of_key(key: object) -> SessionId | None:
    """The id that a key stands for, `None` if it stands for none."""
    try:
        return SessionId(key.decode("utf-8", "surrogatepass")) if isinstance(key, bytes) else None
    except UnicodeDecodeError:
        return None


def find_session(connection: sqlite3.Connection, session_id: str) -> SessionRow | None:
    """The row of a session, `None` if it is not stored.

    Raises:
        sqlite3.DatabaseError: Table and index disagree.
    """
    key = id_key(session_id)
    found = connection.execute(
        f"SELECT {_COLUMNS} FROM sessions INDEXED BY sqlite_autoindex_sessions_1 WHERE id = ?",
        (key,),
    ).fetchone()
    if found is not None:
        return SessionRow(*found)
    # A damaged index must not make a session disappear, or be created for a second time.
    if connection.execute("SELECT 1 FROM sessions NOT INDEXED WHERE id = ?", (key,)).fetchone():
        raise DisagreementError("the index of sessions lacks one that is stored")
    return None


def all_sessions(connection: sqlite3.Connection) -> Iterator[SessionRow]:
    """The rows of all sessions, oldest first."""
    for row in connection.execute(f"SELECT {_COLUMNS} FROM sessions ORDER BY number"):
        yield SessionRow(*row)


def stored_events(
    connection: sqlite3.Connection, number: int, start: int
) -> Sequence[tuple[int, bytes]]:
    """Seqs and encoded events of a session from seq `start` on, in order."""
    return connection.execute(
        "SELECT seq, CAST(event AS BLOB) FROM events WHERE session = ? AND seq >= ? ORDER BY seq",
        (number, start),
    ).fetchall()


def insert_session(
    connection: sqlite3.Connection, header: SessionHeader, batch: EncodedBatch
) -> int:
    """Store a new session with its first events; returns its number."""
    cursor = connection.execute(
        "INSERT INTO sessions (id, header, event_count, size_bytes, writes) "
        "VALUES (?, CAST(? AS TEXT), ?, ?, 1)",
        (
            id_key(header.id),
            encode_json(header_to_json(header)),
            len(batch.rows),
            batch.size_bytes,
        ),
    )
    number = cursor.lastrowid
    assert number is not None
    _insert_events(connection, number, batch)
    return number


def extend_session(
    connection: sqlite3.Connection, number: int, session_id: str, batch: EncodedBatch
) -> bool:
    """Store a batch behind what is there; `False`, and nothing is stored, if its end is another."""
    cursor = connection.execute(
        "UPDATE sessions SET event_count = event_count + ?, size_bytes = size_bytes + ?, "
        "writes = writes + 1 WHERE number = ? AND id = ? AND event_count = ?",
        (len(batch.rows), batch.size_bytes, number, id_key(session_id), batch.start),
    )
    if cursor.rowcount != 1:
        return False
    _insert_events(connection, number, batch)
    return True


def _insert_events(connection: sqlite3.Connection, number: int, batch: EncodedBatch) -> None:
    connection.executemany(
        "INSERT INTO events (session, seq, event) VALUES (?, ?, CAST(? AS TEXT))",
        ((number, seq, row) for seq, row in enumerate(batch.rows, batch.start)),
    )
