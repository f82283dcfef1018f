"""Extending a log: materialize, repair the tail, append. Upstream: session-jsonl writer."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from typing_extensions import override

from dsh_session import SessionEvent, SessionHeader
from dsh_session_jsonl._encoding import framed, header_line, rows
from dsh_session_jsonl._reader import LogReader
from dsh_session_jsonl.durable_files import append_durably, cut_durably, open_to_append, publish
from dsh_session_jsonl.layout import LOCK_NAME, Compression
from dsh_session_jsonl.stored_lines import MAX_LINE_BYTES
from dsh_session_persistence import Claim, Lease, SessionAlreadyExistsError, WriteLog
from dsh_session_persistence.files import Inode, make_folders


class LogWriter(WriteLog[bytes]):
    """The one writer of a log: of a new session, or of a stored one (`resume`)."""

    def __init__(
        self,
        path: Path,
        compression: Compression,
        header: SessionHeader,
        inherited_event_count: int,
        *,
        check_absent: Callable[[], None] = lambda: None,
        max_line_bytes: int = MAX_LINE_BYTES,
        stored: Sequence[SessionEvent] = (),
        claim: Claim | None = None,
    ) -> None:
        """Prepare the log; nothing is touched before the first write.

        `check_absent` raises `SessionAlreadyExistsError` if a new session was stored meanwhile.
        """
        super().__init__(
            header,
            inherited_event_count,
            path=path,
            location=str(path),
            stored=stored,
            claim=claim,
        )
        self._log_path = path
        self._compression: Compression = compression
        self._check_absent = check_absent
        self._max_line_bytes = max_line_bytes
        self._file: int | None = None
        self._size = 0
        self._tail_torn = False
        self._synced = False
        """Whether everything up to `_size` is known to be on the disk."""
        self._owed: Sequence[SessionEvent] = ()

    @classmethod
    def resume(cls, reader: LogReader, lease: Lease) -> "LogWriter":
        """Go on with a stored log that was read under `lease`, which belongs to the writer now."""
        scan = reader.scan
        log = cls(
            scan.path,
            scan.compression,
            reader.header,
            reader.inherited_event_count,
            max_line_bytes=scan.max_line_bytes,
            stored=scan.rules.events,
            claim=lease,
        )
        log._file = open_to_append(scan.path)
        log._owed = tuple(scan.rules.events[reader.end - scan.unframed :])
        log._size = scan.good_end
        log._tail_torn = os.fstat(log._file).st_size != log._size
        return log

    @override
    def _encode(self, events: Sequence[SessionEvent]) -> bytes:
        return rows(events, path=self._log_path, max_line_bytes=self._max_line_bytes)

    @override
    def _take_claim(self) -> Claim:
        folder = self._log_path.parent
        make_folders(folder)
        return Lease.acquire(folder / LOCK_NAME, self.header.id)

    @override
    def _create(self, batch: bytes) -> None:
        data = framed(header_line(self.header), self._compression)
        data += framed(batch, self._compression) if batch else b""
        self._check_absent()
        try:
            publish(self._log_path, data)
        except FileExistsError as error:
            raise SessionAlreadyExistsError(self.header.id, str(self._log_path)) from error
        self._file = open_to_append(self._log_path)
        self._size = len(data)
        self._synced = True

    @override
    def _extend(self, batch: bytes) -> None:
        self._repair()
        self._write(batch)

    @override
    def _sync(self) -> None:
        # What an earlier writer left may not be on the disk; own batches are, one by one.
        if not self._synced:
            os.fsync(self._open_file)
            self._synced = True

    @override
    def _displaced(self) -> str | None:
        held = os.fstat(self._open_file)
        try:
            at_path = self._log_path.stat()
        except FileNotFoundError:
            return f"{self._log_path} was removed"
        if Inode.of(held) != Inode.of(at_path):
            return f"{self._log_path} was replaced"
        if held.st_size != self._size and not self._tail_torn:
            return f"somebody else changed {self._log_path}"
        return None

    @override
    def _let_go(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    @property
    def _open_file(self) -> int:
        assert self._file is not None, "a stored log is open until it is let go"
        return self._file

    def _repair(self) -> None:
        """Cut a torn tail off and store again what of it was valid."""
        if self._tail_torn:
            cut_durably(self._open_file, self._size)
            self._tail_torn = False
        if self._owed:
            self._write(self._encode(self._owed))
            self._owed = ()

    def _write(self, text: bytes) -> None:
        data = framed(text, self._compression)
        self._synced = False
        try:
            append_durably(self._open_file, self._size, data)
        except ExceptionGroup:
            self._tail_torn = True
            raise
        self._size += len(data)
        self._synced = True
