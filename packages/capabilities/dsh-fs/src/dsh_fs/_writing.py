"""Writing and editing files: staged beside the target, then published in one step.

Blocking; run in worker threads. A reader sees the old file or the new one, never a part.
"""

import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from ._reading import decode_text, opened
from .errors import FsError, os_failure
from .types import Change, CreateIfAbsent, FsVersion, ReplaceIfVersion, WriteExpectation

MAX_COMPARED_BYTES: Final = 10 * 1024 * 1024
"""Larger texts are not kept as the `before` of a change."""
MAX_EDITED_BYTES: Final = 100 * 1024 * 1024
_NEWLINE_PROBE_CHARS: Final = 4096
_BOM: Final = "\ufeff"


class Edit(msgspec.Struct, frozen=True):
    """A literal replacement."""

    old: str
    new: str
    replace_all: bool = False


def write_text(key: str, display: str, content: str, expected: WriteExpectation | None) -> Change:
    """Write the whole file, verbatim.

    Raises:
        FsError: The expectation does not hold, or the file cannot be written.
    """
    data = _encoded(content, display)
    try:
        status = _status(key)
        _check_writable(status, display)
        _check_expected(status, expected, display)
        _check_mode(key, status, display)
        before = _text_before(key, display, status, len(data))
        Path(key).parent.mkdir(parents=True, exist_ok=True)
        exclusive = isinstance(expected, CreateIfAbsent)
        version = _publish(key, display, data, status, exclusive=exclusive)
    except OSError as error:
        raise os_failure(error, display) from error
    return Change(
        operation="create" if status is None else "update",
        before=None if before is None else _lf(before),
        after=_lf(content),
        version=version,
    )


def edit_text(key: str, display: str, edit: Edit, expected: ReplaceIfVersion | None) -> Change:
    """Replace a text that occurs in the file, keeping its style of line ends.

    Raises:
        FsError: The text does not occur, or occurs more than once, or the file changed.
    """
    try:
        status = _status(key)
        if status is None:
            raise _stale(f"{display} is gone", display)
        _check_writable(status, display)
        _check_expected(status, expected, display)
        _check_mode(key, status, display)
        raw = _whole_text(key, display, status)
        before = _lf(raw)
        after, count = _replaced(before, edit, display)
        style = "\r\n" if _prefers_crlf(raw) else "\n"
        data = _encoded(after.replace("\n", style), display)
        version = _publish(key, display, data, status, exclusive=False)
    except OSError as error:
        raise os_failure(error, display) from error
    return Change(
        operation="update",
        before=before.removeprefix(_BOM),
        after=after.removeprefix(_BOM),
        version=version,
        replaced=count,
    )


# ---- what is there --------------------------------------------------------------------------


def _status(key: str) -> os.stat_result | None:
    try:
        return os.lstat(key)
    except FileNotFoundError:
        return None


def _check_writable(status: os.stat_result | None, display: str) -> None:
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise FsError(f"{display} is no regular file", "FS_NOT_REGULAR_FILE", display)


def _check_mode(key: str, status: os.stat_result | None, display: str) -> None:
    # Publishing by rename would get around the write protection of a file.
    if status is not None and not os.access(key, os.W_OK):
        raise FsError(f"{display} is write-protected", "FS_PERMISSION_DENIED", display)


def _check_expected(
    status: os.stat_result | None, expected: WriteExpectation | None, display: str
) -> None:
    if isinstance(expected, CreateIfAbsent):
        if status is not None:
            raise _not_observed(display)
    elif isinstance(expected, ReplaceIfVersion):
        if status is None:
            raise _stale(f"{display} is gone", display)
        if FsVersion.of(status) != expected.version:
            raise _stale(f"{display} has changed since it was read", display)


def _text_before(
    key: str, display: str, status: os.stat_result | None, new_bytes: int
) -> str | None:
    if status is None or max(status.st_size, new_bytes) >= MAX_COMPARED_BYTES:
        return None
    try:
        return _whole_text(key, display, status).removeprefix(_BOM)
    except FsError:
        return None  # the old content is for the record only


def _whole_text(key: str, display: str, status: os.stat_result) -> str:
    if status.st_size > MAX_EDITED_BYTES:
        raise FsError(
            f"{display} has {status.st_size} bytes; at most {MAX_EDITED_BYTES} can be edited",
            "FS_TOO_LARGE",
            display,
        )
    with opened(key, display) as (file, _):
        return decode_text(file.read(), display, probe=None)


# ---- text -----------------------------------------------------------------------------------


def _lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def _prefers_crlf(text: str) -> bool:
    head = text[:_NEWLINE_PROBE_CHARS]
    pairs = head.count("\r\n")
    return pairs > head.count("\n") - pairs


def _replaced(text: str, edit: Edit, display: str) -> tuple[str, int]:
    old, new = _lf(edit.old), _lf(edit.new)
    count = text.count(old) if old else 0
    if count == 0:
        raise FsError(
            f"the text to replace does not occur in {display}; read it and copy the text exactly",
            "FS_EDIT_NOT_FOUND",
            display,
        )
    if count > 1 and not edit.replace_all:
        raise FsError(
            f"the text to replace occurs {count} times in {display}; give more of its "
            "surroundings, or replace all",
            "FS_AMBIGUOUS_EDIT",
            display,
        )
    return text.replace(old, new), count


def _encoded(text: str, display: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FsError(
            f"the text for {display} holds half a character at position {error.start}",
            "FS_NOT_TEXT",
            display,
        ) from error


# ---- publishing -----------------------------------------------------------------------------


def _publish(
    key: str, display: str, data: bytes, status: os.stat_result | None, *, exclusive: bool
) -> FsVersion:
    parent = Path(key).parent
    staging = Path(tempfile.mkdtemp(prefix=".dsh-stage-", dir=parent))
    try:
        staged = staging / "new"
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if status is not None:
                os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
            os.fsync(descriptor)
            if exclusive:
                _link(staged, key, display)
                staged.unlink()
            else:
                staged.replace(key)
            # Asked of the open file: another writer may have replaced the name already.
            return FsVersion.of(os.fstat(descriptor))
    finally:
        with suppress(OSError):
            shutil.rmtree(staging)


def _link(staged: Path, key: str, display: str) -> None:
    """Publish without replacing: a competitor's file survives."""
    try:
        os.link(staged, key, follow_symlinks=False)
    except FileExistsError:
        _check_writable(_status(key), display)
        raise _not_observed(display) from None
    except OSError as error:
        raise FsError(
            f"{display} cannot be created without risk of overwriting: {error.strerror}",
            "FS_IO_ERROR",
            display,
            error,
        ) from error


def _not_observed(display: str) -> FsError:
    return FsError(
        f"{display} exists and was not read before; read it, then retry", "FS_NOT_OBSERVED", display
    )


def _stale(reason: str, display: str) -> FsError:
    return FsError(f"{reason}; read it again, then retry", "FS_STALE_VERSION", display)
