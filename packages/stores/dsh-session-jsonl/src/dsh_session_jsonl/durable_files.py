"""Durable file operations, all blocking: write, cut, publish, sync."""

import os
import secrets
from pathlib import Path
from typing import Final

from dsh_session_persistence.files import sync_path

_BINARY: Final = getattr(os, "O_BINARY", 0)
"""Windows alone has a text mode, which would translate line ends."""


def open_to_append(path: Path) -> int:
    """Open an existing file so that every write goes to its end."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | _BINARY)


def write_durably(descriptor: int, data: bytes) -> None:
    """Write everything at the end of the file and wait for the disk."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.fsync(descriptor)


def cut_durably(descriptor: int, size: int) -> None:
    """Cut the file to `size` bytes and wait for the disk."""
    os.ftruncate(descriptor, size)
    os.fsync(descriptor)


def append_durably(descriptor: int, size: int, data: bytes) -> None:
    """Add `data` to a file of `size` bytes: all of it, or the file is as before.

    Raises:
        OSError: It could not be written; the file is as before.
        ExceptionGroup: Neither writing nor cutting back worked; bytes past `size` may remain.
    """
    try:
        write_durably(descriptor, data)
    except OSError as error:
        try:
            cut_durably(descriptor, size)
        except OSError as second:
            raise ExceptionGroup(
                "a batch could not be written, nor its beginning be cut off again",
                [error, second],
            ) from None
        raise


def publish(target: Path, data: bytes) -> None:
    """Make a new file appear at `target`, complete and durable.

    No part of it is ever visible under that name.

    Raises:
        FileExistsError: There is a file; it is untouched.
    """
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)
    try:
        try:
            write_durably(descriptor, data)
        finally:
            os.close(descriptor)
        _link_without_overwrite(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    try:
        sync_path(target.parent)
    except BaseException:
        # A name that may not survive a crash is no name: the caller tries again.
        target.unlink(missing_ok=True)
        raise


def _link_without_overwrite(source: Path, target: Path) -> None:
    if os.name == "nt":
        # Renaming never overwrites there.
        source.rename(target)
    else:
        target.hardlink_to(source)
