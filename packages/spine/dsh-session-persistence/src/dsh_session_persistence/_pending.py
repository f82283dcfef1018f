"""Reading a session that was created here and has not been written yet."""

from collections.abc import Sequence

from typing_extensions import override

from dsh_session import SessionEvent, SessionHeader
from dsh_session_persistence.handle import SessionHandle
from dsh_session_persistence.logs import ReadLog
from dsh_session_persistence.types import SessionLog, SessionLogStore, SessionPersistenceSnapshot


def pending_snapshot(header: SessionHeader) -> SessionPersistenceSnapshot:
    """Describe a session that only this process knows."""
    return SessionPersistenceSnapshot(header=header, revision="unwritten", event_count=0)


class PendingLog(ReadLog):
    """Empty until the writer has written; then the log of the store."""

    def __init__(self, store: SessionLogStore, writer: SessionHandle) -> None:
        super().__init__(writer.header, writer.inherited_event_count, path=writer.path)
        self._store = store
        self._writer = writer
        self._stored: SessionLog | None = None

    @property
    @override
    def materialized(self) -> bool:
        return self._writer.materialized

    @override
    def close(self) -> None:
        if self._stored is not None:
            self._stored.close()

    @override
    def _newest(self) -> Sequence[SessionEvent]:
        if self._stored is None and (self._writer.materialized or self._writer.closed):
            self._stored = self._store.open(self.header.id, "read")
        return () if self._stored is None else self._stored.read()
