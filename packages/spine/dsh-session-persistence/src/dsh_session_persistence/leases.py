"""The lock that makes one process the writer of a session. Upstream: session-jsonl lease.

A non-blocking exclusive `flock` on a small file. It dies with its holder, so a killed writer bars
nobody; whoever removes the file by hand forfeits the exclusion of a wedged holder.
"""

import os
import sys
from pathlib import Path
from typing import Final, Protocol

from typing_extensions import override

from dsh_session_persistence._log import log
from dsh_session_persistence.errors import SessionAlreadyOwnedError
from dsh_session_persistence.files import Inode

_ATTEMPTS: Final = 3
_FLAGS: Final = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)


class Claim(Protocol):
    """What excludes other writers of a session, in this process and in others."""

    def is_held(self) -> bool:
        """Whether it still excludes them."""
        ...

    def release(self) -> None:
        """Give it up."""
        ...


class Lease(Claim):
    """A claim by a lock file; `acquire` takes it."""

    def __init__(self, path: Path, descriptor: int, *, remove: bool) -> None:
        self.path = path
        self._descriptor: int | None = descriptor
        self._remove = remove

    @classmethod
    def acquire(cls, path: Path, session_id: str, *, remove: bool = False) -> "Lease":
        """Take the lock at once, or fail at once.

        Args:
            path: The lock file, in a folder that exists; made if it is missing.
            session_id: Whose writer this is.
            remove: Remove the file at the end. Safe, since whoever locks one looks afterwards
                whether the locked file is still the one at the path.

        Raises:
            SessionAlreadyOwnedError: Somebody else holds it.
            OSError: The system refused for another reason.
        """
        for _ in range(_ATTEMPTS):
            descriptor = os.open(path, _FLAGS, 0o600)
            try:
                _lock(descriptor)
                if _is_at(path, descriptor):
                    return cls(path, descriptor, remove=remove)
            except BlockingIOError as error:
                os.close(descriptor)
                raise SessionAlreadyOwnedError(session_id, str(path)) from error
            except BaseException:
                os.close(descriptor)
                raise
            # The file was replaced between opening and locking: this lock excludes nobody.
            os.close(descriptor)
        raise SessionAlreadyOwnedError(session_id, str(path))

    @override
    def is_held(self) -> bool:
        """Whether the lock still excludes others: the locked file is the one they would lock."""
        return self._descriptor is not None and _is_at(self.path, self._descriptor)

    @override
    def release(self) -> None:
        """Give the lock back."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            # While it is locked: nobody else can hold a lock on this very file.
            if self._remove and _is_at(self.path, descriptor):
                _remove(self.path)
        finally:
            # Closing the last descriptor of an open file description drops its flock.
            os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return Inode.of(os.fstat(descriptor)) == Inode.of(path.stat())
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    _warned: Final[list[bool]] = []

    def _lock(descriptor: int) -> None:
        """Nothing to lock with here: say so once."""
        if not _warned:
            _warned.append(True)
            log().warning("session.lease_unavailable", descriptor=descriptor)

    def _remove(path: Path) -> None:
        """An open file cannot be removed there."""

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        """Lock the open file; `BlockingIOError` if somebody holds it."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _remove(path: Path) -> None:
        path.unlink()
