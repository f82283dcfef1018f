"""A session that a crash ended goes on where its log ends."""

from pathlib import Path

import anyio

import dsh_session_jsonl
from dsh_cordis import Context
from dsh_session import (
    CheckedLog,
    EndSeed,
    RestoredLog,
    SessionId,
    SessionMeta,
    SessionStore,
    StepStart,
    TodoWrite,
    TurnStart,
    interrupted_turn_closers,
)
from dsh_session_jsonl import JsonlStore
from dsh_session_persistence import SessionPersistence
from dsh_session_persistence.testing import sample_events, sample_header

ID = SessionId("sample")


async def start(ctx: Context, root: Path) -> SessionPersistence:
    _ = ctx.plugin(SessionStore)
    _ = ctx.plugin(dsh_session_jsonl, {"root": str(root), "compression": "zstd"})
    await ctx.settled()
    store = ctx.get(SessionPersistence)
    assert store is not None
    return store


async def test_S108_S114_a_session_is_resumed_through_its_handle(tmp_path: Path) -> None:
    with anyio.fail_after(5):
        async with Context() as ctx:
            store = await start(ctx, tmp_path)
            session = ctx.sessions.prepare(ID, meta=SessionMeta(cwd="/srv/demo"))
            await store.create(session.header)
            ctx.sessions.enter(session)
            ctx.sessions.announce(session)
            session.append(TurnStart(turn=1))
            session.append(StepStart(turn=1, step=1))
        before = list(session.events)
        async with Context() as ctx:
            store = await start(ctx, tmp_path)
            handle = await store.open(ID, "write")
            assert list(await handle.read()) == before
            closers = interrupted_turn_closers(await handle.read())
            await handle.append(closers)
            events = await handle.read()
            resumed = ctx.sessions.prepare(
                restored=RestoredLog(
                    header=handle.header,
                    events=events,
                    inherited_event_count=handle.inherited_event_count,
                )
            )
            await handle.append(resumed.events[len(events) :])
            ctx.sessions.enter(resumed)
            ctx.sessions.announce(resumed)
            resumed.append(TodoWrite(todos=()))
            assert await ctx.sessions.flush(resumed)
            assert handle.path is not None
            assert handle.path.name == "session.v4.jsonl.zstd"
            assert store.path_of(ID) == handle.path
        stored = JsonlStore(tmp_path, "zstd").open(ID, "read").read()
    assert list(stored) == list(resumed.events)
    assert [event.type for event in stored] == [
        "turn/start",
        "step/start",
        "step/end",
        "turn/end",
        "session/end-seed",
        "todo/write",
    ]
    assert isinstance(stored[4].data, EndSeed)


async def test_S106_S169_what_a_handle_read_for_resuming_is_known_to_be_checked(
    tmp_path: Path,
) -> None:
    with anyio.fail_after(5):
        async with Context() as ctx:
            store = await start(ctx, tmp_path)
            async with await store.create(sample_header(ID)) as handle:
                await handle.append(sample_events(2))
            async with await store.open(ID, "write") as handle:
                read = await handle.read()
                assert isinstance(read, CheckedLog)
                assert isinstance(await handle.read(1), tuple)
                await handle.append(sample_events(1, start=2))
                assert isinstance(await handle.read(), tuple), "the writer takes what it is given"
                assert list(read) == list(sample_events(2))
