"""Private files with names that are safe whatever they are made from. Blocking."""

import errno
import hashlib
import os
import re
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

MAX_SESSION_BYTES: Final = 1024**3
"""Saved for one session; beyond it nothing more is, so that no loop of commands fills the disk."""
_MAX_NAME_CHARS: Final = 80
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def safe_name(text: str) -> str:
    """`text` as part of a file name: letters, digits, dot, dash, underscore; bounded."""
    reduced = re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:_MAX_NAME_CHARS].strip(".-")
    return reduced or "text"


def session_folder(root: Path, owner: str) -> Path:
    """The folder of one owner below a spill root."""
    digest = hashlib.sha256(owner.encode("utf-8", "surrogatepass")).hexdigest()
    return root / f"session-{digest[:16]}"


def default_spill_root() -> Path:
    """Where outputs go unless the configuration names a place; private to the user."""
    return Path(tempfile.gettempdir()).resolve() / f"dsh-spill-{os.getuid()}"


def create_private(directory: Path, name: str) -> tuple[Path, int]:
    """A new file of mode 0600, open for writing, with a random start to its name.

    Args:
        directory: Real path; it and the folder above it are made for this user only. A command may
            be free to change what lies there, so no link is followed, wherever one is put.
        name: Safe part of the file's name.

    Raises:
        OSError: It cannot be made, the directory is full, or belongs to somebody else.
    """
    folder = _open_private(directory)
    try:
        _check_room(folder)
        file = f"{secrets.token_hex(8)}-{name}"
        return directory / file, os.open(file, _NEW_FILE, 0o600, dir_fd=folder)
    finally:
        os.close(folder)


def _open_private(directory: Path) -> int:
    descriptor = os.open(directory.anchor, _FOLDER)
    try:
        for depth, name in enumerate(directory.parts[1:], start=3 - len(directory.parts)):
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=descriptor)
            above, descriptor = descriptor, os.open(name, _FOLDER, dir_fd=descriptor)
            os.close(above)
            # Somebody else may have made it first in a shared temp folder, to read along.
            if depth >= 0 and os.fstat(descriptor).st_uid != os.getuid():
                raise PermissionError(errno.EPERM, f"{name} belongs to another user")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_room(folder: int) -> None:
    with os.scandir(folder) as entries:
        used = sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
    if used >= MAX_SESSION_BYTES:
        raise OSError(errno.EDQUOT, f"{used} bytes are saved for this session already")
