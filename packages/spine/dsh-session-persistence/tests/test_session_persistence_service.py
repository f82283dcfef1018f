"""The service: routing by id, closing, and failures that concern one session only."""

from collections.abc import Sequence

import pytest
from typing_extensions import override

from dsh_cordis import Context, InactiveError
from dsh_session import SessionEvent, SessionHeader, SessionId, SessionStore, TodoWrite
from dsh_session_persistence import (
    SessionAlreadyOwnedError,
    SessionHandleClosedError,
    SessionLog,
    SessionPersistence,
)
from dsh_session_persistence.testing import (
    MemoryLogStore,
    MemoryPersistence,
    mounted,
    sample_events,
    sample_header,
)
from dsh_session_persistence.testing.memory import MemoryRecord, MemoryWriteLog


class BrokenStore(MemoryLogStore):
    """Refuses the writes of sessions in `broken`."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[str] = set()

    @override
    def create(self, header: SessionHeader, inherited_event_count: int) -> SessionLog:
        store = self

        class Log(MemoryWriteLog):
            @override
            def append(self, events: Sequence[SessionEvent]) -> None:
                if self.header.id in store.broken:
                    raise OSError(f"no room for {self.header.id}")
                super().append(events)

        return Log(self, MemoryRecord(header, inherited_event_count))


def service(ctx: Context) -> SessionPersistence:
    found = ctx.get(SessionPersistence)
    assert found is not None
    return found


async def test_S108_a_session_without_a_handle_stores_nothing() -> None:
    store = MemoryLogStore()
    async with mounted((MemoryPersistence, store)) as ctx:
        session = ctx.sessions.create()
        session.append(TodoWrite(todos=()))
        await ctx.sessions.flush(session)
        assert not (await service(ctx).list()).sessions
    assert store.records == {}


async def test_S112_flush_tries_all_and_raises_what_failed_as_a_group() -> None:
    store = BrokenStore()
    async with mounted((MemoryPersistence, store)) as ctx:
        sessions = [ctx.sessions.create(SessionId(name)) for name in ("a", "b", "c")]
        handles = [await service(ctx).create(session.header) for session in sessions]
        for session in sessions:
            session.append(TodoWrite(todos=()))
        store.broken = {"a", "b"}
        with pytest.raises(ExceptionGroup) as caught:
            await service(ctx).flush()
        assert sorted(map(str, caught.value.exceptions)) == ["no room for a", "no room for b"]
        assert list(await handles[2].read()) == list(sessions[2].events)
        with pytest.raises(OSError, match="no room for a"):
            await ctx.sessions.flush(sessions[0])
        store.broken = set()
        await service(ctx).flush()
        for session, handle in zip(sessions, handles, strict=True):
            assert list(await handle.read()) == list(session.events)


async def test_S110_opening_right_after_disposal_waits_for_the_old_writer() -> None:
    async with mounted((MemoryPersistence, MemoryLogStore())) as ctx:
        session = ctx.sessions.prepare(SessionId("sample"))
        detach = ctx.sessions.enter(session)
        ctx.sessions.announce(session)
        old = await service(ctx).create(session.header)
        session.append(TodoWrite(todos=()))
        with pytest.raises(SessionAlreadyOwnedError):
            await service(ctx).open(session.id, "write")
        detach()
        async with await service(ctx).open(session.id, "write") as writer:
            assert old.closed
            assert list(await writer.read()) == list(session.events)


async def test_S112_a_handle_is_closed_with_its_store_and_none_is_opened_after() -> None:
    async with mounted((MemoryPersistence, MemoryLogStore())) as ctx:
        store = service(ctx)
        handle = await store.create(sample_header())
        await handle.append(sample_events(1))
    with pytest.raises(SessionHandleClosedError):
        await handle.read()
    with pytest.raises(InactiveError):
        await store.open(handle.id, "read")


async def test_two_stores_in_one_tree_are_a_conflict_and_isolation_helps() -> None:
    async with mounted((MemoryPersistence, MemoryLogStore())) as ctx:
        inner = ctx.isolate("session_persistence")
        _ = inner.plugin(MemoryPersistence, MemoryLogStore())
        await ctx.settled()
        other = inner.get(SessionPersistence)
        assert other is not None
        assert other is not service(ctx)
        async with await other.create(sample_header()):
            assert len((await other.list()).sessions) == 1
            assert not (await service(ctx).list()).sessions


def test_the_key_is_what_rows_and_contexts_name() -> None:
    assert SessionPersistence.key == "session_persistence"
    assert SessionStore.key == "sessions"
