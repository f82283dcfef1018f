"""Making the database: complete and durable under its name, or not there at all."""

import contextlib
import os
import secrets
import sqlite3
from pathlib import Path
from typing import Final

from dsh_session_persistence.files import make_folders, sync_path
from dsh_session_sqlite._identity import (
    APPLICATION_ID,
    COMPANIONS,
    SCHEMA_VERSION,
    check_no_leftovers,
)

_SCHEMA: Final = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE,
    header TEXT NOT NULL,
    event_count INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    writes INTEGER NOT NULL
);
CREATE TABLE events (
    session INTEGER NOT NULL REFERENCES sessions (number),
    seq INTEGER NOT NULL,
    event TEXT NOT NULL,
    UNIQUE (session, seq)
);
PRAGMA journal_mode = WAL;
"""
# An id is bytes since it may hold what no UTF-8 text can. A row of events keeps its rowid:
# SQLite stores rows of a kilobyte and more badly in a table that is its own index.


def make_database(path: Path) -> None:
    """Make the database unless it is there, and its name durable.

    Raises:
        OSError: The folder or the file could not be made.
        sqlite3.Error: The disk refused.
        SessionStorageError: Files of a removed database are in the way.
    """
    make_folders(path.parent)
    if not path.exists():
        check_no_leftovers(path)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        try:
            _build(temporary)
            # A link never overwrites: whoever was faster has made the same.
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(temporary)
        finally:
            for ending in ("", *COMPANIONS):
                temporary.with_name(temporary.name + ending).unlink(missing_ok=True)
    sync_path(path.parent)


def _build(file: Path) -> None:
    # SQLite gives the files beside a database the mode of the database.
    os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.executescript(_SCHEMA)
    sync_path(file)
