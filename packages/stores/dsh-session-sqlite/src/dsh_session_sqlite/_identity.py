"""Is this file a session database? Judged by its bytes, before SQLite touches anything.

SQLite guards a database with POSIX locks, and closing any descriptor of a file drops every lock
that the process has on it. So the descriptor used for the look stays open as long as connections
of this process use the file, and is shared by all of them.
"""

import os
import stat
import threading
from pathlib import Path
from typing import Final

from dsh_session_persistence import SessionFormatUnsupportedError, SessionStorageError
from dsh_session_persistence.files import Inode

APPLICATION_ID: Final = int.from_bytes(b"DSHS", "big")
SCHEMA_VERSION: Final = 1

COMPANIONS: Final = ("-wal", "-shm", "-journal")
"""What SQLite may put beside a database, by the end of its name."""

_MAGIC: Final = b"SQLite format 3\x00"
_HEADER_SIZE: Final = 100
_VERSION_AT: Final = 60
_APPLICATION_AT: Final = 68
_READ: Final = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)


class CheckedFile:
    """A file known to be a session database; `release` ends the use of it."""

    _shared: Final[dict[Inode, list[int]]] = {}
    """Descriptor and number of users of each file in use."""

    # Invariant: `_shared` has exactly the files in use, and their descriptors are open.
    _guard: Final = threading.Lock()

    def __init__(self, path: Path) -> None:
        """Check the file at `path` unless this process uses it already.

        Raises:
            FileNotFoundError: There is no file.
            SessionStorageError: It is no session database, or a symbolic link.
            SessionFormatUnsupportedError: A newer build made it.
        """
        with self._guard:
            _check_kinds(path)
            self.inode = Inode.of(path.lstat())
            if self.inode not in self._shared:
                self._share(path)
            self._shared[self.inode][1] += 1

    def release(self) -> None:
        """End the use, after the last connection of this user was closed."""
        with self._guard:
            entry = self._shared[self.inode]
            entry[1] -= 1
            if not entry[1]:
                del self._shared[self.inode]
                os.close(entry[0])

    def _share(self, path: Path) -> None:
        descriptor = os.open(path, _READ)
        try:
            self.inode = Inode.of(os.fstat(descriptor))
            _check_header(os.read(descriptor, _HEADER_SIZE), path)
        except BaseException:
            os.close(descriptor)
            raise
        self._shared[self.inode] = [descriptor, 0]


def check_version(version: int, path: Path) -> None:
    """Refuse a schema that is not this build's.

    Raises:
        SessionFormatUnsupportedError: It is newer, or older than the first one.
    """
    if version != SCHEMA_VERSION:
        advice = (
            "a newer build made it: upgrade to use it"
            if version > SCHEMA_VERSION
            else "no build has made such a one"
        )
        raise SessionFormatUnsupportedError(
            f"schema {version} of the session database is not schema {SCHEMA_VERSION}: {advice}",
            str(path),
        )


def check_no_leftovers(path: Path) -> None:
    """Refuse to make a database where another one's companions lie: SQLite would mix them.

    Raises:
        SessionStorageError: There are such files, and no database.
    """
    for companion in _companions(path):
        if companion.exists() and not path.exists():
            raise SessionStorageError(
                f"the database was removed, and {companion.name} of it is left: "
                "bring the database back, or move that file away",
                str(path),
            )


def _companions(path: Path) -> list[Path]:
    return [path.with_name(path.name + ending) for ending in COMPANIONS]


def _check_kinds(path: Path) -> None:
    for file in (path, *_companions(path)):
        try:
            mode = file.lstat().st_mode
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(mode):
            raise SessionStorageError(
                "a session database is never a symbolic link: name the file it leads to", str(file)
            )
        if not stat.S_ISREG(mode):
            raise SessionStorageError(
                "no session database, and no file at all: choose another path", str(file)
            )


def _check_header(header: bytes, path: Path) -> None:
    application = int.from_bytes(header[_APPLICATION_AT : _APPLICATION_AT + 4], "big")
    if not (
        len(header) == _HEADER_SIZE and header.startswith(_MAGIC) and application == APPLICATION_ID
    ):
        raise SessionStorageError(
            "the file is no session database, and was left as it is: choose another path", str(path)
        )
    check_version(int.from_bytes(header[_VERSION_AT : _VERSION_AT + 4], "big"), path)
