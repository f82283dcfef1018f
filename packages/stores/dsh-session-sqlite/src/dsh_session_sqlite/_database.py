"""One process's use of the database: a connection that is open while somebody needs it."""

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from dsh_session_persistence import SessionPersistenceCorruptionError, SessionStorageError
from dsh_session_persistence.files import Inode
from dsh_session_sqlite._creation import make_database
from dsh_session_sqlite._identity import CheckedFile, check_version

_BUSY_S: Final = 10.0
"""How long a transaction waits for one of another process."""

_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""What SQLite says of broken pages, and (our statements being fixed) of missing tables."""

_SETTINGS: Final = (
    # FULL: a commit returns when the disk has it.
    "PRAGMA synchronous = FULL",
    "PRAGMA journal_mode = WAL",
    # What the file says about functions and views is not to be believed.
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
)


class Database:
    """The database at one path, for all threads of a store.

    The connection opens for a transaction and closes behind it, unless a log holds the database
    meanwhile; the last one to close in the whole system merges SQLite's companion files away.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._users = 0
        self._connection: sqlite3.Connection | None = None
        self._file: CheckedFile | None = None
        self._made = False
        # Invariant: one thread at a time uses the connection and the fields above.
        self._lock = threading.Lock()

    def make(self) -> None:
        """Make the database unless it exists."""
        with self._lock:
            if not (self._made and self.path.exists()):
                make_database(self.path)
                self._made = True

    def hold(self) -> None:
        """Keep the connection open until `release`."""
        with self._lock:
            self._enter()

    def release(self) -> None:
        """End what `hold` began."""
        with self._lock:
            self._leave()

    def displaced(self) -> str | None:
        """Why what is written here would be lost: the file in use is not the one at the path."""
        with self._lock:
            return self._displaced()

    @contextlib.contextmanager
    def transaction(self, kind: Literal["DEFERRED", "IMMEDIATE"]) -> Iterator[sqlite3.Connection]:
        """Run statements as one: `DEFERRED` to read one state, `IMMEDIATE` to write.

        Raises:
            FileNotFoundError: There is no database.
            sqlite3.Error: It failed; nothing of it is stored.
            SessionStorageError: The file was removed or replaced while it was in use.
        """
        with self._lock:
            connection = self._enter()
            try:
                reason = self._displaced()
                if reason is not None:
                    raise SessionStorageError(
                        f"{reason} while it was in use: close its sessions", str(self.path)
                    )
                connection.execute(f"BEGIN {kind}")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    self._roll_back(connection)
                    raise
            finally:
                self._leave()

    def _enter(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connect()
        self._users += 1
        assert self._connection is not None
        return self._connection

    def _leave(self) -> None:
        self._users -= 1
        if not self._users:
            self._disconnect()

    def _connect(self) -> None:
        self._file = self._file or CheckedFile(self.path)
        try:
            connection = self._connection = _open(self.path)
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            check_version(version, self.path)
            for setting in _SETTINGS:
                connection.execute(setting)
        except BaseException:
            self._disconnect()
            raise

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        file, self._file = self._file, None
        try:
            if connection is not None:
                connection.close()
        finally:
            if file is not None:
                file.release()

    def _displaced(self) -> str | None:
        try:
            at_path = Inode.of(self.path.lstat())
        except FileNotFoundError:
            return f"{self.path} was removed"
        if self._file is not None and self._file.inode != at_path:
            return f"{self.path} was replaced"
        return None

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        if not connection.in_transaction:
            return
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            # Closing gives the transaction up for certain; the next one connects anew.
            connection.close()
            self._connection = None


def _open(path: Path) -> sqlite3.Connection:
    """Connect to an existing file; any thread may use it, one at a time."""
    return sqlite3.connect(
        f"{path.as_uri()}?mode=rw",
        uri=True,
        timeout=_BUSY_S,
        isolation_level=None,
        check_same_thread=False,
    )


@contextlib.contextmanager
def explained(action: str, location: str) -> Iterator[None]:
    """Say what was not possible and where, whatever SQLite's or the system's own words are."""
    try:
        yield
    except sqlite3.Error as error:
        # An extended code has the primary one in its lowest byte.
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
            raise _damaged(action, location, error) from error
        raise SessionStorageError(action, location, cause=error) from error
    except UnicodeDecodeError as error:
        # SQLite's own message quotes what it found in the schema, and that is no text.
        raise _damaged(action, location, error) from error
    except OSError as error:
        raise SessionStorageError(action, location, cause=error) from error


def _damaged(action: str, location: str, error: Exception) -> SessionPersistenceCorruptionError:
    return SessionPersistenceCorruptionError(
        f"{action}: the database is damaged: {error}", location, cause=error
    )
