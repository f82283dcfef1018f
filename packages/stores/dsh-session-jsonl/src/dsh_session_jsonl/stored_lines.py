"""The lines of a log with their places, read in pieces.

No file, whatever is in it, takes more memory than the longest line that may be read.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from dsh_session_jsonl import zstd_frames
from dsh_session_jsonl.layout import Compression

MAX_LINE_BYTES: Final = 1 << 28
"""Longest line that is read or written: half of what the reference can hold in one string."""

MAX_HEADER_BYTES: Final = 1 << 20
"""Longest header line that is read or written."""

_PIECE: Final = 1 << 17
_BINARY: Final = getattr(os, "O_BINARY", 0)
_NEVER_WAIT: Final = getattr(os, "O_NONBLOCK", 0)


class Line(NamedTuple):
    """One line."""

    number: int
    """1 is the header."""
    offset: int
    """Byte of the file where it begins; in a compressed log, where its frame begins."""
    length: int
    """Without the line end."""
    text: bytes | None
    """`None` when it has no end, or is longer than what may be read."""
    ended: bool
    """False for what stands behind the last line end."""


class Lines(NamedTuple):
    """Whole lines behind one another, none of them too long."""

    number: int
    """Of the first one; 1 is the header."""
    offset: int
    """Byte of the file where the first one begins; in a compressed log, where their frame does."""
    texts: Sequence[bytes]


class FrameEnd(NamedTuple):
    """The end of a frame of a compressed log; its lines came before."""

    offset: int
    """Where the frame begins."""
    end: int
    """Where the next one would begin."""
    complete: bool
    lines: int
    """How many ended lines it holds."""


class NotAFileError(OSError):
    """Something else than a file stands where a log should be."""


def open_log(path: Path) -> BinaryIO:
    """Open a regular file; nothing that blocks, such as a pipe.

    Raises:
        NotAFileError: It is something else.
        OSError: It cannot be opened.
    """
    # Looked at first, since opening a device may already do something, and again afterwards,
    # since a pipe may have taken the name meanwhile; opening that one must not wait.
    _check_regular(path, path.stat())
    descriptor = os.open(path, os.O_RDONLY | _BINARY | _NEVER_WAIT)
    try:
        _check_regular(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read_lines(
    file: BinaryIO,
    compression: Compression,
    *,
    start: int = 0,
    lines_before: int = 0,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> Iterator[Lines | Line | FrameEnd]:
    """The lines of a log, many at a time where they are ordinary.

    In a compressed log each frame is followed by its end.

    Args:
        file: The log.
        compression: How it is encoded.
        start: Byte at which a line, or a frame, begins.
        lines_before: How many lines stand before it.
        max_line_bytes: Of a longer line only the length is told.

    Raises:
        BadFrameError: No crash explains this frame; what came before is good.
    """
    splitter = _Splitter(max_line_bytes, lines_before)
    if compression == "zstd":
        yield from _compressed(file, start, splitter)
        return
    file.seek(start)
    while piece := file.read(_PIECE):
        yield from splitter.feed(piece, start)
        start += len(piece)
    yield from splitter.rest()


def one_by_one(
    items: Iterable[Lines | Line | FrameEnd], *, framed: bool
) -> Iterator[Line | FrameEnd]:
    """The same, each line for itself; in a `framed` log all lines of a frame have its place."""
    for item in items:
        if not isinstance(item, Lines):
            yield item
            continue
        offset = item.offset
        for number, text in enumerate(item.texts, item.number):
            yield Line(number, offset, len(text), text, True)
            offset += 0 if framed else len(text) + 1


class _Splitter:
    """Cuts pieces into lines, and counts what is too long instead of keeping it."""

    def __init__(self, max_line_bytes: int, number: int) -> None:
        self.number = number
        """How many lines have ended."""

        self._limit = max_line_bytes
        self._start = 0
        self._length = 0
        self._parts: list[bytes] = []

    def feed(self, piece: bytes, offset: int, *, fixed: bool = False) -> Iterator[Lines | Line]:
        """The lines that end in a piece at `offset` of the file; if `fixed`, all begin there."""
        texts = piece.split(b"\n")
        last = texts.pop()
        if texts and self._length:
            self._take(texts[0], offset)
            offset += 0 if fixed else len(texts[0]) + 1
            del texts[0]
            self.number += 1
            yield self._line(self.number, ended=True)
        if max(map(len, texts), default=0) > self._limit:
            for text in texts:
                self._take(text, offset)
                offset += 0 if fixed else len(text) + 1
                self.number += 1
                yield self._line(self.number, ended=True)
        elif texts:
            yield Lines(self.number + 1, offset, texts)
            self.number += len(texts)
            offset += 0 if fixed else sum(map(len, texts)) + len(texts)
        if last:
            self._take(last, offset)

    def rest(self) -> Iterator[Line]:
        """What stands behind the last line end."""
        if self._length:
            yield self._line(self.number + 1, ended=False)

    def _take(self, part: bytes, offset: int) -> None:
        if not self._length:
            self._start = offset
        self._length += len(part)
        if self._length <= self._limit:
            self._parts.append(part)
        else:
            self._parts.clear()

    def _line(self, number: int, *, ended: bool) -> Line:
        text = b"".join(self._parts) if ended and self._length <= self._limit else None
        line = Line(number, self._start, self._length, text, ended)
        self._parts.clear()
        self._length = 0
        return line


def _compressed(
    file: BinaryIO, start: int, splitter: _Splitter
) -> Iterator[Lines | Line | FrameEnd]:
    zstd_frames.check_available()
    for frame in zstd_frames.frames(file, start):
        before = splitter.number
        for piece in frame.text:
            yield from splitter.feed(piece, frame.start, fixed=True)
        yield from splitter.rest()
        yield FrameEnd(frame.start, frame.end, frame.complete, splitter.number - before)


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise NotAFileError(f"{path} is {kind}")
