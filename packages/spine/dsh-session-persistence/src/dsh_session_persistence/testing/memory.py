"""The reference store: sessions in memory. It shows what a store has to do, and nothing else."""

from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from dsh_cordis import Context
from dsh_session import SessionEvent, SessionHeader, SessionId
from dsh_session_persistence.errors import (
    SessionAlreadyExistsError,
    SessionAlreadyOwnedError,
    SessionPersistenceNotFoundError,
)
from dsh_session_persistence.service import SessionPersistence
from dsh_session_persistence.types import (
    Access,
    SessionListing,
    SessionLog,
    SessionLogStore,
    SessionPersistenceSnapshot,
)


class MemoryRecord:
    """One stored session; every log of it, of any instance, shares this object."""

    def __init__(self, header: SessionHeader, inherited_event_count: int) -> None:
        self.header = header
        self.inherited_event_count = inherited_event_count
        self.events: list[SessionEvent] = []
        self.owner: MemoryLog | None = None


class MemoryLog(SessionLog):
    """A log of a `MemoryLogStore`."""

    def __init__(self, store: "MemoryLogStore", record: MemoryRecord, access: Access) -> None:
        self._store = store
        self.record = record
        """What is stored, shared by all logs of the session."""
        if access == "write" and self.materialized:
            self._own()

    @property
    @override
    def header(self) -> SessionHeader:
        return self.record.header

    @property
    @override
    def inherited_event_count(self) -> int:
        return self.record.inherited_event_count

    @property
    @override
    def end(self) -> int:
        return len(self.record.events)

    @property
    @override
    def materialized(self) -> bool:
        return self._store.records.get(self.header.id) is self.record

    @property
    @override
    def path(self) -> Path | None:
        return None

    @override
    def read(self) -> Sequence[SessionEvent]:
        return tuple(self.record.events)

    @override
    def append(self, events: Sequence[SessionEvent]) -> None:
        self.flush()
        self.record.events.extend(events)

    @override
    def flush(self) -> None:
        if self._store.records.setdefault(self.header.id, self.record) is not self.record:
            raise SessionAlreadyExistsError(self.header.id)
        self._own()

    @override
    def close(self) -> None:
        if self.record.owner is self:
            self.record.owner = None

    def _own(self) -> None:
        if self.record.owner not in (None, self):
            raise SessionAlreadyOwnedError(self.header.id)
        self.record.owner = self


class MemoryLogStore(SessionLogStore):
    """Sessions that live as long as this object; several services may share it."""

    def __init__(self) -> None:
        self.records: dict[SessionId, MemoryRecord] = {}

    @override
    def create(self, header: SessionHeader, inherited_event_count: int) -> SessionLog:
        if header.id in self.records:
            raise SessionAlreadyExistsError(header.id)
        return MemoryLog(self, MemoryRecord(header, inherited_event_count), "write")

    @override
    def open(self, session_id: SessionId, access: Access) -> SessionLog:
        return MemoryLog(self, self._record(session_id), access)

    @override
    def stat(self, session_id: SessionId) -> SessionPersistenceSnapshot:
        return _snapshot(self._record(session_id))

    @override
    def list(self) -> SessionListing:
        return SessionListing(sessions=tuple(map(_snapshot, self.records.values())))

    def _record(self, session_id: SessionId) -> MemoryRecord:
        try:
            return self.records[session_id]
        except KeyError:
            raise SessionPersistenceNotFoundError(session_id) from None


class MemoryPersistence(SessionPersistence):
    """`ctx.session_persistence` in memory: `ctx.plugin(MemoryPersistence, MemoryLogStore())`."""

    def __init__(self, ctx: Context, store: MemoryLogStore) -> None:
        """Claim the key; `store` outlives the service and may serve several."""
        super().__init__(ctx, store)


def _snapshot(record: MemoryRecord) -> SessionPersistenceSnapshot:
    count = len(record.events)
    return SessionPersistenceSnapshot(header=record.header, revision=str(count), event_count=count)
