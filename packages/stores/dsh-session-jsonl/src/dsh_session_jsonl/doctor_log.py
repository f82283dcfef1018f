"""The examination of one log's bytes: as the reader judges them, but to the end and in words."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from dsh_brand import JsonValue
from dsh_session import (
    FormatVersionError,
    InvalidEventError,
    InvalidHeaderError,
    InvalidLogError,
    SessionEvent,
    SessionHeader,
    UnsupportedEventError,
    decode_event,
    decode_stored_event,
    header_from_json,
)
from dsh_session_jsonl._lines import PROOF_OF_COMMIT, text_flaw
from dsh_session_jsonl._scan import header_value
from dsh_session_jsonl.doctor_report import Finding, Severity
from dsh_session_jsonl.layout import Compression
from dsh_session_jsonl.stored_lines import (
    MAX_HEADER_BYTES,
    FrameEnd,
    Line,
    one_by_one,
    open_log,
    read_lines,
)
from dsh_session_jsonl.zstd_frames import BadFrameError
from dsh_session_persistence import StoredLogRules

_REFUSED: Final = "refused as corrupt, and never written to; `--repair` saves what is before it"
_HEADLESS: Final = "refused as corrupt; a log without its header cannot be repaired"
_NOT_FOR_US: Final = "refused as unsupported, and never written to; nothing is lost"
_CUT: Final = "readers leave it out, the next write cuts it off"
_MOST_OF_A_KIND: Final = 20


class _Damage(NamedTuple):
    """A row that no reader can take."""

    code: str
    reason: str
    line: Line
    seq: int
    frame: int


class LogExamination:
    """Reads a log to its end, whatever it meets, and keeps what a reader would keep."""

    def __init__(
        self,
        path: Path,
        compression: Compression,
        *,
        max_line_bytes: int,
        to_repair: bool = False,
    ) -> None:
        """Read the file; `findings` tells what was found.

        Args:
            path: The log.
            compression: How it is encoded.
            max_line_bytes: Longest line that is read.
            to_repair: Keep the lines in `rows`, and step over rows that repeat an earlier one.

        Raises:
            OSError: The file cannot be read.
        """
        self.path = path
        self.findings: list[Finding] = []
        self.header: SessionHeader | None = None
        self.version: int | None = None
        self.header_text = b""
        self.events: list[SessionEvent] = []
        """The valid events before any damage."""
        self.rows: list[bytes] = []
        """Their lines, if they are wanted."""
        self.rows_seen = 0
        """Whole lines behind the header."""
        self._to_repair = to_repair
        self._rules: StoredLogRules | None = None
        self._damages: list[_Damage] = []
        self._proven = False
        self._stopped = False
        self._last_seq = -1
        self._counts: dict[str, int] = {}
        self._frames = 0
        self._before_frame = 0
        self._tail: Line | None = None
        with open_log(path) as file:
            items = read_lines(file, compression, max_line_bytes=max_line_bytes)
            self._read(one_by_one(items, framed=compression == "zstd"))
        self._finish()

    def note(
        self,
        code: str,
        severity: Severity,
        message: str,
        on_open: str,
        line: Line | None = None,
        seq: int | None = None,
    ) -> None:
        """Add a finding; of many warnings of one kind the first ones are enough."""
        self._counts[code] = self._counts.get(code, 0) + 1
        if severity == "warning" and self._counts[code] > _MOST_OF_A_KIND:
            return
        finding = Finding(
            code=code,
            severity=severity,
            message=message,
            on_open=on_open,
            path=self.path,
            line=None if line is None or not line.number else line.number,
            offset=None if line is None else line.offset,
            seq=seq,
        )
        self.findings.append(finding)

    # ---- lines and frames ------------------------------------------------------------------

    def _read(self, items: Iterator[Line | FrameEnd]) -> None:
        try:
            for item in items:
                if isinstance(item, FrameEnd):
                    self._frame_end(item)
                elif not item.ended:
                    self._tail = item
                elif item.number == 1:
                    self._read_header(item)
                elif self._rules is not None:
                    self.rows_seen += 1
                    self._row(item, self._rules)
                else:
                    self.rows_seen += 1
        except BadFrameError as error:
            # What a frame without a good checksum seemed to say does not count.
            del self.events[self._before_frame :], self.rows[self._before_frame :]
            self._damages = [damage for damage in self._damages if damage.frame < self._frames]
            self._tail = None
            self.note("bad-frame", "error", str(error), _REFUSED)

    def _frame_end(self, frame: FrameEnd) -> None:
        place = Line(0, frame.offset, 0, None, ended=False)
        if frame.complete:
            self._judge_frame(frame, place)
        else:
            self._tail = place._replace(number=frame.lines)
        self._frames += 1
        self._before_frame = len(self.events)

    def _judge_frame(self, frame: FrameEnd, place: Line) -> None:
        if self._tail is not None:
            message = "a complete frame ends inside a line"
            self.note("bad-frame", "error", message, _REFUSED, self._tail)
            self._tail = None
        if self._frames == 0 and frame.lines != 1:
            message = f"the first frame holds {frame.lines} lines, not the header line alone"
            self.note("bad-frame", "error", message, _REFUSED, place._replace(number=1))
        if any(damage.frame == self._frames for damage in self._damages):
            # Its checksum is good: somebody wrote it so, and no crash did.
            self._proven = True

    # ---- the header ------------------------------------------------------------------------

    def _read_header(self, line: Line) -> None:
        if line.text is None:
            self._too_long(line)
            return
        if line.length > MAX_HEADER_BYTES:
            message = f"the header line has {line.length} bytes, more than any that is read"
            self.note("no-header", "error", message, _HEADLESS, line)
            return
        self.header_text = line.text
        try:
            self.header = header_from_json(header_value(line.text))
        except FormatVersionError as error:
            self.version = error.version
            if error.newer:
                self.note("newer-format", "error", error.message, _NOT_FOR_US, line)
            return
        except (InvalidHeaderError, ValueError) as error:
            self.note("no-header", "error", f"no valid header: {error}", _HEADLESS, line)
            return
        self.version = self.header.version
        self._rules = StoredLogRules(self.header)
        self._repeated_keys(line, None)

    # ---- the rows --------------------------------------------------------------------------

    def _row(self, line: Line, rules: StoredLogRules) -> None:
        if line.text is None:
            self._too_long(line)
            self._stopped = True
            return
        event = self._decode(line, line.text)
        if event is None:
            return
        if event.type == PROOF_OF_COMMIT and self._damages:
            self._proven = True
        if self._stopped:
            if event.seq != self._last_seq + 1:
                self._wrong_seq(line, event)
            self._last_seq = event.seq
            return
        if event.seq == len(self.events):
            self._take(line, event, rules)
        elif not (self._to_repair and self._repeats(event)):
            self._wrong_seq(line, event)
            self._last_seq = event.seq

    def _decode(self, line: Line, text: bytes) -> SessionEvent | None:
        try:
            return decode_stored_event(text)
        except UnsupportedEventError as error:
            self.note("unknown-event", "error", error.message, _NOT_FOR_US, line, error.seq)
            return self._in_spite(text)
        except InvalidEventError as error:
            in_place = not self._stopped and error.seq == len(self.events)
            if error.event_type is not None and in_place:
                # A whole event in its place that breaks a rule: no crash writes that.
                self.note("bad-event", "error", error.message, _REFUSED, line, error.seq)
                self._stopped = True
            else:
                reason = text_flaw(text) or error.message
                self._damage("damage", reason, line, self._last_seq + 1)
            if error.event_type == PROOF_OF_COMMIT and len(self._damages) > 1:
                self._proven = True
            self._last_seq = self._last_seq + 1 if error.seq is None else error.seq
            return None

    def _in_spite(self, text: bytes) -> SessionEvent | None:
        try:
            return decode_event(text)
        except UnsupportedEventError:
            self._stopped = True
            return None

    def _take(self, line: Line, event: SessionEvent, rules: StoredLogRules) -> None:
        try:
            rules.take(event)
        except (InvalidLogError, InvalidEventError) as error:
            self.note("misplaced", "error", error.message, _REFUSED, line, event.seq)
            self._stopped = True
        else:
            self.events.append(event)
            if self._to_repair and line.text is not None:
                self.rows.append(line.text)
            self._repeated_keys(line, event.seq)
        self._last_seq = event.seq

    def _repeats(self, event: SessionEvent) -> bool:
        return event.seq < len(self.events) and event == self.events[event.seq]

    def _wrong_seq(self, line: Line, event: SessionEvent) -> None:
        expected = self._last_seq + 1
        if event.seq > expected:
            missing = (
                f"seq {expected}"
                if event.seq == expected + 1
                else (f"seqs {expected} to {event.seq - 1}")
            )
            self._damage(
                "missing-seq", f"{missing} missing before seq {event.seq}", line, event.seq
            )
            return
        same = "the same event again" if self._repeats(event) else "another event"
        reason = f"seq {event.seq} stands where seq {expected} is due: {same}"
        self._damage("duplicate-seq", reason, line, event.seq)

    def _damage(self, code: str, reason: str, line: Line, seq: int) -> None:
        self._stopped = True
        if len(self._damages) < _MOST_OF_A_KIND:
            self._damages.append(_Damage(code, reason, line, seq, self._frames))

    def _too_long(self, line: Line) -> None:
        message = f"a line of {line.length} bytes, longer than any that is read"
        self.note("line-too-long", "error", message, "refused; raise the limit to look", line)

    def _repeated_keys(self, line: Line, seq: int | None) -> None:
        if line.text is None:
            return
        key = _repeated_key(line.text)
        if key is not None:
            message = f"the key {key!r} stands twice in one object"
            self.note("repeated-key", "warning", message, "the last one counts", line, seq)

    # ---- the end ---------------------------------------------------------------------------

    def _finish(self) -> None:
        if self.header is None and self._rules is None and not self.findings:
            if self.version is None:
                what = "the file is empty" if self._tail is None else "its first line is cut off"
                message = f"no header: {what}"
                self.note("no-header", "error", message, _HEADLESS, self._tail)
            return
        for damage in self._damages:
            self._tell(damage)
        if self.header is None:
            return
        if self._tail is not None:
            self._torn(self._tail)
        if not any(item.severity == "error" for item in self.findings):
            self._finish_rules(self.header)

    def _tell(self, damage: _Damage) -> None:
        if self._proven:
            message = f"{damage.reason}; what was written behind it shows that it was stored"
            self.note(damage.code, "error", message, _REFUSED, damage.line, damage.seq)
        else:
            message = f"{damage.reason}; nothing behind it shows that it ever was stored"
            self.note("torn-tail", "warning", message, _CUT, damage.line, damage.seq)

    def _torn(self, tail: Line) -> None:
        if tail.text is None and tail.length == 0:
            message = f"the last frame is cut off; {tail.number} whole lines of it are readable"
            on_open = _CUT
            if tail.number:
                on_open = "those that are events count; the next write stores them anew"
            place = tail._replace(number=0)
        else:
            message = f"the last line is cut off: {tail.length} bytes without a line end"
            on_open, place = _CUT, tail
        self.note("torn-tail", "warning", message, on_open, place, len(self.events))

    def _finish_rules(self, header: SessionHeader) -> None:
        rules = StoredLogRules(header)
        for event in self.events:
            rules.take(event)
        try:
            rules.finish()
        except InvalidLogError as error:
            self.note("unfit-log", "error", error.message, _REFUSED, seq=error.seq)


class _RepeatedKeyError(Exception):
    pass


def _repeated_key(text: bytes) -> str | None:
    """A key that stands twice in one of the objects of a line."""

    def check(pairs: list[tuple[str, JsonValue]]) -> None:
        seen = set()
        for key, _ in pairs:
            if key in seen:
                raise _RepeatedKeyError(key)
            seen.add(key)

    try:
        json.loads(text, object_pairs_hook=check)
    except _RepeatedKeyError as error:
        return str(error)
    except (ValueError, RecursionError):
        # The exact reader took it: huge numbers and deep nesting are its business.
        return None
    return None
