"""Bytes of a response body to events: server-sent events, or one JSON document.

The framer works on whole reads; it never waits, so that any way of cutting the body gives the same
events.
"""

import codecs
import re
from enum import Enum

import msgspec

from dsh_brand import is_blank, js_trim
from dsh_llm import LlmError
from dsh_llm.codes import MALFORMED_RESPONSE

EVENT_LIMIT_BYTES = 8 * 1024 * 1024
EXCERPT_CHARS = 120

_BOM = b"\xef\xbb\xbf"
_FIELDS = ("data", "event", "id", "retry")
_OPENING = re.compile(rb"(?:event: ([^\n]*)\n)?data: ")
"""How nearly every event begins; its data ends with the line."""


class Events(msgspec.Struct, frozen=True, gc=False):
    """Events of one name that arrived together; a JSON document counts as one."""

    data: list[bytes]
    """One entry an event, as received; may hold malformed UTF-8."""
    name: str = ""
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
    """Cuts a body into events; `feed` each read, then `finish` at the clean end of the body.

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

    def feed(self, data: bytes) -> list[Events]:
        """The events that this read completes.

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

    def finish(self) -> list[Events]:
        """The events that the end of the body completes: a JSON document, or none.

        Raises:
            LlmError: `MALFORMED_RESPONSE`: the body is neither events nor JSON.
        """
        if self._kind is _Kind.DOCUMENT:
            text = js_trim(self._buffer.decode("utf-8", "replace"))
            return [Events([text.encode()], document=True)]
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

    def _cut(self, data: bytes) -> list[Events]:
        if self._buffer:
            # Grown in place and searched once: an event in many reads costs no more than its size.
            self._buffer += data
            if self._buffer.find(b"\n\n", self._searched) < 0:
                self._check_size(len(self._buffer))
                self._searched = len(self._buffer) - 1
                return []
            data = bytes(self._buffer)
            self._buffer.clear()
        whole, _, rest = data.rpartition(b"\n\n")
        if len(data) > EVENT_LIMIT_BYTES:
            for block in (*whole.split(b"\n\n"), rest):
                self._check_size(len(block))
        if rest:
            self._buffer += rest
            self._searched = len(rest) - 1
        return _events(whole) if whole else []

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


def _events(whole: bytes) -> list[Events]:
    alike = _alike(whole)
    if alike is not None:
        return [alike] if alike.data else []
    return [events for block in whole.split(b"\n\n") if (events := _parsed(block)) is not None]


def _alike(whole: bytes) -> Events | None:
    """Events that all begin with the same lines and have one data line; `None` for others."""
    opening = _OPENING.match(whole)
    if opening is None:
        return None
    first = opening[0]
    data = whole[len(first) :].split(b"\n\n" + first)
    if whole.count(b"\n") != len(data) * (first.count(b"\n") + 2) - 2:
        return None  # there is a line more than these
    return Events([each for each in data if each[:1] == b"{" or _says(each)], _name(opening[1]))


def _parsed(block: bytes) -> Events | None:
    data: list[bytes] = []
    event = b""
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            data.append(value)
        elif name == b"event":
            event = value
    joined = b"\n".join(data)
    return Events([joined], _name(event)) if _says(joined) else None


def _says(data: bytes) -> bool:
    return not is_blank(data.decode("utf-8", "replace"))


def _name(event: bytes | None) -> str:
    return event.decode("utf-8", "replace") if event else ""
