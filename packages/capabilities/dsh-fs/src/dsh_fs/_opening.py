"""Opening by real paths, without following any link. Blocking; run in worker threads.

A real path has no links. One that stands on it now was put there since it was judged, to lead
elsewhere; so each folder is opened in the one above it, and what happens in the last one happens
there, wherever its name leads meanwhile.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from .errors import FsError, os_failure

# Looking names up in a folder does not need the right to list it, where the system can tell both.
_PASSING: Final = getattr(os, "O_PATH", os.O_RDONLY)
_FOLDER: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a pipe that was put there since it was looked at would wait for its other end.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def folder_of(key: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """The folder of a file, open, and the name of the file in it.

    Args:
        key: Real path of the file.
        make: Make folders that are missing.

    Raises:
        OSError: A folder is missing, or is none, such as a link.
    """
    _, *parents = Path(key).parts
    name = parents.pop() if parents else "."
    descriptor = os.open(os.sep, _PASSING | _FOLDER)
    try:
        for parent in parents:
            above, descriptor = descriptor, _inside(descriptor, parent, make=make)
            os.close(above)
        yield descriptor, name
    finally:
        os.close(descriptor)


def _inside(folder: int, name: str, *, make: bool) -> int:
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
    return os.open(name, _PASSING | _FOLDER, dir_fd=folder)


def look_up(folder: int, name: str) -> os.stat_result | None:
    """Status of what has this name; `None` if nothing has."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def open_listing(key: str) -> int:
    """A folder, open for listing it; the caller closes it.

    Raises:
        OSError: It is missing, or no folder.
    """
    with folder_of(key) as (above, name):
        return os.open(name, os.O_RDONLY | _FOLDER, dir_fd=above)


@contextmanager
def opened(key: str, display: str) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """A regular file, open for reading, and its status.

    Raises:
        FsError: It is missing, no regular file, or cannot be opened.
    """
    try:
        with folder_of(key) as (folder, name):
            # Looked at first: opening a device may do something.
            check_regular(os.stat(name, dir_fd=folder, follow_symlinks=False), display)
            descriptor = os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        raise os_failure(error, display) from error
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        check_regular(status, display)
        try:
            yield file, status
        except OSError as error:
            raise os_failure(error, display) from error


def check_regular(status: os.stat_result | None, display: str) -> None:
    """Refuse what is there and is no regular file.

    Raises:
        FsError: It is a folder, a link, a pipe, a device.
    """
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise FsError(f"{display} is no regular file", "FS_NOT_REGULAR_FILE", display)
