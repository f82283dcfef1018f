"""The suite that every store passes: subclass `PersistenceConformance` and give it a store."""

# ruff: noqa: D102, N802  # the names of the tests are sentences, led by the rule they cite

import json
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from subprocess import Popen

import anyio
import pytest
from anyio.abc import TaskGroup

from dsh_cordis import Context
from dsh_session import SessionEvent, SessionEventData, SessionId, SessionStore, TodoWrite
from dsh_session_persistence.errors import (
    SessionAlreadyExistsError,
    SessionAlreadyOwnedError,
    SessionBatchRefusedError,
    SessionHandleClosedError,
    SessionPersistenceNotFoundError,
    SessionReadOnlyError,
)
from dsh_session_persistence.handle import SessionHandle
from dsh_session_persistence.service import SessionPersistence
from dsh_session_persistence.testing.samples import (
    inherited_marker,
    sample_events,
    sample_header,
)
from dsh_session_persistence.testing.writer import StorePlugin, writer_process

_WAIT_S = 5


@asynccontextmanager
async def mounted(store_plugin: StorePlugin) -> AsyncIterator[Context]:
    """A root context with a session store and the given persistence, disposed at the end."""
    plugin, config = store_plugin
    with anyio.fail_after(_WAIT_S * 2):
        async with Context() as ctx:
            _ = ctx.plugin(SessionStore)
            _ = ctx.plugin(plugin, config)
            await ctx.settled()
            yield ctx


