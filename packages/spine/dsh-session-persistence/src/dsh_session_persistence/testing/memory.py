"""The reference store: sessions in memory. It shows what a store has to do, and nothing else."""

from collections.abc import Sequence

from typing_extensions import override

from dsh_cordis import Context
from dsh_session import SessionEvent, SessionHeader, SessionId
from dsh_session_persistence.errors import (
    SessionAlreadyExistsError,
    SessionAlreadyOwnedError,
    SessionPersistenceNotFoundError,
)
from dsh_session_persistence.leases import Claim
from dsh_session_persistence.logs import ReadLog, WriteLog
from dsh_session_persistence.service import SessionPersistence
from dsh_session_persistence.types import (
    Access,
    SessionListing,
    SessionLog,
    SessionLogStore,
    SessionPersistenceSnapshot,
)


class MemoryRecord(Claim):
    """One stored session; every log of it, of any instance, shares this object."""

    def __init__(self, header: SessionHeader, inherited_event_count: int) -> None:
        self.header = header
        self.inherited_event_count = inherited_event_count
        self.events: list[SessionEvent] = []
        self.owned = False

    def claim(self) -> Claim:
        """Become the one writer."""
        if self.owned:
            raise SessionAlreadyOwnedError(self.header.id)
        self.owned = True
        return self

    @override
    def is_held(self) -> bool:
        return self.owned

    @override
    def release(self) -> None:
        self.owned = False


class MemoryReadLog(ReadLog):
    """A log of a `MemoryLogStore`, opened for reading."""

    def __init__(self, record: MemoryRecord) -> None:
        super().__init__(record.header, record.inherited_event_count)
        self._record = record
        self.read()

    @override
    def _newest(self) -> Sequence[SessionEvent]:
        return tuple(self._record.events)


class MemoryWriteLog(WriteLog[Sequence[SessionEvent]]):
    """The writer of a log of a `MemoryLogStore`."""

    def __init__(
        self, store: "MemoryLogStore", record: MemoryRecord, claim: Claim | None = None
    ) -> None:
        super().__init__(
            record.header,
            record.inherited_event_count,
            location="memory",
            stored=record.events,
            claim=claim,
        )
        self._store = store
        self._record = record

    @override
    def _encode(self, events: Sequence[SessionEvent]) -> Sequence[SessionEvent]:
        return events

    @override
    def _take_claim(self) -> Claim:
        return self._store.records.get(self.header.id, self._record).claim()

    @override
    def _create(self, batch: Sequence[SessionEvent]) -> None:
        if self._store.records.setdefault(self.header.id, self._record) is not self._record:
            raise SessionAlreadyExistsError(self.header.id)
        self._record.events.extend(batch)

    @override
    def _extend(self, batch: Sequence[SessionEvent]) -> None:
        self._record.events.extend(batch)

    @override
    def _displaced(self) -> str | None:
        return None

    @override
    def _let_go(self) -> None:
        """Nothing is open."""


class MemoryLogStore(SessionLogStore):
    """Sessions that live as long as this object; several services may share it."""

    def __init__(self) -> None:
        self.records: dict[SessionId, MemoryRecord] = {}

    @override
    def create(self, header: SessionHeader, inherited_event_count: int) -> SessionLog:
        if header.id in self.records:
            raise SessionAlreadyExistsError(header.id)
        return MemoryWriteLog(self, MemoryRecord(header, inherited_event_count))

    @override
    def open(self, session_id: SessionId, access: Access) -> SessionLog:
        record = self._record(session_id)
        if access == "read":
            return MemoryReadLog(record)
        return MemoryWriteLog(self, record, record.claim())

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
