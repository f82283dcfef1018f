"""The lock that makes one process the writer of a session.

A non-blocking exclusive `flock` on a small file in a folder beside the database. It dies with its
holder. Giving it back removes the file, which is safe since whoever locks one looks afterwards
whether the locked file is still the one at the path.
"""

import hashlib
import os
import sys
from pathlib import Path
from typing import Final

import structlog
from structlog.typing import FilteringBoundLogger

from dsh_session_persistence import SessionAlreadyOwnedError
from dsh_session_sqlite._creation import make_folders
from dsh_session_sqlite._identity import Inode

log: FilteringBoundLogger = structlog.get_logger(__name__)

_ATTEMPTS: Final = 5
_FLAGS: Final = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
_NAME_LENGTH: Final = 40
_warned_paths: Final[set[Path]] = set()


def lock_path(database: Path, session_id: str) -> Path:
    """The lock file of a session: any id gives a name that every file system takes."""
    digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
    return database.with_name(f"{database.name}-locks") / f"{digest[:_NAME_LENGTH]}.lock"


class Lease:
    """One process's claim on a session; `acquire` takes it, `release` gives it back."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, database: Path, session_id: str) -> "Lease":
        """Take the lock of a session at once, or fail at once.

        Raises:
            SessionAlreadyOwnedError: Somebody else holds it.
            OSError: The system refused for another reason.
        """
        path = lock_path(database, session_id)
        make_folders(path.parent)
        for _ in range(_ATTEMPTS):
            descriptor = os.open(path, _FLAGS, 0o600)
            try:
                _lock(descriptor, path)
                if _same_file(descriptor, path):
                    return cls(path, descriptor)
            except BlockingIOError as error:
                os.close(descriptor)
                raise SessionAlreadyOwnedError(session_id, str(path)) from error
            except BaseException:
                os.close(descriptor)
                raise
            # The file was removed between opening and locking: this lock excludes nobody.
            os.close(descriptor)
        raise SessionAlreadyOwnedError(session_id, str(path))

    def is_held(self) -> bool:
        """Whether the lock still excludes others: the locked file is the one they would lock."""
        return self._descriptor is not None and _same_file(self._descriptor, self.path)

    def release(self) -> None:
        """Give the lock back and remove its file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            # While it is locked: nobody else can hold a lock on this very file.
            if _same_file(descriptor, self.path):
                _remove(self.path)
        finally:
            # Closing the last descriptor of an open file description drops its flock.
            os.close(descriptor)


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return Inode.of(os.fstat(descriptor)) == Inode.of(path.stat())
    except FileNotFoundError:
        return False


if sys.platform == "win32":

    def _lock(descriptor: int, path: Path) -> None:
        """Nothing to lock with here: say so once a database."""
        folder = path.parent
        if folder not in _warned_paths:
            _warned_paths.add(folder)
            log.warning("session.lease_unavailable", locks=str(folder), descriptor=descriptor)

    def _remove(path: Path) -> None:
        """An open file cannot be removed there."""

else:
    import fcntl

    def _lock(descriptor: int, path: Path) -> None:
        """Lock the open file; `BlockingIOError` if somebody holds it."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _remove(path: Path) -> None:
        path.unlink()
