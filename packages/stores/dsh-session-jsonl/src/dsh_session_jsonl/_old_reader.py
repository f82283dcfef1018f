"""Reading a log of formats 0 to 3, and publishing what it becomes beside it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from typing_extensions import override

from dsh_session import SESSION_FORMAT_VERSION, SessionEvent, SessionHeader
from dsh_session_jsonl._encoding import framed, header_line
from dsh_session_jsonl._log import log
from dsh_session_jsonl._old_scan import OldLogScan
from dsh_session_jsonl._reader import LogReader, revision_of
from dsh_session_jsonl.durable_files import publish
from dsh_session_jsonl.layout import LogName, log_name
from dsh_session_jsonl.stored_lines import MAX_LINE_BYTES, open_log
from dsh_session_persistence import ReadLog, SessionPersistenceError, SessionStorageError

_ATTEMPTS: Final = 5
"""Readings of a file that somebody changes meanwhile."""


class ConvertedLog(NamedTuple):
    """An old log in the present format, in memory."""

    header: SessionHeader
    inherited_event_count: int
    events: Sequence[SessionEvent]
    rows: bytes
    """The events as stored rows."""

    revision: str
    """Of the file it was read from."""


def convert(folder: Path, name: LogName, *, max_line_bytes: int = MAX_LINE_BYTES) -> ConvertedLog:
    """Read and convert the whole file, once it stands still; nothing is written.

    Raises:
        SessionFormatUnsupportedError: It says what the present format cannot say.
        SessionPersistenceCorruptionError: It is no valid log of its own format.
    """
    path = folder / log_name(*name)
    attempt = 1
    while True:
        revision = revision_of(path.stat())
        scan = OldLogScan(path, name, max_line_bytes=max_line_bytes)
        try:
            with open_log(path) as file:
                scan.feed(file)
        except SessionPersistenceError:
            if attempt == _ATTEMPTS or revision_of(path.stat()) == revision:
                raise
        else:
            if attempt == _ATTEMPTS or revision_of(path.stat()) == revision:
                if scan.unpaired:
                    log().warning("session.import.unpaired", path=str(path), seqs=scan.unpaired)
                return ConvertedLog(
                    scan.header,
                    scan.rules.inherited_event_count,
                    scan.rules.events,
                    b"".join(scan.lines),
                    revision,
                )
        attempt += 1


def publish_converted(folder: Path, name: LogName, converted: ConvertedLog) -> None:
    """Make the log of the present format appear beside the old one, which stays as it is.

    The caller holds the lease of the folder.

    Raises:
        FileExistsError: Somebody else published one; it is untouched.
        SessionStorageError: It cannot be written, the old log changed since it was read, or what
            was written reads back differently; no new file remains.
    """
    target = folder / log_name(SESSION_FORMAT_VERSION, name.compression)
    source = folder / log_name(*name)
    if revision_of(source.stat()) != converted.revision:
        raise SessionStorageError("an older build is writing this log: try again", str(source))
    data = framed(header_line(converted.header), name.compression)
    data += framed(converted.rows, name.compression) if converted.rows else b""
    try:
        publish(target, data)
    except FileExistsError:
        raise
    except OSError as error:
        raise SessionStorageError(
            "the converted log could not be written; the old one is as it was",
            str(target),
            cause=error,
        ) from error
    _verify(target, name, converted)


def _verify(target: Path, name: LogName, converted: ConvertedLog) -> None:
    cause: Exception | None = None
    try:
        reader = LogReader(target, name.compression)
        if (reader.header, list(reader.read())) == (converted.header, list(converted.events)):
            return
    except (SessionPersistenceError, OSError) as error:
        cause = error
    target.unlink(missing_ok=True)
    raise SessionStorageError(
        "the converted log reads back differently and was removed; the old one is as it was",
        str(target),
        cause=cause,
    )


class OldLogReader(ReadLog):
    """A log of an older format opened for reading; follows to its successor once there is one."""

    def __init__(
        self, folder: Path, name: LogName, *, max_line_bytes: int = MAX_LINE_BYTES
    ) -> None:
        """Convert the log once; raises as `read`."""
        self._folder = folder
        self._name = name
        self._max_line_bytes = max_line_bytes
        self._log = log = self._converted()
        self._successor: LogReader | None = None
        super().__init__(
            log.header, log.inherited_event_count, log.events, path=folder / log_name(*name)
        )

    @override
    def _newest(self) -> Sequence[SessionEvent]:
        successor = self._folder / log_name(SESSION_FORMAT_VERSION, self._name.compression)
        if self._successor is None and successor.exists():
            self._successor = LogReader(
                successor, self._name.compression, max_line_bytes=self._max_line_bytes
            )
            self._path = successor
        if self._successor is not None:
            return self._successor.read()
        source = self._folder / log_name(*self._name)
        if revision_of(source.stat()) != self._log.revision:
            self._log = self._converted()
        return self._log.events

    def _converted(self) -> ConvertedLog:
        log = convert(self._folder, self._name, max_line_bytes=self._max_line_bytes)
        return log._replace(rows=b"")
