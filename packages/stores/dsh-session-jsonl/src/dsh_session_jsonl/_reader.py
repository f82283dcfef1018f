"""Reading a log beside its writer: what is valid now, never less than what was seen before."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from typing_extensions import override

from dsh_session import SessionEvent
from dsh_session_jsonl._scan import LogScan
from dsh_session_jsonl.layout import Compression
from dsh_session_jsonl.stored_lines import MAX_LINE_BYTES, open_log
from dsh_session_persistence import ReadLog, SessionPersistenceError
from dsh_session_persistence.files import Inode

_ATTEMPTS: Final = 5
"""Readings of a file that somebody changes meanwhile."""


def revision_of(status: os.stat_result) -> str:
    """What changes whenever the file changes."""
    parts = (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )
    return "-".join(f"{part:x}" for part in parts)


class LogFile:
    """A file that is read on from where the last reading ended when it only grew."""

    def __init__(
        self, path: Path, compression: Compression, *, max_line_bytes: int = MAX_LINE_BYTES
    ) -> None:
        """Look at nothing yet."""
        self._path = path
        self._compression: Compression = compression
        self._max_line_bytes = max_line_bytes
        self.scan = self._fresh_scan()
        """What the last reading found."""
        self._revision = ""
        self._inode = Inode(0, 0)
        self._events: Sequence[SessionEvent] | None = None

    def read(self) -> Sequence[SessionEvent]:
        """The valid events now, or what was valid when the file last stood still.

        Raises:
            SessionFormatUnsupportedError: The log needs another build.
            SessionPersistenceCorruptionError: The bytes are no valid log.
            OSError: The file cannot be read.
        """
        for attempt in range(_ATTEMPTS):
            status = self._path.stat()
            if revision_of(status) == self._revision:
                break
            resumed = self.scan.good_end > 0
            try:
                self._refresh(status)
            except SessionPersistenceError:
                self.scan = self._fresh_scan()
                self._revision = ""
                moved = revision_of(self._path.stat()) != revision_of(status)
                # Judged by a whole reading of a file that stood still, if there is any.
                last = attempt == _ATTEMPTS - 1 and self._events is None
                if last or not (moved or resumed):
                    raise
            else:
                break
        assert self._events is not None, "the last attempt raises what it found"
        return self._events

    def _refresh(self, status: os.stat_result) -> None:
        inode = Inode.of(status)
        if inode != self._inode or not self.scan.resumable or status.st_size < self.scan.good_end:
            self.scan = self._fresh_scan()
        with open_log(self._path) as file:
            self.scan.feed(file)
        self._inode, self._revision = inode, revision_of(status)
        self._events = self.scan.rules.events

    def _fresh_scan(self) -> LogScan:
        return LogScan(self._path, self._compression, max_line_bytes=self._max_line_bytes)


class LogReader(ReadLog):
    """A log of the native format, opened for reading."""

    def __init__(
        self, path: Path, compression: Compression, *, max_line_bytes: int = MAX_LINE_BYTES
    ) -> None:
        """Read the log once; raises as `read`."""
        self._file = LogFile(path, compression, max_line_bytes=max_line_bytes)
        events = self._file.read()
        rules = self.scan.rules
        super().__init__(self.scan.header, rules.inherited_event_count, events, path=path)

    @property
    def scan(self) -> LogScan:
        """What the last reading found."""
        return self._file.scan

    @override
    def _newest(self) -> Sequence[SessionEvent]:
        return self._file.read()
