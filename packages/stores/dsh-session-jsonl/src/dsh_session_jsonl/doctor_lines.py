"""The lines of a log with their places, read in pieces.

No file, whatever is in it, takes more memory than the longest line that may be read.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from dsh_session_jsonl import zstd_frames
from dsh_session_jsonl.layout import Compression
from dsh_session_jsonl.zstd_frames import BadFrameError, _frame_end

MAX_LINE_BYTES: Final = 1 << 28
"""Longest line that is read: half of what the reference's runtime can hold in one string."""

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_PIECE: Final = 1 << 20
_COMPRESSED_PIECE: Final = 1 << 10
"""Decodes to 32 MiB at most, whatever somebody packed into it."""


class Line(NamedTuple):
    """One line."""

    number: int
    """1 is the header."""
    offset: int
    """Byte of the file where it begins; in a compressed log, where its frame begins."""
    length: int
    """Without the line end."""
    text: bytes | None
    """`None` when it is longer than what may be read."""
    ended: bool
    """False for what stands behind the last line end."""


class FrameEnd(NamedTuple):
    """The end of a frame of a compressed log; its lines came before."""

    offset: int
    """Where the frame begins."""
    complete: bool
    lines: int


class NotAFileError(OSError):
    """Something else than a file stands where a log should be."""


def open_log(path: Path) -> BinaryIO:
    """Open a regular file; nothing that blocks, such as a pipe.

    Raises:
        NotAFileError: It is something else.
        OSError: It cannot be opened.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "no regular file"
        raise NotAFileError(f"{path} is {kind}")
    return path.open("rb")


def read_lines(
    file: BinaryIO, compression: Compression, *, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[Line | FrameEnd]:
    """The lines of a log; in a compressed one each frame is followed by its end.

    Raises:
        BadFrameError: No crash explains this frame; what came before is good.
    """
    if compression == "zstd":
        yield from _compressed(file, max_line_bytes)
        return
    splitter = _Splitter(max_line_bytes)
    offset = 0
    while piece := file.read(_PIECE):
        yield from splitter.feed(piece, offset)
        offset += len(piece)
    yield from splitter.rest()


class _Splitter:
    """Cuts pieces into lines, and counts what is too long instead of keeping it."""

    def __init__(self, max_line_bytes: int, number: int = 0, fixed: int | None = None) -> None:
        self.number = number
        self._limit = max_line_bytes
        self._fixed = fixed
        self._start = 0
        self._length = 0
        self._parts: list[bytes] = []

    def feed(self, piece: bytes, offset: int) -> Iterator[Line]:
        start = 0
        while (newline := piece.find(b"\n", start)) >= 0:
            self._take(piece[start:newline], offset + start)
            yield self._line(ended=True)
            start = newline + 1
        if start < len(piece):
            self._take(piece[start:], offset + start)

    def rest(self) -> Iterator[Line]:
        if self._length:
            yield self._line(ended=False)

    def _take(self, part: bytes, offset: int) -> None:
        if not self._length:
            self._start = offset
        self._length += len(part)
        if self._length <= self._limit:
            self._parts.append(part)
        else:
            self._parts.clear()

    def _line(self, *, ended: bool) -> Line:
        self.number += 1
        text = b"".join(self._parts) if self._length <= self._limit else None
        offset = self._start if self._fixed is None else self._fixed
        line = Line(self.number, offset, self._length, text, ended)
        self._parts.clear()
        self._length = 0
        return line


class _Bytes:
    """The bytes of a file, read where they are asked for.

    Not mapped into memory: a writer may cut the file meanwhile.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = os.fstat(file.fileno()).st_size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int | slice) -> bytes | int:
        if isinstance(index, slice):
            start, stop, _ = index.indices(self._size)
            return self._read(start, max(0, stop - start))
        return self._read(index, 1)[0]

    def pieces(self, start: int, end: int, size: int) -> Iterator[bytes]:
        for at in range(start, end, size):
            yield self._read(at, min(size, end - at))

    def find(self, wanted: bytes, start: int) -> int:
        while start < self._size:
            piece = self._read(start, _PIECE)
            if (found := piece.find(wanted)) >= 0:
                return start + found
            start += max(1, len(piece) - len(wanted) + 1)
        return -1

    def _read(self, start: int, size: int) -> bytes:
        self._file.seek(start)
        return self._file.read(size)


def _compressed(file: BinaryIO, limit: int) -> Iterator[Line | FrameEnd]:
    zstd_frames.check_available()
    data = _Bytes(file)
    start = number = 0
    while start < len(data):
        end = _end_of(data, start)
        splitter = _Splitter(limit, number, start)
        if end is not None or _decodes(data, start):
            for piece in _decoded(data, start, len(data) if end is None else end):
                yield from splitter.feed(piece, start)
        if end is None and _good_frame_after(data, start + 1):
            raise BadFrameError(f"the frame at byte {start} is damaged: good frames follow it")
        yield from splitter.rest()
        yield FrameEnd(start, end is not None, splitter.number - number)
        if end is None:
            return
        start, number = end, splitter.number


def _end_of(data: _Bytes, start: int) -> int | None:
    """Where the frame ends; `None` if the file ends first."""
    begin = next(data.pieces(start, min(len(data), start + len(_MAGIC)), len(_MAGIC)))
    if not _MAGIC.startswith(begin):
        if not any(piece.strip(b"\0") for piece in data.pieces(start, len(data), _PIECE)):
            # A crash may leave a file longer than what reached the disk, filled with zeros.
            return None
        raise BadFrameError(f"byte {start} does not begin a zstd frame")
    return _frame_end(data, start)  # type: ignore[arg-type]  # it slices, and asks for the length


def _good_frame_after(data: _Bytes, start: int) -> bool:
    """Whether a complete frame begins later: then what comes before it was no crash."""
    while (start := data.find(_MAGIC, start)) >= 0:
        with contextlib.suppress(BadFrameError):
            end = _end_of(data, start)
            if end is not None:
                for _ in _decoded(data, start, end):
                    pass
                return True
        start += 1
    return False


def _decodes(data: _Bytes, start: int) -> bool:
    """Whether an incomplete frame can be decoded as far as it goes."""
    try:
        for _ in _decoded(data, start, len(data)):
            pass
    except BadFrameError:
        return False
    return True


def _decoded(data: _Bytes, start: int, end: int) -> Iterator[bytes]:
    import zstandard  # only a compressed log needs the library

    decoder = zstandard.ZstdDecompressor().decompressobj()
    try:
        for piece in data.pieces(start, end, _COMPRESSED_PIECE):
            yield decoder.decompress(piece)
    except zstandard.ZstdError as error:
        raise BadFrameError(f"the frame at byte {start} is damaged: {error}") from error
