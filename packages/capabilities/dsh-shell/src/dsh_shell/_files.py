"""Private files with names that are safe whatever they are made from. Blocking."""

import hashlib
import os
import re
import secrets
import stat
import tempfile
from pathlib import Path
from typing import Final

_MAX_NAME_CHARS: Final = 80


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
    return Path(tempfile.gettempdir()) / f"dsh-spill-{os.getuid()}"


def create_private(directory: Path, name: str) -> tuple[Path, int]:
    """A new file of mode 0600, open for writing, with a random start to its name.

    Raises:
        OSError: It cannot be made, or a folder on the way belongs to somebody else.
    """
    for folder in (directory.parent, directory):
        _private_folder(folder)
    path = directory / f"{secrets.token_hex(8)}-{name}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return path, os.open(path, flags, 0o600)


def _private_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        status = folder.lstat()
        # Somebody else may have made it first in a shared temp folder, to read along.
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise PermissionError(f"{folder} is not a folder of this user") from None
