"""Handles, freshness, claims and routing over the store in memory (S105-S122), and the log's rules."""

from collections.abc import Iterator
from typing import ClassVar

import msgspec
import pytest

from dsh_cordis import Context
from dsh_session import (
    SessionEvent,
    SessionEventData,
    SessionId,
    SurfaceError,
    TodoWrite,
    decode_stored_event,
    register_session_event,
)
from dsh_session.testing import WORKED_EXAMPLE
from dsh_session_persistence import (
    SessionAlreadyOwnedError,
    SessionBatchRefusedError,
    SessionPersistence,
    StoredLogRules,
)
from dsh_session_persistence.testing import (
    MemoryLogStore,
    MemoryPersistence,
    mounted,
    sample_events,
    sample_header,
)

ID = SessionId("sample")


def service(ctx: Context) -> SessionPersistence:
    found = ctx.get(SessionPersistence)
    assert found is not None
    return found


@register_session_event
class Redaction(SessionEventData, frozen=True, kw_only=True):
    """Changes messages before it."""

    type: ClassVar[str] = "test/stored-redaction"
    projects: ClassVar[bool] = True


async def test_S105_a_batch_is_taken_at_the_call_and_whole_or_not_at_all() -> None:
    log = sample_events(6)

    def once(events: list[SessionEvent]) -> Iterator[SessionEvent]:
        yield from events

    store = MemoryLogStore()
    async with (
        mounted((MemoryPersistence, store)) as ctx,
        await service(ctx).create(sample_header()) as writer,
    ):
        await writer.append(list(once(log[:2])))
        await writer.append([])
        for batch in ([log[3]], [log[2], log[4]], [log[2], log[2]], [log[1]]):
            with pytest.raises(SessionBatchRefusedError):
                await writer.append(batch)
        assert list(await writer.read()) == log[:2]
        await writer.append(log[2:])
        assert list(store.records[ID].events) == log


async def test_S107_whoever_reads_after_an_append_sees_it() -> None:
    async with (
        mounted((MemoryPersistence, MemoryLogStore())) as ctx,
        await service(ctx).create(sample_header()) as writer,
        await service(ctx).open(ID, "read") as before,
    ):
        assert list(await before.read()) == []
        for count in (1, 3):
            await writer.append(sample_events(count, start=len(await writer.read())))
            expected = await writer.read()
            async with await service(ctx).open(ID, "read") as after:
                assert await before.read() == await after.read() == expected
        revision = (await service(ctx).stat(ID)).revision
        (listed,) = (await service(ctx).list()).sessions
        assert listed.revision == revision
        await writer.append(sample_events(1, start=4))
        assert (await service(ctx).stat(ID)).revision != revision


async def test_S111_what_a_listing_tells_comes_from_headers() -> None:
    async with mounted((MemoryPersistence, MemoryLogStore())) as ctx:
        for name in ("a", "b"):
            async with await service(ctx).create(sample_header(name)) as writer:
                await writer.append(sample_events(2))
        listing = await service(ctx).list()
        assert [found.header for found in listing.sessions] == [
            sample_header("a"),
            sample_header("b"),
        ]
        assert listing.problems == ()
        before = (await service(ctx).stat(SessionId("a"))).revision
        async with await service(ctx).open(SessionId("a"), "write"):
            assert (await service(ctx).stat(SessionId("a"))).revision == before


async def test_S115_events_go_to_the_active_writer_of_their_id() -> None:
    store = MemoryLogStore()
    async with mounted((MemoryPersistence, store)) as ctx:
        first = ctx.sessions.prepare(SessionId("first"))
        second = ctx.sessions.prepare(SessionId("second"))
        handles = [await service(ctx).create(session.header) for session in (first, second)]
        detach = [ctx.sessions.enter(session) for session in (first, second)]
        for session in (first, second):
            ctx.sessions.announce(session)
        event = first.append(TodoWrite(todos=()))
        assert handles[0].pending == 1
        assert handles[1].pending == 0
        assert await ctx.sessions.flush(first)
        stored = store.records[SessionId("first")].events
        assert stored[0] is event
        second.append(TodoWrite(todos=()))
        await detach[1]()
        await handles[1].close()
        assert len(store.records[SessionId("second")].events) == 1
        await handles[0].close()


async def test_S122_one_writer_of_an_id_and_any_readers() -> None:
    async with mounted((MemoryPersistence, MemoryLogStore())) as ctx:
        writer = await service(ctx).create(sample_header())
        await writer.append(sample_events(1))
        with pytest.raises(SessionAlreadyOwnedError):
            await service(ctx).open(ID, "write")
        async with await service(ctx).open(ID, "read") as reader:
            assert len(await reader.read()) == 1
        await writer.close()
        async with await service(ctx).open(ID, "write") as again:
            await again.append(sample_events(1, start=1))


def example() -> list[SessionEvent]:
    return [decode_stored_event(row) for row in WORKED_EXAMPLE.splitlines()[1:]]


def test_S120_the_surface_of_a_stored_log_is_followed() -> None:
    rules = StoredLogRules(sample_header())
    for event in example():
        rules.take(event)
    rules.finish()
    broken = StoredLogRules(sample_header())
    for event in example()[:11]:
        broken.take(event)
    replacing = msgspec.structs.replace(example()[11], source_event_seqs=(3,))
    with pytest.raises(SurfaceError, match="without citing"):
        broken.take(replacing)


def test_S55_a_stored_event_that_changes_messages_needs_no_projection_to_be_read() -> None:
    rules = StoredLogRules(sample_header())
    for event in sample_events(3):
        rules.take(event)
    row = b'{"type":"test/stored-redaction","seq":3,"time":0,"data":{}}'
    rules.take(decode_stored_event(row))
    rules.finish()


def test_S102_what_is_stored_is_reached_through_handles_only() -> None:
    own = {name for name in vars(SessionPersistence) if not name.startswith("_")}
    assert own & {"create", "open", "stat", "list", "flush"} == {
        *("create", "open", "stat", "list", "flush")
    }
    assert not own & {"append", "load", "prepare", "read", "close", "save"}
