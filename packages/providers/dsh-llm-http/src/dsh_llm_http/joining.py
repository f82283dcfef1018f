"""Many small HTTP chunks to one per read.

A service sends each event as an HTTP chunk of its own, and the HTTP library hands every chunk
through several generators, which costs more than all else on the way of a token. The joiner stands
between the socket and the library: it writes the chunks of one read as a single one. It changes
nothing else, waits for nothing that the library could use, and passes everything unusual on as it
came: chunk extensions, trailers, faults.
"""

import re
from enum import Enum

_HEAD_LIMIT = 64 * 1024
_HEAD_END = re.compile(rb"\n\r?\n")
_INFORMATIONAL = re.compile(rb"HTTP/1\.[01] 1[0-9][0-9]")
_FINAL = re.compile(rb"HTTP/1\.1 [2-5][0-9][0-9]")
_CODING = re.compile(rb"\ntransfer-encoding:([^\r\n]*)", re.IGNORECASE)
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,8}")
_CUT_SIZE = re.compile(rb"[0-9A-Fa-f]{1,8}\r?")
_SIZES_KEPT = 4096
_SIZE_LINE_LIMIT = 10
"""A longer size line holds an extension or is wrong."""
_POISON = b"!\r\n"
"""No chunk size line, so that the reader fails there at once."""


class _State(Enum):
    HEAD = 0
    SIZE = 1
    DATA = 2
    FOOTER = 3
    PASS = 4


class ChunkJoiner:
    """Rewrites the bytes of one connection; `begin` at each request, then `feed` each read."""

    def __init__(self) -> None:
        self._state = _State.HEAD
        self._held = b""
        """Bytes not yet passed on, a cut size line or footer; in a head, a copy of what was."""
        self._missing = 0
        self._sizes: dict[bytes, int] = {}
        """Size lines seen before: events are of few sizes."""

    def begin(self) -> None:
        """A request is sent: what comes next is the head of its response."""
        self._state = _State.HEAD
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What the reader gets for these bytes; empty if it has to wait for more."""
        if self._state is _State.PASS:
            return data
        if self._state is _State.HEAD:
            return self._head(data)
        return self._join(self._held + data)

    def finish(self) -> bytes:
        """What is left at the end of the connection."""
        held = b"" if self._state is _State.HEAD else self._held
        self._held = b""
        self._state = _State.PASS
        return held

    def _head(self, data: bytes) -> bytes:
        known = len(self._held)
        head = self._held + data
        found = _HEAD_END.search(head, max(0, known - 2))
        if found is None:
            self._held = head
            if len(head) > _HEAD_LIMIT:
                self._state = _State.PASS
            return data
        end = found.end()
        passed, rest = head[known:end], head[end:]
        head = head[:end]
        self._held = b""
        if _INFORMATIONAL.match(head):
            return passed + (self._head(rest) if rest else b"")
        codings = _CODING.findall(head)
        chunked = len(codings) == 1 and codings[0].strip().lower() == b"chunked"
        self._state = _State.SIZE if chunked and _FINAL.match(head) else _State.PASS
        return passed + (self.feed(rest) if rest else b"")

    def _whole_chunks(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        """Take the chunks that lie in this read as a whole; where the first other one begins."""
        sizes = self._sizes
        while True:
            end = data.find(b"\r\n", position, position + _SIZE_LINE_LIMIT)
            if end < 0:
                return position
            line = data[position:end]
            size = sizes.get(line)
            if size is None:
                size = _size_of(line)
                if len(sizes) < _SIZES_KEPT:
                    sizes[line] = size
            stop = end + 2 + size
            if not size or data[stop : stop + 2] != b"\r\n":
                return position
            pieces.append(data[end + 2 : stop])
            position = stop + 2

    def _join(self, data: bytes) -> bytes:
        """The chunks of one read as one, and raw from where they are unusual."""
        pieces: list[bytes] = []
        position, size = 0, len(data)
        self._held = b""
        while position < size:
            if self._state is _State.SIZE:
                position = self._whole_chunks(data, position, pieces)
                if position == size:
                    break
                end = data.find(b"\r\n", position, position + _SIZE_LINE_LIMIT)
                line = data[position:end] if end >= 0 else b""
                if end < 0 and _may_be_size(data[position:]):
                    self._held = data[position:]
                    break
                self._missing = _size_of(line)
                if not self._missing:
                    self._state = _State.PASS
                    return _chunk(pieces) + data[position:]
                position = end + 2
                self._state = _State.DATA
            elif self._state is _State.DATA:
                piece = data[position : position + self._missing]
                pieces.append(piece)
                position += len(piece)
                self._missing -= len(piece)
                if not self._missing:
                    self._state = _State.FOOTER
            else:
                footer = data[position : position + 2]
                if footer == b"\r\n":
                    position += 2
                    self._state = _State.SIZE
                elif footer == b"\r":
                    self._held = footer
                    break
                else:
                    self._state = _State.PASS
                    return _chunk(pieces) + _POISON + data[position:]
        return _chunk(pieces)


def _size_of(line: bytes) -> int:
    """The size that a line names; 0 for the last chunk, an extension or a fault."""
    return int(line, 16) if _SIZE.fullmatch(line) else 0


def _may_be_size(data: bytes) -> bool:
    """Whether a size line that is cut here can still become one without extension."""
    return len(data) < _SIZE_LINE_LIMIT and _CUT_SIZE.fullmatch(data) is not None


def _chunk(pieces: list[bytes]) -> bytes:
    if not pieces:
        return b""
    data = b"".join(pieces)
    return b"%x\r\n%b\r\n" % (len(data), data)
