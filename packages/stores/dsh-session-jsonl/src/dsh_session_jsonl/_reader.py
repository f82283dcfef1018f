"""Reading a log beside its writer: what is valid now, never less than what was seen before."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from typing_extensions import override

from dsh_session import SessionEvent, SessionHeader, inherited_count_of
from dsh_session_jsonl._scan import LogScan
from dsh_session_jsonl.layout import Compression
from dsh_session_jsonl.stored_lines import MAX_LINE_BYTES, open_log
from dsh_session_persistence import SessionLog, SessionPersistenceError

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


class LogReader(SessionLog):
    """A log opened for reading; reads on from where it was when the file only grew."""

    def __init__(
        self, path: Path, compression: Compression, *, max_line_bytes: int = MAX_LINE_BYTES
    ) -> None:
        """Read the log once; raises as `read`."""
        self._path = path
        self._compression: Compression = compression
        self._max_line_bytes = max_line_bytes
        self._scan = self._fresh_scan()
        self._revision = ""
        self._inode = (0, 0)
        self._served: Sequence[SessionEvent] = ()
        self.read()
        self._header = self._scan.header
        self._inherited = inherited_count_of(self._served)

    @property
    @override
    def header(self) -> SessionHeader:
        return self._header

    @property
    @override
    def inherited_event_count(self) -> int:
        return self._inherited

    @property
    @override
    def end(self) -> int:
        return len(self._served)

    @property
    @override
    def materialized(self) -> bool:
        return True

    @property
    @override
    def path(self) -> Path | None:
        return self._path

    @property
    def scan(self) -> LogScan:
        """What the last reading found."""
        return self._scan

    @override
    def read(self) -> Sequence[SessionEvent]:
        for attempt in range(_ATTEMPTS):
            status = self._path.stat()
            if revision_of(status) == self._revision:
                break
            resumed = self._scan.good_end > 0
            try:
                self._refresh(status)
            except SessionPersistenceError:
                self._scan = self._fresh_scan()
                self._revision = ""
                moved = revision_of(self._path.stat()) != revision_of(status)
                # Judged by a whole reading of a file that stood still, if there is any.
                if not (moved or resumed) or (attempt == _ATTEMPTS - 1 and not self._served):
                    raise
            else:
                break
        return self._served

    @override
    def append(self, events: Sequence[SessionEvent]) -> None:
        raise NotImplementedError("a log for reading only")

    @override
    def flush(self) -> None:
        raise NotImplementedError("a log for reading only")

    @override
    def close(self) -> None:
        """Nothing is held open between two reads."""

    def _refresh(self, status: os.stat_result) -> None:
        inode = (status.st_dev, status.st_ino)
        if inode != self._inode or not self._scan.resumable or status.st_size < self._scan.good_end:
            self._scan = self._fresh_scan()
        with open_log(self._path) as file:
            self._scan.feed(file)
        self._inode, self._revision = inode, revision_of(status)
        if len(self._scan.events) >= len(self._served):
            # Shorter is what a reader sees while the writer replaces a torn frame.
            self._served = self._scan.events

    def _fresh_scan(self) -> LogScan:
        return LogScan(self._path, self._compression, max_line_bytes=self._max_line_bytes)
