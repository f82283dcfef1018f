"""Publishing new content in one step: a reader sees the old file or the new one, never a part."""

import os
import secrets
import stat
from contextlib import suppress
from typing import Final

import msgspec

from ._opening import check_regular, look_up
from .errors import FsError
from .types import FsVersion

_STAGED: Final = "new"


class Place(msgspec.Struct, frozen=True):
    """Where a file goes: its folder, open, its name there, and what has that name now."""

    folder: int
    name: str
    display: str
    status: os.stat_result | None


def publish(place: Place, data: bytes, *, exclusive: bool, known: FsVersion | None) -> FsVersion:
    """Stage the content beside the file, then put it in its place.

    Args:
        place: The file; an existing one gives its mode, a new one is private.
        data: All of it.
        exclusive: Replace nothing.
        known: Replace this version only, as far as can be told right before.

    Raises:
        FsError: Somebody was faster.
        OSError: The system refuses.
    """
    staging = f".dsh-stage-{secrets.token_hex(8)}"
    os.mkdir(staging, 0o700, dir_fd=place.folder)
    inner = os.open(staging, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place.folder)
    try:
        descriptor = _stage(inner, place.status, data)
        with os.fdopen(descriptor, "rb"):
            if exclusive:
                _link(inner, place)
            else:
                _check_unchanged(place, known)
                os.replace(_STAGED, place.name, src_dir_fd=inner, dst_dir_fd=place.folder)
            with suppress(FileNotFoundError):
                os.unlink(_STAGED, dir_fd=inner)
            # Asked of the open file: another writer may have replaced the name already.
            return FsVersion.of(os.fstat(descriptor))
    finally:
        with suppress(OSError):
            os.unlink(_STAGED, dir_fd=inner)
        os.close(inner)
        with suppress(OSError):
            os.rmdir(staging, dir_fd=place.folder)


def _stage(staging: int, status: os.stat_result | None, data: bytes) -> int:
    """The content in a new file, on disk; the caller closes it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(_STAGED, flags, 0o600, dir_fd=staging)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if status is not None:
            # As when a file is written in place, a new text is not run with another's rights.
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & 0o777)
        os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _link(staging: int, place: Place) -> None:
    """Publish without replacing: a competitor's file survives."""
    try:
        os.link(
            _STAGED,
            place.name,
            src_dir_fd=staging,
            dst_dir_fd=place.folder,
            follow_symlinks=False,
        )
    except FileExistsError:
        check_regular(look_up(place.folder, place.name), place.display)
        raise not_observed(place.display) from None
    except OSError as error:
        raise FsError(
            f"{place.display} cannot be created without risk of overwriting: {error.strerror}",
            "FS_IO_ERROR",
            place.display,
            error,
        ) from error


def _check_unchanged(place: Place, known: FsVersion | None) -> None:
    if known is None:
        return
    status = look_up(place.folder, place.name)
    if status is None or FsVersion.of(status) != known:
        raise stale(f"{place.display} was changed at the same time", place.display)


def not_observed(display: str) -> FsError:
    """Somebody would overwrite what he has not seen."""
    return FsError(
        f"{display} exists and was not read before; read it, then retry", "FS_NOT_OBSERVED", display
    )


def stale(reason: str, display: str) -> FsError:
    """Somebody would overwrite what has changed."""
    return FsError(f"{reason}; read it again, then retry", "FS_STALE_VERSION", display)