class PersistenceConformance:
    """Subclass as `class TestMyStore(PersistenceConformance)` and override `store_plugin`."""

    @pytest.fixture
    def store_plugin(self) -> StorePlugin:
        """The plugin under test with a config that leads to fresh, empty storage."""
        raise NotImplementedError("override the fixture store_plugin")

    async def test_S105_S107_appended_events_are_read_back(self, store_plugin: StorePlugin) -> None:
        events = sample_events(5)
        async with mounted(store_plugin) as ctx:
            store = _store(ctx)
            async with await store.create(sample_header()) as writer:
                await writer.append(events[:2])
                await writer.append([])
                await writer.append(events[2:])
                assert list(await writer.read()) == events
                async with await store.open(SessionId("sample"), "read") as reader:
                    assert list(await reader.read()) == events
                    assert list(await reader.read(1, 2)) == events[1:3]
                    assert list(await reader.read(5)) == []
                    assert reader.header == sample_header()
        async with (
            mounted(store_plugin) as ctx,
            await _store(ctx).open(SessionId("sample"), "write") as writer,
        ):
            assert list(await writer.read()) == events

    @pytest.mark.parametrize(
        ("offset", "length"), [(-1, None), (True, None), (1.0, None), (0, -1), ("0", None)]
    )
    async def test_S104_a_bad_slice_raises(
        self, store_plugin: StorePlugin, offset: int, length: int | None
    ) -> None:
        async with (
            mounted(store_plugin) as ctx,
            await _store(ctx).create(sample_header()) as writer,
        ):
            with pytest.raises(ValueError, match="non-negative integer"):
                await writer.read(offset, length)

    @pytest.mark.parametrize("seqs", [(0, 1), (3, 4), (2, 4), (2, 2)])
    async def test_S105_a_batch_that_does_not_continue_is_refused_whole(
        self, store_plugin: StorePlugin, seqs: tuple[int, int]
    ) -> None:
        log = sample_events(6)
        async with (
            mounted(store_plugin) as ctx,
            await _store(ctx).create(sample_header()) as writer,
        ):
            await writer.append(log[:2])
            with pytest.raises(SessionBatchRefusedError):
                await writer.append([log[seq] for seq in seqs])
            assert list(await writer.read()) == log[:2]
            await writer.append(log[2:])
            assert list(await writer.read()) == log

    async def test_S105_the_batch_is_taken_at_the_call(self, store_plugin: StorePlugin) -> None:
        batch = sample_events(3)
        async with (
            mounted(store_plugin) as ctx,
            await _store(ctx).create(sample_header()) as writer,
        ):
            async with anyio.create_task_group() as tasks:
                await _begin_append(tasks, writer, batch)
                batch.clear()
            assert list(await writer.read()) == sample_events(3)

    async def test_S103_a_read_handle_refuses_mutations(self, store_plugin: StorePlugin) -> None:
        async with mounted(store_plugin) as ctx:
            store = _store(ctx)
            async with await store.create(sample_header()) as writer:
                await writer.append(sample_events(1))
            async with await store.open(SessionId("sample"), "read") as reader:
                assert reader.access == "read"
                with pytest.raises(SessionReadOnlyError):
                    await reader.append(sample_events(1, start=1))
                with pytest.raises(SessionReadOnlyError):
                    await reader.flush()

    async def test_S103_a_closed_handle_refuses_everything(self, store_plugin: StorePlugin) -> None:
        async with mounted(store_plugin) as ctx:
            writer = await _store(ctx).create(sample_header())
            await writer.close()
            await writer.close()
            for call in (lambda: writer.read(-1), lambda: writer.append([]), writer.flush):
                with pytest.raises(SessionHandleClosedError):
                    await call()

    async def test_S109_a_session_never_written_leaves_no_trace(
        self, store_plugin: StorePlugin
    ) -> None:
        async with mounted(store_plugin) as ctx, mounted(store_plugin) as other:
            writer = await _store(ctx).create(sample_header())
            assert await _ids(ctx) == ["sample"]
            assert (await _store(ctx).stat(writer.id)).header == sample_header()
            assert await _ids(other) == []
            await writer.close()
            assert await _ids(ctx) == []
            with pytest.raises(SessionPersistenceNotFoundError):
                await _store(ctx).open(writer.id, "read")

    async def test_S109_a_reader_of_an_unwritten_session_sees_it_grow(
        self, store_plugin: StorePlugin
    ) -> None:
        async with mounted(store_plugin) as ctx:
            store = _store(ctx)
            async with (
                await store.create(sample_header()) as writer,
                await store.open(writer.id, "read") as reader,
            ):
                assert list(await reader.read()) == []
                await writer.append(sample_events(2))
                assert list(await reader.read()) == sample_events(2)

    async def test_S106_flush_makes_an_empty_session_exist(self, store_plugin: StorePlugin) -> None:
        async with mounted(store_plugin) as ctx, mounted(store_plugin) as other:
            async with await _store(ctx).create(sample_header()) as writer:
                await writer.flush()
                assert await _ids(other) == ["sample"]
                async with await _store(other).open(writer.id, "read") as reader:
                    assert list(await reader.read()) == []
            assert await _ids(ctx) == ["sample"]

    async def test_S109_an_id_is_created_once(self, store_plugin: StorePlugin) -> None:
        async with mounted(store_plugin) as ctx:
            store = _store(ctx)
            async with await store.create(sample_header()) as writer:
                with pytest.raises(SessionAlreadyExistsError):
                    await store.create(sample_header())
                await writer.append(sample_events(1))
            with pytest.raises(SessionAlreadyExistsError):
                await store.create(sample_header(cwd="/elsewhere"))

    async def test_S109_a_fork_prefix_needs_a_seeded_header(
        self, store_plugin: StorePlugin
    ) -> None:
        async with mounted(store_plugin) as ctx:
            with pytest.raises(ValueError, match="not seeded"):
                await _store(ctx).create(sample_header(), 3)
            async with await _store(ctx).create(sample_header(is_seeded=True), 3) as writer:
                await writer.append([*sample_events(3), inherited_marker(3)])
            async with await _store(ctx).open(SessionId("sample"), "read") as reader:
                assert reader.inherited_event_count == 3
                assert reader.header.is_seeded

    async def test_S110_one_writer_and_any_readers(self, store_plugin: StorePlugin) -> None:
        async with mounted(store_plugin) as ctx, mounted(store_plugin) as other:
            async with await _store(ctx).create(sample_header()) as writer:
                await writer.append(sample_events(1))
                for instance in (ctx, other):
                    with pytest.raises(SessionAlreadyOwnedError):
                        await _store(instance).open(writer.id, "write")
                    async with await _store(instance).open(writer.id, "read") as reader:
                        assert list(await reader.read()) == sample_events(1)
            async with await _store(other).open(SessionId("sample"), "write") as second:
                await second.append(sample_events(1, start=1))
                assert list(await second.read()) == sample_events(2)

    async def test_S110_unknown_ids_are_not_found(self, store_plugin: StorePlugin) -> None:
        unknown = SessionId("nobody")
        async with mounted(store_plugin) as ctx:
            for access in ("read", "write"):
                with pytest.raises(SessionPersistenceNotFoundError):
                    await _store(ctx).open(unknown, access)
            with pytest.raises(SessionPersistenceNotFoundError):
                await _store(ctx).stat(unknown)

    async def test_S111_a_revision_moves_with_the_log_only(self, store_plugin: StorePlugin) -> None:
        async with mounted(store_plugin) as ctx:
            store = _store(ctx)
            async with await store.create(sample_header()) as writer:
                await writer.append(sample_events(1))
                first = (await store.stat(writer.id)).revision
            assert (await store.stat(SessionId("sample"))).revision == first
            async with await store.open(SessionId("sample"), "write") as writer:
                assert (await store.stat(writer.id)).revision == first
                await writer.append(sample_events(1, start=1))
                assert (await store.stat(writer.id)).revision != first

    async def test_S123_two_creators_and_the_second_to_write_loses(
        self, store_plugin: StorePlugin
    ) -> None:
        async with mounted(store_plugin) as ctx, mounted(store_plugin) as other:
            async with (
                await _store(ctx).create(sample_header()) as winner,
                await _store(other).create(sample_header()) as loser,
            ):
                await winner.append(sample_events(2))
                with pytest.raises((SessionAlreadyExistsError, SessionAlreadyOwnedError)):
                    await loser.append(sample_events(1))
                assert list(await winner.read()) == sample_events(2)
            async with await _store(ctx).open(SessionId("sample"), "read") as reader:
                assert list(await reader.read()) == sample_events(2)

    async def test_S123_another_process_excludes_writers_until_it_ends(
        self, store_plugin: StorePlugin
    ) -> None:
        with _another_process(store_plugin):
            async with mounted(store_plugin) as ctx:
                store = _store(ctx)
                with pytest.raises(SessionAlreadyOwnedError):
                    await store.open(SessionId("sample"), "write")
                async with await store.open(SessionId("sample"), "read") as reader:
                    assert list(await reader.read()) == sample_events(1)
        async with (
            mounted(store_plugin) as ctx,
            await _store(ctx).open(SessionId("sample"), "write") as writer,
        ):
            await writer.append(sample_events(1, start=1))
            assert list(await writer.read()) == sample_events(2)

    async def test_S125_S142_a_killed_writer_leaves_what_it_stored_and_no_claim(
        self, store_plugin: StorePlugin
    ) -> None:
        with _another_process(store_plugin, ready=20, count=1_000_000) as process:
            process.kill()
        async with mounted(store_plugin) as ctx:
            store = _store(ctx)
            async with await store.open(SessionId("sample"), "write") as writer:
                count = len(await writer.read())
                assert count >= 20
                await writer.append(sample_events(2, start=count))
            async with await store.open(SessionId("sample"), "read") as reader:
                assert list(await reader.read()) == sample_events(count + 2)

    async def test_S113_operations_run_in_call_order(self, store_plugin: StorePlugin) -> None:
        async with (
            mounted(store_plugin) as ctx,
            await _store(ctx).create(sample_header()) as writer,
        ):
            async with anyio.create_task_group() as tasks:
                for seq in range(20):
                    await _begin_append(tasks, writer, sample_events(1, start=seq))
            assert list(await writer.read()) == sample_events(20)

    async def test_S115_live_events_reach_the_store(self, store_plugin: StorePlugin) -> None:
        async with mounted(store_plugin) as ctx:
            sessions = ctx.sessions
            session = sessions.prepare(SessionId("sample"))
            async with await _store(ctx).create(session.header) as writer:
                detach = sessions.enter(session)
                sessions.announce(session)
                logged = [session.append(payload) for payload in _log_only(4)]
                assert await sessions.flush(session)
                assert list(await writer.read()) == logged
                logged += [session.append(payload) for payload in _log_only(2)]
                await detach()
            async with await _store(ctx).open(session.id, "read") as reader:
                assert list(await reader.read()) == logged

    async def test_S112_unloading_stores_what_is_pending(self, store_plugin: StorePlugin) -> None:
        async with mounted(store_plugin) as ctx:
            session = ctx.sessions.create(SessionId("sample"))
            await _store(ctx).create(session.header)
            logged = [session.append(payload) for payload in _log_only(3)]
        async with (
            mounted(store_plugin) as ctx,
            await _store(ctx).open(SessionId("sample"), "read") as reader,
        ):
            assert list(await reader.read()) == logged


def _another_process(
    store_plugin: StorePlugin, *, ready: int = 1, count: int = 1
) -> AbstractContextManager[Popen[str]]:
    try:
        json.dumps(store_plugin[1])
    except TypeError:
        pytest.skip("the sessions of this store live in one process: its config is no JSON")
    return writer_process(store_plugin, ready=ready, count=count)


def _store(ctx: Context) -> SessionPersistence:
    store = ctx.get(SessionPersistence)
    assert store is not None
    return store


async def _ids(ctx: Context) -> list[str]:
    listing = await _store(ctx).list()
    assert not listing.problems
    return [snapshot.header.id for snapshot in listing.sessions]


async def _begin_append(tasks: TaskGroup, writer: SessionHandle, batch: list[SessionEvent]) -> None:
    """Return when the append was called; tasks started together would begin in any order."""
    called = anyio.Event()

    async def append() -> None:
        called.set()
        await writer.append(batch)

    tasks.start_soon(append)
    await called.wait()


def _log_only(count: int) -> list[SessionEventData]:
    """Payloads that need no surface marker."""
    return [TodoWrite(todos=()) for _ in range(count)]
