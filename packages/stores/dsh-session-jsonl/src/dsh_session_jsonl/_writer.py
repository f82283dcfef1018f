"""Extending a log: materialize, repair the tail, append. Upstream: session-jsonl writer."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from typing_extensions import override

from dsh_session import SessionEvent, SessionHeader
from dsh_session_jsonl._encoding import framed, header_line, rows
from dsh_session_jsonl._lease import Lease
from dsh_session_jsonl._reader import LogReader
from dsh_session_jsonl.durable_files import (
    append_durably,
    cut_durably,
    make_folders,
    open_to_append,
    publish,
)
from dsh_session_jsonl.layout import Compression
from dsh_session_jsonl.stored_lines import MAX_LINE_BYTES
from dsh_session_persistence import (
    SessionAlreadyExistsError,
    SessionLog,
    SessionOwnershipLostError,
    SessionStorageError,
)


class LogWriter(SessionLog):
    """The one writer of a log: of a new session (`create`) or of a stored one (`resume`)."""

    def __init__(
        self,
        path: Path,
        compression: Compression,
        header: SessionHeader,
        inherited_event_count: int,
        *,
        check_absent: Callable[[], None],
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        """Prepare a new session; nothing is touched before its first write.

        `check_absent` raises `SessionAlreadyExistsError` if the id was stored meanwhile.
        """
        self._path = path
        self._compression: Compression = compression
        self._header = header
        self._inherited = inherited_event_count
        self._check_absent = check_absent
        self._max_line_bytes = max_line_bytes
        self._events: list[SessionEvent] = []
        self._lease: Lease | None = None
        self._file: int | None = None
        self._size = 0
        self._tail_torn = False
        self._synced = False
        """Whether everything up to `_size` is known to be on the disk."""
        self._owed: Sequence[SessionEvent] = ()
        self._lost: str | None = None

    @classmethod
    def resume(cls, reader: LogReader, lease: Lease) -> "LogWriter":
        """Go on with a stored log that was read under `lease`, which belongs to the writer now."""
        scan = reader.scan
        log = cls(
            scan.path,
            scan.compression,
            reader.header,
            reader.inherited_event_count,
            check_absent=lambda: None,
            max_line_bytes=scan.max_line_bytes,
        )
        log._file = open_to_append(scan.path)
        log._lease = lease
        log._events = list(reader.read())
        log._owed = tuple(scan.events[len(scan.events) - scan.unframed :])
        log._size = scan.good_end
        log._tail_torn = os.fstat(log._file).st_size != log._size
        return log

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
        return len(self._events)

    @property
    @override
    def materialized(self) -> bool:
        return self._file is not None

    @property
    @override
    def path(self) -> Path | None:
        return self._path

    @override
    def read(self) -> Sequence[SessionEvent]:
        return self._events

    @override
    def append(self, events: Sequence[SessionEvent]) -> None:
        text = self._rows(events)
        with self._storage_errors():
            if self._file is None:
                self._materialize(text)
            else:
                self._check_owned(self._file)
                self._repair(self._file)
                self._write(self._file, text)
        self._events.extend(events)

    @override
    def flush(self) -> None:
        with self._storage_errors():
            if self._file is None:
                self._materialize(b"")
            else:
                self._check_owned(self._file)
                self._sync(self._file)

    @override
    def close(self) -> None:
        file, self._file = self._file, None
        try:
            if file is not None:
                os.close(file)
        finally:
            self._release()

    def _materialize(self, text: bytes) -> None:
        folder = self._path.parent
        make_folders(folder)
        self._lease = Lease.acquire(folder, self._header.id)
        try:
            self._check_absent()
            data = framed(header_line(self._header), self._compression)
            data += framed(text, self._compression) if text else b""
            try:
                publish(self._path, data)
            except FileExistsError as error:
                raise SessionAlreadyExistsError(self._header.id, str(self._path)) from error
            self._file = open_to_append(self._path)
        except BaseException:
            self._release()
            raise
        self._size = len(data)
        self._synced = True

    def _check_owned(self, file: int) -> None:
        if self._lost is None:
            self._lost = self._loss(file)
        if self._lost is not None:
            raise SessionOwnershipLostError(self._header.id, self._lost)

    def _loss(self, file: int) -> str | None:
        if self._lease is None or not self._lease.is_held():
            return "its lock file was removed or replaced"
        held = os.fstat(file)
        try:
            at_path = self._path.stat()
        except FileNotFoundError:
            return f"{self._path} was removed"
        if (held.st_dev, held.st_ino) != (at_path.st_dev, at_path.st_ino):
            return f"{self._path} was replaced"
        if held.st_size != self._size and not self._tail_torn:
            return f"somebody else changed {self._path}"
        return None

    def _repair(self, file: int) -> None:
        """Cut a torn tail off and store again what of it was valid."""
        if self._tail_torn:
            cut_durably(file, self._size)
            self._tail_torn = False
        if self._owed:
            self._write(file, self._rows(self._owed))
            self._owed = ()

    def _write(self, file: int, text: bytes) -> None:
        data = framed(text, self._compression)
        self._synced = False
        try:
            append_durably(file, self._size, data)
        except ExceptionGroup:
            self._tail_torn = True
            raise
        self._size += len(data)
        self._synced = True

    def _sync(self, file: int) -> None:
        # What an earlier writer left may not be on the disk; own batches are, one by one.
        if not self._synced:
            os.fsync(file)
            self._synced = True

    def _rows(self, events: Sequence[SessionEvent]) -> bytes:
        return rows(events, path=self._path, max_line_bytes=self._max_line_bytes)

    def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    @contextlib.contextmanager
    def _storage_errors(self) -> Iterator[None]:
        """Say which log could not be written, whatever the system's own words are."""
        try:
            yield
        except (OSError, ExceptionGroup) as error:
            raise SessionStorageError(
                f"session {self._header.id!r} could not be written; what was stored before is "
                "intact, try again when the disk can take it",
                str(self._path),
                cause=error,
            ) from error
