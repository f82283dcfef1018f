"""The store and what it announces (S77-S81, S90-S98)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.lowlevel import checkpoint

from dsh_cordis import Context, InternalDispatch, InternalError, create_scope
from dsh_session import (
    EndSeed,
    InvalidLogError,
    ReentrantAppendError,
    RestoredLog,
    Session,
    SessionConfig,
    SessionCreated,
    SessionDisposed,
    SessionEventAppended,
    SessionFlush,
    SessionForkError,
    SessionHeader,
    SessionId,
    SessionMeta,
    SessionStateError,
    SessionStore,
    TurnStart,
    UserMessageEvent,
)
from dsh_session.testing import append_turn, counting_clock, new_session, user_message


@asynccontextmanager
async def store_root() -> AsyncIterator[Context]:
    with anyio.fail_after(5):
        async with Context() as ctx:
            await ctx.plugin(SessionStore, SessionConfig(now_ms=counting_clock(1000)))
            yield ctx


def record(ctx: Context) -> list[str]:
    seen: list[str] = []
    ctx.on(SessionCreated, lambda event: seen.append(f"created {event.session.id}"))
    ctx.on(SessionEventAppended, lambda event: seen.append(f"event {event.event.type}"))
    ctx.on(SessionDisposed, lambda event: seen.append(f"disposed {event.session.id}"))
    return seen


async def test_S90_create_enters_announces_and_belongs_to_the_caller() -> None:
    async with store_root() as ctx:
        seen = record(ctx)

        class Needs(Context):
            sessions: SessionStore

        def body(inner: Needs) -> None:
            inner.sessions.create(SessionId("a"), meta=SessionMeta(cwd="/w"))

        async with ctx.plugin(body):
            session = ctx.sessions.get("a")
            assert session.header == SessionHeader(id=SessionId("a"), created_at=1001, cwd="/w")
            session.append(TurnStart(turn=1))
            assert ctx.sessions.list() == [session]
        assert seen == ["created a", "event turn/start", "disposed a"]
        assert ctx.sessions.get("a") is None
        session.append("x/y", 1)
        assert len(seen) == 3


async def test_S90_ids_are_minted_and_unique() -> None:
    async with store_root() as ctx:
        ctx.sessions.create(SessionId("session-2"))
        assert [ctx.sessions.create().id for _ in range(2)] == ["session-1", "session-3"]
        with pytest.raises(SessionStateError, match="live already"):
            ctx.sessions.create(SessionId("session-1"))


async def test_S77_meta_and_seed_reach_the_session() -> None:
    async with store_root() as ctx:
        events = append_turn(new_session(), 1)
        meta = SessionMeta(is_seeded=True, created_at=7, parent_session=SessionId("p"))
        session = ctx.sessions.create(seed=events, inherited_event_count=len(events), meta=meta)
        assert session.header.parent_session == "p"
        assert session.events[-1].data == EndSeed(inherited=True)
        with pytest.raises(InvalidLogError):
            ctx.sessions.create(seed=events, inherited_event_count=2)
        assert len(ctx.sessions.list()) == 1


async def test_S76_seed_events_and_markers_are_not_published() -> None:
    async with store_root() as ctx:
        seen = record(ctx)
        ctx.sessions.create(SessionId("a"), seed=append_turn(new_session(), 1))
        assert seen == ["created a"]


async def test_S91_enter_rechecks_and_a_stale_detach_does_nothing() -> None:
    async with store_root() as ctx:
        seen = record(ctx)
        session = ctx.sessions.prepare(SessionId("a"))
        other = ctx.sessions.prepare(SessionId("a"))
        assert ctx.sessions.list() == []
        detach = ctx.sessions.enter(session)
        with pytest.raises(SessionStateError, match="live already"):
            ctx.sessions.enter(other)
        detach()
        assert seen == []
        again = ctx.sessions.enter(other)
        detach()
        assert ctx.sessions.get("a") is other
        with pytest.raises(SessionStateError, match="not live"):
            ctx.sessions.announce(session)
        again()


async def test_S91_a_session_is_in_one_store() -> None:
    async with store_root() as one, store_root() as two:
        session = one.sessions.create(SessionId("a"))
        with pytest.raises(SessionStateError, match="in a store already"):
            two.sessions.enter(session)


async def test_S92_a_veto_rolls_back_with_one_disposal() -> None:
    async with store_root() as ctx:
        seen = record(ctx)
        problem = ValueError("no")

        def veto(event: SessionCreated) -> None:
            raise problem

        handle = ctx.on(SessionCreated, veto)
        with pytest.raises(ValueError, match="no") as caught:
            ctx.sessions.create(SessionId("a"))
        assert caught.value is problem
        assert seen == ["created a", "disposed a"]
        handle()
        ctx.sessions.create(SessionId("a"))


async def test_S93_announce_works_once() -> None:
    async with store_root() as ctx:
        errors: list[str] = []

        def again(event: SessionCreated) -> None:
            with pytest.raises(SessionStateError) as caught:
                ctx.sessions.announce(event.session)
            errors.append(caught.value.code)

        ctx.on(SessionCreated, again)
        session = ctx.sessions.create()
        assert errors == ["SESSION_ANNOUNCED"]
        with pytest.raises(SessionStateError, match="announced"):
            ctx.sessions.announce(session)


async def test_S93_detach_during_the_announcement_waits_for_it() -> None:
    async with store_root() as ctx:
        seen: list[str] = []
        session = ctx.sessions.prepare(SessionId("a"))
        detach = ctx.sessions.enter(session)
        ctx.on(SessionCreated, lambda event: detach() and None)
        ctx.on(SessionCreated, lambda event: seen.append("last"))
        ctx.on(SessionDisposed, lambda event: seen.append("disposed"))
        ctx.sessions.announce(session)
        assert seen == ["last", "disposed"]
        assert ctx.sessions.get("a") is None


async def test_S94_A48_listeners_find_the_event_and_may_not_append_to_it() -> None:
    async with store_root() as ctx:
        session, other = ctx.sessions.create(), ctx.sessions.create()
        found: list[object] = []

        def listener(event: SessionEventAppended) -> None:
            if event.session is other:
                return
            found.append(event.session.events[-1] is event.event)
            other.append("x/y", 1)
            with pytest.raises(ReentrantAppendError) as refused:
                session.append("x/y", 2)
            assert refused.value.code == "SESSION_REENTRY"

        ctx.on(SessionEventAppended, listener)
        session.append(TurnStart(turn=1))
        assert found == [True]
        assert (session.seq, other.seq) == (1, 1)


async def test_S32_an_observer_of_dispatches_refuses_before_the_commit() -> None:
    async with store_root() as ctx:
        session = ctx.sessions.create()

        def refuse(event: InternalDispatch) -> None:
            if isinstance(event.event, SessionEventAppended):
                raise ValueError("not this one")

        stop = ctx.on(InternalDispatch, refuse)
        with pytest.raises(ValueError, match="not this one"):
            session.append(UserMessageEvent(message=user_message("a")), surface_op="append")
        stop()
        assert (session.seq, list(session.surface.nodes)) == (0, [])
        session.append(TurnStart(turn=1))
        assert session.seq == 1


async def test_S94_a_failing_listener_harms_nobody() -> None:
    async with store_root() as ctx:
        session, seen = ctx.sessions.create(), list[str]()
        errors: list[str] = []

        def fails(event: SessionEventAppended) -> None:
            raise ValueError("broken")

        ctx.on(InternalError, lambda event: errors.append(str(event.error)))
        ctx.on(SessionEventAppended, fails)
        ctx.on(SessionEventAppended, lambda event: seen.append(event.event.type))
        session.append(TurnStart(turn=1))
        assert (seen, errors) == (["turn/start"], ["broken"])


async def test_S94_detach_inside_an_append_waits_for_its_end() -> None:
    async with store_root() as ctx:
        seen: list[str] = []
        session = ctx.sessions.prepare(SessionId("a"))
        detach = ctx.sessions.enter(session)
        ctx.sessions.announce(session)
        ctx.on(SessionEventAppended, lambda event: detach() and None)
        ctx.on(SessionEventAppended, lambda event: seen.append("event"))
        ctx.on(SessionDisposed, lambda event: seen.append("disposed"))
        session.append(TurnStart(turn=1))
        assert seen == ["event", "disposed"]


async def test_S96_flush_waits_for_all_and_raises_the_first_registered_failure() -> None:
    async with store_root() as ctx:
        session, seen = ctx.sessions.create(), list[str]()
        assert await ctx.sessions.flush(session) is False

        async def slow(event: SessionFlush) -> None:
            await checkpoint()
            await checkpoint()
            seen.append("slow")
            raise ValueError("first")

        async def quick(event: SessionFlush) -> None:
            seen.append("quick")
            raise KeyError("second")

        first = ctx.on(SessionFlush, slow)
        second = ctx.on(SessionFlush, quick)
        with pytest.raises(ValueError, match="first"):
            await ctx.sessions.flush(session)
        assert seen == ["quick", "slow"]
        first()
        second()
        ctx.on(SessionFlush, lambda event: seen.append("kept"))
        assert await ctx.sessions.flush(session) is True
        with pytest.raises(SessionStateError, match="not live"):
            await ctx.sessions.flush(new_session())


async def test_S97_events_go_to_the_scope_that_entered_the_session() -> None:
    async with store_root() as ctx:
        mine, other = create_scope(ctx, "mine"), create_scope(ctx, "other")
        seen: list[str] = []
        ctx.on(SessionEventAppended, lambda event: seen.append("root"))
        mine.ctx.on(SessionEventAppended, lambda event: seen.append("mine"))
        other.ctx.on(SessionEventAppended, lambda event: seen.append("other"))
        other.ctx.on(SessionFlush, lambda event: seen.append("flush other"))
        session = mine.ctx.get("sessions").create()
        session.append(TurnStart(turn=1))
        assert seen == ["root", "mine"]
        assert await ctx.sessions.flush(session) is False
        await mine.dispose()
        assert ctx.sessions.list() == []


async def test_S98_async_listeners_run_to_completion() -> None:
    async with store_root() as ctx:
        session, done = ctx.sessions.create(), anyio.Event()

        async def listener(event: SessionEventAppended) -> None:
            await checkpoint()
            event.session.append("x/y", 1) if event.event.type == "turn/start" else done.set()

        ctx.on(SessionEventAppended, listener)
        session.append(TurnStart(turn=1))
        await done.wait()
        assert session.seq == 2


async def test_S81_fork_makes_a_seeded_child() -> None:
    async with store_root() as ctx:
        parent = ctx.sessions.create(SessionId("p"), meta=SessionMeta(cwd="/w", agent_preset="x"))
        append_turn(parent, 1)
        seen = record(ctx)
        child = ctx.sessions.fork(SessionId("p"), 3, SessionId("c"))
        assert child.header == SessionHeader(
            id=SessionId("c"),
            created_at=child.header.created_at,
            cwd="/w",
            parent_session=SessionId("p"),
            is_seeded=True,
        )
        assert (child.inherited_event_count, child.first_lifecycle_seq) == (4, 4)
        assert seen == ["created c"]
        whole = ctx.sessions.fork(parent)
        assert whole.inherited_event_count == parent.seq
        assert list(whole.events)[:-1] == list(parent.events)


async def test_S78_an_empty_source_forks_an_empty_child() -> None:
    async with store_root() as ctx:
        child = ctx.sessions.fork(ctx.sessions.create())
        assert [event.data for event in child.events] == [EndSeed(inherited=True)]
        assert child.inherited_event_count == 0


async def test_S79_refusals_come_in_order_and_leave_nothing() -> None:
    async with store_root() as ctx:
        parent = ctx.sessions.create(SessionId("p"))
        parent.append("x/y", 1)

        def code(source: Session | SessionId, boundary: object, child: str) -> str:
            with pytest.raises(SessionForkError) as caught:
                ctx.sessions.fork(source, boundary, SessionId(child))
            return caught.value.code

        double = Session.create(SessionId("p"))
        assert code(SessionId("nobody"), 99, "p") == "SESSION_ALREADY_EXISTS"
        assert code(SessionId("nobody"), 99, "c") == "SESSION_NOT_FOUND"
        assert code(double, 99, "c") == "SESSION_NOT_LIVE"
        for boundary in (1, -1, True, "0"):
            assert code(parent, boundary, "c") == "INVALID_BOUNDARY"
        assert ctx.sessions.list() == [parent]


async def test_S90_a_restored_log_is_prepared() -> None:
    async with store_root() as ctx:
        events = append_turn(new_session(), 1)
        header = SessionHeader(id=SessionId("r"), created_at=0)
        restored = RestoredLog(header=header, events=tuple(events))
        session = ctx.sessions.prepare(restored=restored)
        assert session.first_live_seq == len(events)
        ctx.sessions.enter(session)
        assert ctx.sessions.get("r") is session


async def test_K60_unloading_the_store_detaches_what_is_left() -> None:
    with anyio.fail_after(5):
        async with Context() as ctx:
            fiber = ctx.plugin(SessionStore)
            await fiber
            seen = record(ctx)
            session = ctx.get(SessionStore).create(SessionId("a"))  # type: ignore[union-attr]  # it is there
            await fiber.dispose()
            assert seen == ["created a", "disposed a"]
            assert session.observer is None
