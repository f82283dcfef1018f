"""From the bytes of a log to its valid events. Upstream: session-jsonl reader.

What a crash can leave behind is cut off silently (a torn tail); what no crash can explain is
corruption. A later `turn/end` is the proof: it is written after everything before it was stored.
"""

from pathlib import Path
from typing import Final, NamedTuple

from dsh_brand import JsonValue, decode_json
from dsh_session import (
    FormatVersionError,
    InvalidEventError,
    InvalidHeaderError,
    InvalidLogError,
    SessionEvent,
    SessionHeader,
    UnsupportedEventError,
    decode_stored_event,
    header_from_json,
)
from dsh_session_jsonl import zstd_frames
from dsh_session_jsonl.layout import Compression
from dsh_session_persistence import (
    SessionFormatUnsupportedError,
    SessionPersistenceCorruptionError,
    StoredLogRules,
)

_PROOF_OF_COMMIT: Final = "turn/end"


class _Damage(NamedTuple):
    line: int
    reason: str
    cause: BaseException | None


class LogScan:
    """What one log holds; `feed` may be called again with what was added since."""

    def __init__(self, path: Path, compression: Compression) -> None:
        self.path = path
        self.compression: Compression = compression
        self.events: list[SessionEvent] = []
        self.good_end = 0
        """Byte offset up to which the file is valid; behind it lies a torn tail, if anything."""

        self.unframed = 0
        """How many of the last events come from an incomplete frame behind `good_end`."""

        self._header: SessionHeader | None = None
        self._rules: StoredLogRules | None = None
        self._lines = 0
        self._damage: _Damage | None = None

    @property
    def header(self) -> SessionHeader:
        """The header; known after `feed`."""
        if self._header is None:
            raise self._corrupt("the log has no complete header line", line=1)
        return self._header

    @property
    def resumable(self) -> bool:
        """Whether the next `feed` may go on at `good_end`; else the file is read anew."""
        return self._damage is None and not self.unframed

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
        if self._rules is None:
            raise self._corrupt("the log has no complete header line", line=1)
        try:
            self._rules.finish()
        except InvalidLogError as error:
            raise self._corrupt(error.message, cause=error) from error

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
        is_first = self._header is None
        if frame.complete and frame.text and not frame.text.endswith(b"\n"):
            raise self._corrupt("a complete frame ends inside a line", line=self._lines + 1)
        before = len(self.events)
        for line in frame.text.split(b"\n")[:-1]:
            self._take(line)
            if self._damage is not None:
                break
        if is_first and frame.complete and self._lines != 1:
            raise self._corrupt("the first frame must hold exactly the header line", line=1)
        if not frame.complete:
            self.unframed = len(self.events) - before
        elif self._damage is not None:
            raise self._corruption_of(self._damage)
        else:
            self.good_end = base + frame.end

    def _take(self, line: bytes) -> None:
        self._lines += 1
        if self._damage is not None:
            self._look_behind_damage(self._damage, line)
        elif self._rules is None:
            self._header = parse_header(line, self.path)
            self._rules = StoredLogRules(self._header)
        else:
            self._take_row(line, self._rules)

    def _take_row(self, line: bytes, rules: StoredLogRules) -> None:
        expected = len(self.events)
        try:
            event = decode_stored_event(line)
        except UnsupportedEventError as error:
            raise self._unsupported(error) from error
        except InvalidEventError as error:
            if error.event_type is not None and error.seq == expected:
                # A whole event in its place that breaks a rule: no crash writes that.
                raise self._corrupt(error.message, line=self._lines, cause=error) from error
            self._damage = _Damage(self._lines, error.message, error)
            return
        if event.seq != expected:
            reason = f"expected seq {expected}, found seq {event.seq}"
            self._damage = _Damage(self._lines, reason, None)
            return
        try:
            rules.take(event)
        except (InvalidLogError, InvalidEventError) as error:
            raise self._corrupt(error.message, line=self._lines, cause=error) from error
        self.events.append(event)

    def _look_behind_damage(self, damage: _Damage, line: bytes) -> None:
        try:
            event = decode_stored_event(line)
        except UnsupportedEventError as error:
            raise self._unsupported(error) from error
        except InvalidEventError as error:
            event_type = error.event_type
        else:
            event_type = event.type
        if event_type == _PROOF_OF_COMMIT:
            raise self._corruption_of(damage)

    def _unsupported(self, error: UnsupportedEventError) -> SessionFormatUnsupportedError:
        return SessionFormatUnsupportedError(error.message, str(self.path), cause=error)

    def _corruption_of(self, damage: _Damage) -> SessionPersistenceCorruptionError:
        return self._corrupt(
            f"damaged in the committed part: {damage.reason}", line=damage.line, cause=damage.cause
        )

    def _corrupt(
        self, message: str, *, line: int | None = None, cause: BaseException | None = None
    ) -> SessionPersistenceCorruptionError:
        return SessionPersistenceCorruptionError(message, str(self.path), line=line, cause=cause)


def parse_header(line: bytes, path: Path) -> SessionHeader:
    """Read the header line of a log.

    Raises:
        SessionFormatUnsupportedError: Another format version.
        SessionPersistenceCorruptionError: It is no header.
    """
    try:
        value = decode_json(line)
        return header_from_json(_without_type(value))
    except FormatVersionError as error:
        raise SessionFormatUnsupportedError(error.message, str(path), cause=error) from error
    except (InvalidHeaderError, ValueError) as error:
        raise SessionPersistenceCorruptionError(
            f"no valid header: {error}", str(path), line=1, cause=error
        ) from error


def _without_type(value: JsonValue) -> JsonValue:
    if not isinstance(value, dict) or value.get("type") != "session":
        raise ValueError('the first line must be an object of type "session"')
    return {key: item for key, item in value.items() if key != "type"}
