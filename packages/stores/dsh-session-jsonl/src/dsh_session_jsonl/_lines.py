"""The lines of a log as they lie in its file: plain or framed, whole or torn.

What a crash can leave behind is cut off silently (a torn tail); what no crash can explain is
corruption. A later `turn/end` is the proof: it is written after everything before it was stored.
"""

import codecs
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from dsh_session import SessionHeader
from dsh_session_jsonl.layout import Compression
from dsh_session_jsonl.stored_lines import (
    MAX_HEADER_BYTES,
    MAX_LINE_BYTES,
    FrameEnd,
    Line,
    Lines,
    read_lines,
)
from dsh_session_jsonl.zstd_frames import BadFrameError
from dsh_session_persistence import (
    SessionFormatUnsupportedError,
    SessionPersistenceCorruptionError,
    StoredLogRules,
)

PROOF_OF_COMMIT: Final = "turn/end"
_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "UTF-8 with a byte order mark"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


class Damage(NamedTuple):
    """The line at which the valid part of a log ends."""

    line: int
    reason: str
    cause: BaseException | None


class LineScan(ABC):
    """Walks the lines of one file; `feed` may be called again with what was added since."""

    def __init__(
        self, path: Path, compression: Compression, *, max_line_bytes: int = MAX_LINE_BYTES
    ) -> None:
        self.path = path
        self.compression: Compression = compression
        self.max_line_bytes = max_line_bytes
        self.good_end = 0
        """Byte offset up to which the file is valid; behind it lies a torn tail, if anything."""

        self.unframed = 0
        """How many of the last events come from an incomplete frame behind `good_end`."""

        self._header: SessionHeader | None = None
        self._rules: StoredLogRules | None = None
        self._lines = 0
        self._before_frame = 0
        self._cut_line = 0
        self._damage: Damage | None = None

    @property
    def header(self) -> SessionHeader:
        """The header in the present format; known after `feed`."""
        if self._header is None:
            raise self._corrupt("the log has no complete header line", line=1)
        return self._header

    @property
    def rules(self) -> StoredLogRules:
        """The valid events in the present format; known after `feed`."""
        if self._rules is None:
            self._rules = StoredLogRules(self.header)
        return self._rules

    @property
    @abstractmethod
    def _count(self) -> int:
        """How many events of the file were taken."""

    @abstractmethod
    def _header_of(self, line: bytes) -> SessionHeader:
        """Read the first line."""

    @abstractmethod
    def _take_rows(self, lines: Sequence[bytes]) -> int:
        """Take later lines and return how many; if the valid part ends there, set `_damage`.

        `_lines` is the number of the line before them.
        """

    @abstractmethod
    def _types_in(self, line: bytes) -> frozenset[str | None]:
        """The event types of a line behind the damage, as far as it can be read."""

    @abstractmethod
    def _finish(self) -> None:
        """Judge what only the end can show."""

    def feed(self, file: BinaryIO) -> None:
        """Take what the file holds from `good_end` to its end.

        Raises:
            SessionFormatUnsupportedError: The log needs another build.
            SessionPersistenceCorruptionError: No crash explains these bytes.
            OSError: The file cannot be read.
        """
        items = read_lines(
            file,
            self.compression,
            start=self.good_end,
            lines_before=self._lines,
            max_line_bytes=self.max_line_bytes,
        )
        try:
            for item in items:
                if isinstance(item, Lines):
                    self._take(item)
                elif isinstance(item, FrameEnd):
                    self._end_frame(item)
                elif not item.ended:
                    self._cut_line = item.number
                elif item.text is None:
                    self._take_too_long(item)
                else:
                    self._take(Lines(item.number, item.offset, [item.text]))
        except BadFrameError as error:
            raise self._corrupt(str(error), cause=error) from error
        self._finish()

    def _end_frame(self, frame: FrameEnd) -> None:
        if frame.complete and self._cut_line:
            raise self._corrupt("a complete frame ends inside a line", line=self._cut_line)
        if frame.complete and not frame.offset and frame.lines != 1:
            raise self._corrupt("the first frame must hold exactly the header line", line=1)
        if not frame.complete:
            self.unframed = self._count - self._before_frame
        elif self._damage is not None:
            raise self._corruption_of(self._damage)
        else:
            self.good_end = frame.end
        self._before_frame = self._count
        self._cut_line = 0

    def _take(self, lines: Lines) -> None:
        if self._damage is not None and self.compression == "zstd":
            # The end of the frame judges it, whatever else is in there.
            return
        texts, taken = lines.texts, 0
        self._lines = lines.number - 1
        if not self._lines:
            self._take_first(texts[0])
            self._lines = taken = 1
        if self._damage is None:
            taken += self._take_rows(texts[taken:] if taken else texts)
            if self.compression == "none":
                whole = texts if taken == len(texts) else texts[:taken]
                self.good_end = lines.offset + sum(map(len, whole)) + taken
        self._lines = lines.number + len(texts) - 1
        if self._damage is not None and self.compression == "none":
            self._look_for_proof(self._damage, texts[taken:])

    def _look_for_proof(self, damage: Damage, lines: Sequence[bytes]) -> None:
        for line in lines:
            if PROOF_OF_COMMIT in self._types_in(line):
                raise self._corruption_of(damage)

    def _take_first(self, line: bytes) -> None:
        if len(line) > MAX_HEADER_BYTES:
            raise self._corrupt(f"the header line is longer than {MAX_HEADER_BYTES} bytes", line=1)
        self._header = self._header_of(line)

    def _take_too_long(self, line: Line) -> None:
        if self._damage is None or self.compression == "none":
            raise SessionFormatUnsupportedError(
                f"line {line.number} has {line.length} bytes, more than the {self.max_line_bytes} "
                "that are read",
                str(self.path),
            )

    def _corruption_of(self, damage: Damage) -> SessionPersistenceCorruptionError:
        return self._corrupt(
            f"damaged in the committed part: {damage.reason}", line=damage.line, cause=damage.cause
        )

    def _corrupt(
        self, message: str, *, line: int | None = None, cause: BaseException | None = None
    ) -> SessionPersistenceCorruptionError:
        return SessionPersistenceCorruptionError(message, str(self.path), line=line, cause=cause)


def text_flaw(text: bytes) -> str | None:
    """What is wrong with the text of a line before it comes to JSON, if that is what is wrong."""
    for mark, name in _BYTE_ORDER_MARKS:
        if text.startswith(mark):
            return f"the text is {name}; a log is plain UTF-8"
    if text and not text.strip(b"\0"):
        return f"{len(text)} zero bytes"
    if b"\0" in text:
        return "zero bytes between the others: UTF-16, or damaged; a log is plain UTF-8"
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return f"no UTF-8: byte {text[error.start]:#04x} at {error.start} of the line"
    return None if text else "an empty line"
