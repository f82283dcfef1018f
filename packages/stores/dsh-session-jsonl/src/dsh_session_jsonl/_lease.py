"""The lock that makes one process the writer of a session. Upstream: session-jsonl lease.

A non-blocking exclusive `flock` on a file beside the log. It dies with its holder, so the file is
never removed: whoever removes it by hand forfeits the exclusion of a wedged holder.
"""

import os
import sys
from pathlib import Path
from typing import Final

import structlog
from structlog.typing import FilteringBoundLogger

from dsh_session_jsonl.layout import LOCK_NAME
from dsh_session_persistence import SessionAlreadyOwnedError

log: FilteringBoundLogger = structlog.get_logger(__name__)

_ATTEMPTS: Final = 3
_warned_paths: Final[set[Path]] = set()


class Lease:
    """One process's claim on a session folder; `acquire` takes it, `release` gives it back."""

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, folder: Path, session_id: str) -> "Lease":
        """Take the lock of an existing session folder at once, or fail at once.

        Raises:
            SessionAlreadyOwnedError: Somebody else holds it.
            OSError: The system refused for another reason.
        """
        path = folder / LOCK_NAME
        for _ in range(_ATTEMPTS):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
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
            # The file was replaced between opening and locking: this lock excludes nobody.
            os.close(descriptor)
        raise SessionAlreadyOwnedError(session_id, str(path))

    def is_held(self) -> bool:
        """Whether the lock still excludes others: the locked file is the one they would lock."""
        return self._descriptor is not None and _same_file(self._descriptor, self.path)

    def release(self) -> None:
        """Give the lock back; the file stays."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # Closing the last descriptor of an open file description drops its flock.
            os.close(descriptor)


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        at_path = path.stat()
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (held.st_dev, held.st_ino) == (at_path.st_dev, at_path.st_ino)


if sys.platform == "win32":

    def _lock(descriptor: int, path: Path) -> None:
        """Nothing to lock with here: say so once a root."""
        root = path.parents[2]
        if root not in _warned_paths:
            _warned_paths.add(root)
            log.warning("session.lease_unavailable", root=str(root), descriptor=descriptor)

else:
    import fcntl

    def _lock(descriptor: int, path: Path) -> None:
        """Lock the open file; `BlockingIOError` if somebody holds it."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
