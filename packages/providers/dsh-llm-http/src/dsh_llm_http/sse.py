"""Bytes of a response body to events: server-sent events, or one JSON document.

The framer works on whole reads and finds event ends with `bytes.find`; it never waits, so that any
way of cutting the body gives the same events.
"""

import codecs
from enum import Enum

import msgspec

from dsh_brand import is_blank, js_trim
from dsh_llm import LlmError
from dsh_llm.codes import MALFORMED_RESPONSE

EVENT_LIMIT_BYTES = 8 * 1024 * 1024
EXCERPT_CHARS = 120

_BOM = b"\xef\xbb\xbf"
_FIELDS = ("data", "event", "id", "retry")


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One event with data; a JSON document counts as one."""

    data: bytes
    """As received; may hold malformed UTF-8."""
    event: str = ""
    document: bool = False
    """The whole body was this one JSON document."""


class _Kind(Enum):
    UNKNOWN = 0
    EVENTS = 1
    DOCUMENT = 2


def excerpt(data: bytes) -> str:
    """At most 120 characters of provider text, quoted for a message."""
    text = data[: EXCERPT_CHARS * 4].decode("utf-8", "replace")
    return repr(text if len(text) <= EXCERPT_CHARS else text[: EXCERPT_CHARS - 1] + "…")


class Framer:
    """Cuts a body into frames; `feed` each read, then `finish` at the clean end of the body.

    Args:
        content_type: What the server declared; only named in the message of a failure.
    """

    def __init__(self, content_type: str | None = None) -> None:
        self._content_type = content_type
        self._kind = _Kind.UNKNOWN
        self._buffer = bytearray()
        self._searched = 0
        self._drop_lf = False
        self._at_start = True

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that this read completes.

        Raises:
            LlmError: `MALFORMED_RESPONSE`: neither events nor JSON, or one event over 8 MiB.
        """
        if self._kind is not _Kind.EVENTS:
            self._buffer += data
            if self._kind is _Kind.UNKNOWN and not self._recognize():
                self._check_size(len(self._buffer))
                return []
            if self._kind is _Kind.DOCUMENT:
                self._check_size(len(self._buffer))
                return []
            data = bytes(self._buffer)
            self._buffer.clear()
        if self._drop_lf or b"\r" in data:
            data = self._with_lf(data)
        return self._cut(data)

    def finish(self) -> list[Frame]:
        """The frames that the end of the body completes: a JSON document, or none.

        Raises:
            LlmError: `MALFORMED_RESPONSE`: the body is neither events nor JSON.
        """
        if self._kind is _Kind.DOCUMENT:
            text = js_trim(self._buffer.decode("utf-8", "replace"))
            return [Frame(text.encode(), document=True)]
        if self._kind is _Kind.UNKNOWN and not is_blank(self._buffer.decode("utf-8", "replace")):
            raise self._not_a_stream()
        return []

    def _recognize(self) -> bool:
        """Decide by the first non-blank character; false while more bytes are needed."""
        if self._at_start:
            if len(self._buffer) < len(_BOM) and _BOM.startswith(self._buffer):
                return False
            if self._buffer.startswith(_BOM):
                del self._buffer[: len(_BOM)]
            self._at_start = False
        # Incremental: half a character at the end of a read is not yet a character.
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(self._buffer)
        for position, char in enumerate(text):
            if not is_blank(char):
                return self._recognize_at(text, position)
        # Blank so far: only the last character can still matter, as a line end.
        del self._buffer[: len(text[:-1].encode())]
        return False

    def _recognize_at(self, text: str, position: int) -> bool:
        head = text[position : position + 8]
        if head[0] in "{[":
            self._kind = _Kind.DOCUMENT
            return True
        at_line_start = position == 0 or text[position - 1] in "\r\n"
        if head[0] == ":" or (at_line_start and head.startswith(_FIELDS)):
            self._kind = _Kind.EVENTS
            return True
        if at_line_start and any(field.startswith(head) for field in _FIELDS):
            return False
        raise self._not_a_stream()

    def _with_lf(self, data: bytes) -> bytes:
        """Every line end as LF; a CRLF cut between two reads stays one line end."""
        if self._drop_lf and data:
            self._drop_lf = False
            if data[:1] == b"\n":
                data = data[1:]
        self._drop_lf = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _cut(self, data: bytes) -> list[Frame]:
        if self._buffer:
            # Grown in place and searched once: an event in many reads costs no more than its size.
            self._buffer += data
            if self._buffer.find(b"\n\n", self._searched) < 0:
                self._check_size(len(self._buffer))
                self._searched = len(self._buffer) - 1
                return []
            data = bytes(self._buffer)
            self._buffer.clear()
        *blocks, rest = data.split(b"\n\n")
        if len(data) > EVENT_LIMIT_BYTES:
            for block in (*blocks, rest):
                self._check_size(len(block))
        if rest:
            self._buffer += rest
            self._searched = len(rest) - 1
        frames: list[Frame] = []
        for block in blocks:
            # Nearly every event is one data line with an object.
            if block[:7] == b"data: {" and b"\n" not in block:
                frames.append(Frame(block[6:]))
            elif (frame := _parse(block)) is not None:
                frames.append(frame)
        return frames

    def _check_size(self, size: int) -> None:
        if size > EVENT_LIMIT_BYTES:
            raise LlmError(
                f"one event of the response is larger than {EVENT_LIMIT_BYTES} bytes",
                MALFORMED_RESPONSE,
            )

    def _not_a_stream(self) -> LlmError:
        declared = self._content_type or "none"
        return LlmError(
            "the response is neither an event stream nor JSON "
            f"(content type {declared}): {excerpt(bytes(self._buffer))}; "
            "check the base URL and whether a proxy answers in its place",
            MALFORMED_RESPONSE,
        )


def _parse(block: bytes) -> Frame | None:
    # What is left is nearly always an event's name and one data line.
    if block[:7] == b"event: " and block.count(b"\n") == 1:
        head, _, tail = block.partition(b"\n")
        if tail[:7] == b"data: {":
            return Frame(tail[6:], head[7:].decode("utf-8", "replace"))
    data: list[bytes] = []
    event = ""
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            data.append(value)
        elif name == b"event":
            event = value.decode("utf-8", "replace")
    return _frame(b"\n".join(data), event)


def _frame(data: bytes, event: str) -> Frame | None:
    if data[:1] != b"{" and is_blank(data.decode("utf-8", "replace")):
        return None
    return Frame(data, event)
