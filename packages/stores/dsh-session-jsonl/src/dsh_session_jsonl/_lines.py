"""The lines of a log as they lie in its file: plain or framed, whole or torn.

What a crash can leave behind is cut off silently (a torn tail); what no crash can explain is
corruption. A later `turn/end` is the proof: it is written after everything before it was stored.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final, NamedTuple

from dsh_session_jsonl import zstd_frames
from dsh_session_jsonl.layout import Compression
from dsh_session_persistence import SessionPersistenceCorruptionError

PROOF_OF_COMMIT: Final = "turn/end"


class Damage(NamedTuple):
    """The line at which the valid part of a log ends."""

    line: int
    reason: str
    cause: BaseException | None


class LineScan(ABC):
    """Walks the lines of one file; `feed` may be called again with what was added since."""

    def __init__(self, path: Path, compression: Compression) -> None:
        self.path = path
        self.compression: Compression = compression
        self.good_end = 0
        """Byte offset up to which the file is valid; behind it lies a torn tail, if anything."""

        self.unframed = 0
        """How many of the last events come from an incomplete frame behind `good_end`."""

        self._lines = 0
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

    def feed(self, data: bytes) -> None:
        """Take the bytes from `good_end` to the end of the file.

        Raises:
            SessionFormatUnsupportedError: The log needs another build.
            SessionPersistenceCorruptionError: No crash explains these bytes.
        """
        if self.compression == "zstd":
            self._feed_frames(data)
        else:
            self._feed_lines(data)
        if not self._lines:
            raise self._corrupt("the log has no complete header line", line=1)
        self._finish()

    def _feed_lines(self, data: bytes) -> None:
        base, start = self.good_end, 0
        while (newline := data.find(b"\n", start)) >= 0:
            self._take(data[start:newline])
            start = newline + 1
            if self._damage is None:
                self.good_end = base + start

    def _feed_frames(self, data: bytes) -> None:
        base = self.good_end
        try:
            for frame in zstd_frames.frames(data):
                self._take_frame(frame, base)
        except zstd_frames.BadFrameError as error:
            raise self._corrupt(str(error), cause=error) from error

    def _take_frame(self, frame: zstd_frames.Frame, base: int) -> None:
        is_first = not self._lines
        if frame.complete and frame.text and not frame.text.endswith(b"\n"):
            raise self._corrupt("a complete frame ends inside a line", line=self._lines + 1)
        before = self._count
        for line in frame.text.split(b"\n")[:-1]:
            self._take(line)
            if self._damage is not None:
                break
        if is_first and frame.complete and self._lines != 1:
            raise self._corrupt("the first frame must hold exactly the header line", line=1)
        if not frame.complete:
            self.unframed = self._count - before
        elif self._damage is not None:
            raise self._corruption_of(self._damage)
        else:
            self.good_end = base + frame.end

    def _take(self, line: bytes) -> None:
        self._lines += 1
        if self._lines == 1:
            self._take_header(line)
        elif self._damage is None:
            self._take_row(line)
        elif PROOF_OF_COMMIT in self._types_in(line):
            raise self._corruption_of(self._damage)

    def _corruption_of(self, damage: Damage) -> SessionPersistenceCorruptionError:
        return self._corrupt(
            f"damaged in the committed part: {damage.reason}", line=damage.line, cause=damage.cause
        )

    def _corrupt(
        self, message: str, *, line: int | None = None, cause: BaseException | None = None
    ) -> SessionPersistenceCorruptionError:
        return SessionPersistenceCorruptionError(message, str(self.path), line=line, cause=cause)
