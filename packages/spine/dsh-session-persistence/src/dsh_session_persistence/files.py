"""What stores of files share: folders made durably, files told apart, a root judged."""

import os
from pathlib import Path
from typing import NamedTuple

from dsh_session_persistence.errors import SessionStorageError


class Inode(NamedTuple):
    """Which file it is, whatever its name."""

    device: int
    number: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Inode":
        """The inode that `status` is about."""
        return cls(status.st_dev, status.st_ino)


def sync_path(path: Path) -> None:
    """Make a file, or the names in a folder, survive a crash, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(folder: Path) -> None:
    """Create the folder and what is missing above it, private to the user, durably."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
        sync_path(path.parent)


def check_folder(folder: Path, what: str) -> None:
    """See whether a folder can be read, or else be made; nothing is created.

    Args:
        folder: The folder.
        what: What it is to the user, as in "the root of the session store".

    Raises:
        SessionStorageError: It is something else, or there is no permission.
    """
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise SessionStorageError(f"{what} cannot be made: {existing} is no folder", str(folder))
    if not os.access(existing, os.R_OK | os.X_OK):
        raise SessionStorageError(
            f"{what} cannot be read: no permission for {existing}", str(folder)
        )
