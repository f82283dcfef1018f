"""Reading files as bytes, as text and by lines. Blocking; run in worker threads."""

import codecs
from collections.abc import Callable, Generator, Iterator
from typing import BinaryIO, Final

from ._opening import opened
from .errors import FsError
from .types import FsText, FsVersion, LineWindow

BINARY_PROBE_BYTES: Final = 8192
MAX_TEXT_BYTES: Final = 10 * 1024 * 1024
_CHUNK_BYTES: Final = 256 * 1024
_BOM: Final = codecs.BOM_UTF8

Check = Callable[[], None]
"""Raises when the work is no longer wanted."""


def read_bytes(key: str, display: str, max_bytes: int) -> bytes:
    """The first `max_bytes` bytes."""
    with opened(key, display) as (file, _):
        return b"".join(_chunks(file, max_bytes))


def read_text(key: str, display: str) -> FsText:
    """The whole file as text, without its byte order mark.

    Raises:
        FsError: It is not text, or too large.
    """
    data, version = read_whole(key, display, MAX_TEXT_BYTES)
    return FsText(decode_text(data, display).removeprefix("\ufeff"), version)


def read_whole(key: str, display: str, max_bytes: int) -> tuple[bytes, FsVersion]:
    """All bytes of a file, and its version.

    Raises:
        FsError: There are more than `max_bytes`.
    """
    with opened(key, display) as (file, status):
        # One more than allowed: what a file holds and what it says may differ.
        data = b"" if status.st_size > max_bytes else b"".join(_chunks(file, max_bytes + 1))
        size = max(status.st_size, len(data))
        if size > max_bytes:
            raise FsError(
                f"{display} has {size} bytes; at most {max_bytes} are handled as a whole",
                "FS_TOO_LARGE",
                display,
            )
    return data, FsVersion.of(status)


def decode_text(data: bytes, display: str, *, probe: int | None = BINARY_PROBE_BYTES) -> str:
    """Bytes as UTF-8 text; nothing is translated.

    Args:
        data: Of the whole file.
        display: For the message.
        probe: How many bytes are searched for NUL; `None` for all.

    Raises:
        FsError: They are not text.
    """
    if b"\0" in (data if probe is None else data[:probe]):
        raise _not_text(display)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_text(display) from error


def read_lines(
    key: str, display: str, *, offset: int, limit: int, max_bytes: int, max_chars: int, check: Check
) -> LineWindow:
    """A window of lines, in memory that does not depend on the size of the file.

    Args:
        key: Of the file.
        display: For messages.
        offset: First line, from 1.
        limit: Most lines.
        max_bytes: Most bytes of them; whole lines only, but at least one.
        max_chars: Longer lines are cut, which `cut` marks.
        check: Called between chunks.

    Raises:
        FsError: It is not text, or has no such line.
    """
    with opened(key, display) as (file, status):
        window = _Window(offset, limit, max_bytes, max_chars)
        for line in _lines(file, display, max_chars, check):
            window.add(line)
    if offset > max(window.total, 1):
        raise FsError(
            f"{display} has {window.total} lines, so there is no line {offset}; "
            "use a smaller offset",
            "FS_NOT_FOUND",
            display,
        )
    return LineWindow(
        lines=tuple(window.lines),
        offset=offset,
        total_lines=window.total,
        capped=window.capped,
        version=FsVersion.of(status),
    )


class _Window:
    def __init__(self, offset: int, limit: int, max_bytes: int, max_chars: int) -> None:
        self._first, self._last = offset, offset + limit - 1
        self._bytes_left = max_bytes
        self._max_chars = max_chars
        self.lines: list[str] = []
        self.total = 0
        self.capped = False

    def add(self, line: str) -> None:
        self.total += 1
        if self.capped or not self._first <= self.total <= self._last:
            return
        if len(line) > self._max_chars:
            line = f"{line[: self._max_chars]}... (line truncated to {self._max_chars} chars)"
        size = len(line.encode("utf-8")) + 1
        if size > self._bytes_left and self.lines:
            self.capped = True
            return
        self._bytes_left -= size
        self.lines.append(line)


def text_pieces(key: str, display: str) -> Generator[str, None, None]:
    """The text of a file in pieces of any length; closing the iterator closes the file.

    Raises:
        FsError: It is not text.
    """
    with opened(key, display) as (file, _):
        yield from _decoded(file, display)


def _decoded(file: BinaryIO, display: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    started, probed = False, 0
    try:
        for chunk in _chunks(file, None):
            if probed < BINARY_PROBE_BYTES and b"\0" in chunk[: BINARY_PROBE_BYTES - probed]:
                raise _not_text(display)
            probed += len(chunk)
            text = decoder.decode(chunk)
            if text and not started:
                started, text = True, text.removeprefix("\ufeff")
            if text:
                yield text
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise _not_text(display) from error


def _lines(file: BinaryIO, display: str, max_chars: int, check: Check) -> Iterator[str]:
    """Lines without their ends; of overlong ones no more than is needed to see that they are."""
    pending = ""
    for text in _decoded(file, display):
        check()
        *complete, rest = (pending + text).split("\n")
        yield from (line.removesuffix("\r") for line in complete)
        # A CR may still turn out to belong to the line end, so two more characters are kept.
        pending = rest if len(rest) <= max_chars + 2 else rest[: max_chars + 1] + rest[-1]
    if pending:
        yield pending


def _chunks(file: BinaryIO, max_bytes: int | None) -> Iterator[bytes]:
    left = max_bytes
    while left is None or left > 0:
        chunk = file.read(_CHUNK_BYTES if left is None else min(left, _CHUNK_BYTES))
        if not chunk:
            return
        if left is not None:
            left -= len(chunk)
        yield chunk


def _not_text(display: str) -> FsError:
    return FsError(f"{display} is not a UTF-8 text file", "FS_NOT_TEXT", display)
