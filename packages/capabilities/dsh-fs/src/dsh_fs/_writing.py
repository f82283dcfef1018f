"""Writing and editing files: what must hold, and what becomes of the text.

Blocking; run in worker threads.
"""

import os
from typing import Final

import msgspec

from ._opening import check_regular, folder_of, look_up
from ._publishing import Place, not_observed, publish, stale
from ._reading import decode_text, read_whole
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
    replaces = isinstance(expected, ReplaceIfVersion)
    try:
        # Folders are made for new files only.
        with folder_of(key, make=not replaces) as (folder, name):
            place = Place(folder, name, display, look_up(folder, name))
            _check(place, expected)
            before = _text_before(key, place, len(data))
            exclusive = isinstance(expected, CreateIfAbsent)
            known = expected.version if isinstance(expected, ReplaceIfVersion) else None
            version = publish(place, data, exclusive=exclusive, known=known)
    except FileNotFoundError as error:
        if replaces:
            raise stale(f"{display} is gone", display) from error
        raise os_failure(error, display) from error
    except OSError as error:
        raise os_failure(error, display) from error
    return Change(
        operation="create" if place.status is None else "update",
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
        with folder_of(key) as (folder, name):
            place = Place(folder, name, display, look_up(folder, name))
            if place.status is None:
                raise stale(f"{display} is gone", display)
            _check(place, expected)
            raw, version = _whole_text(key, display)
            before = _lf(raw)
            after, count = _replaced(before, edit, display)
            style = "\r\n" if _prefers_crlf(raw) else "\n"
            data = _encoded(after.replace("\n", style), display)
            known = version if expected is None else expected.version
            version = publish(place, data, exclusive=False, known=known)
    except FileNotFoundError as error:
        raise stale(f"{display} is gone", display) from error
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


def _check(place: Place, expected: WriteExpectation | None) -> None:
    check_regular(place.status, place.display)
    _check_expected(place.status, expected, place.display)
    # Publishing by rename would get around the write protection of a file.
    if place.status is not None and not os.access(place.name, os.W_OK, dir_fd=place.folder):
        raise FsError(f"{place.display} is write-protected", "FS_PERMISSION_DENIED", place.display)


def _check_expected(
    status: os.stat_result | None, expected: WriteExpectation | None, display: str
) -> None:
    if isinstance(expected, CreateIfAbsent):
        if status is not None:
            raise not_observed(display)
    elif isinstance(expected, ReplaceIfVersion):
        if status is None:
            raise stale(f"{display} is gone", display)
        if FsVersion.of(status) != expected.version:
            raise stale(f"{display} has changed since it was read", display)


def _text_before(key: str, place: Place, new_bytes: int) -> str | None:
    status = place.status
    if status is None or max(status.st_size, new_bytes) >= MAX_COMPARED_BYTES:
        return None
    try:
        return _whole_text(key, place.display)[0].removeprefix(_BOM)
    except FsError:
        return None  # the old content is for the record only


def _whole_text(key: str, display: str) -> tuple[str, FsVersion]:
    data, version = read_whole(key, display, MAX_EDITED_BYTES)
    return decode_text(data, display, probe=None), version


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
