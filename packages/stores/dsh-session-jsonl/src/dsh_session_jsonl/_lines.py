"""The lines of a log as they lie in its file: plain or framed, whole or torn.

What a crash can leave behind is cut off silently (a torn tail); what no crash can explain is
corruption. A later `turn/end` is the proof: it is written after everything before it was stored.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from dsh_session_jsonl.layout import Compression
from dsh_session_jsonl.stored_lines import (
    MAX_HEADER_BYTES,
    MAX_LINE_BYTES,
    FrameEnd,
    Line,
    read_lines,
)
from dsh_session_jsonl.zstd_frames import BadFrameError
from dsh_session_persistence import (
    SessionFormatUnsupportedError,
    SessionPersistenceCorruptionError,
)

PROOF_OF_COMMIT: Final = "turn/end"


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

        self._lines = 0
        self._before_frame = 0
        self._cut_line = 0
        self._damage: Damage | None = None

    @property
    @abstractmethod
    def _count(self) -> int:
        """How many events were taken."""

    @abstractmethod
    def _take_header(self, line: bytes) -> None:
        """Take the first line."""

    @abstractmethod
    def _take_row(self, line: bytes) -> None:
        """Take a later line; set `_damage` if the valid part ends before it."""

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
                if isinstance(item, FrameEnd):
                    self._end_frame(item)
                elif item.ended:
                    self._take(item)
                else:
                    self._cut_line = item.number
        except BadFrameError as error:
            raise self._corrupt(str(error), cause=error) from error
        if not self._lines:
            raise self._corrupt("the log has no complete header line", line=1)
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

    def _take(self, line: Line) -> None:
        if self._damage is not None and self.compression == "zstd":
            # The end of the frame judges it, whatever else is in there.
            return
        self._lines = line.number
        if line.text is None:
            raise self._too_long(line)
        if line.number == 1:
            if line.length > MAX_HEADER_BYTES:
                reason = f"the header line is longer than {MAX_HEADER_BYTES} bytes"
                raise self._corrupt(reason, line=1)
            self._take_header(line.text)
        elif self._damage is None:
            self._take_row(line.text)
        elif PROOF_OF_COMMIT in self._types_in(line.text):
            raise self._corruption_of(self._damage)
        if self._damage is None and self.compression == "none":
            self.good_end = line.offset + line.length + 1

    def _too_long(self, line: Line) -> SessionFormatUnsupportedError:
        return SessionFormatUnsupportedError(
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
