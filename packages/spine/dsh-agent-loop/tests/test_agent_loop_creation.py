"""Creation, resumption and teardown, with and without a store."""

from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import anyio.lowlevel
import pytest

from dsh_agent import (
    Agent,
    AgentCreated,
    AgentCreationError,
    AgentDisposedError,
    AgentHandle,
    AgentOptionsError,
    AgentRegistry,
    AgentRegistryError,
    AgentStatusChanged,
    DisposedCancel,
    InboxInserted,
    current_initiator,
)
from dsh_agent_loop.testing import Step, call, line_of, loop_stack, say
from dsh_cordis import Context
from dsh_llm import AbortController, create_user_message, message_text
from dsh_session import (
    Aborted,
    InboxSpliced,
    SessionCreated,
    SessionEvent,
    SessionHeader,
    SessionId,
    SessionMeta,
    StepStart,
    TodoWrite,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
    build_fork_seed,
)
from dsh_session_persistence import (
    SessionAlreadyExistsError,
    SessionAlreadyOwnedError,
    SessionPersistence,
)
from dsh_session_persistence.testing.memory import MemoryLogStore, MemoryPersistence
from dsh_session_projection import ProjectionFailed

S1 = SessionId("s1")


class Owner(Context):
    """A plugin that makes agents needs the registry alone."""

    agents: AgentRegistry


def with_store(store: MemoryLogStore) -> Callable[[Context], object]:
    return lambda ctx: ctx.plugin(MemoryPersistence, store)


async def stored(ctx: Context, session_id: SessionId) -> list[SessionEvent]:
    persistence: SessionPersistence = ctx.session_persistence
    async with await persistence.open(session_id, "read") as handle:
        return list(await handle.read())


async def test_A59_listT26_creation_in_order() -> None:
    async with loop_stack(say("hi")) as stack:

        async def setup(ctx: Context, agent: Agent) -> None:
            stack.recorder.note("setup")
            assert stack.ctx.agents.get(agent.id) is None
            assert stack.ctx.sessions.get(agent.id) is agent.session
            agent.session.append(TodoWrite(todos=()))

        handle = await stack.ctx.agents.create(
            session_id=S1, provider="test", model="m", setup=setup
        )
        assert stack.recorder.take() == [
            "~session/created",
            "setup",
            "todo/write",
            "~agent/created startup",
            "~agent/session-start",
        ]
        assert stack.ctx.agents.get("s1") is handle.agent
        assert handle.agent.status == "idle"


async def test_A62_a_wake_given_by_a_creation_listener_runs_afterwards() -> None:
    async with loop_stack(say("hi")) as stack:

        async def greet(event: AgentCreated) -> None:
            event.agent.followup("M")

        stack.ctx.on(AgentCreated, greet, everywhere=True)
        handle = await stack.ctx.agents.create(provider="test", model="m")
        lines = stack.recorder.take()
        at = lines.index("~agent/session-start")
        assert lines[at - 3 :] == [
            "~agent/created startup",
            "agent/inbox/spliced next-turn@0 +M",
            "~inserted M",
            "~agent/session-start",
            "~status running",
            "turn/start 1",
            "agent/inbox/spliced next-turn@0 -1",
            "~claimed M turn 1",
        ]
        with anyio.fail_after(5):
            await handle.agent.when_idle()
        assert stack.recorder.take()[-1] == "~status idle"


async def test_A2_bad_options_are_refused_before_anything_exists() -> None:
    async with loop_stack() as stack:
        with pytest.raises(AgentOptionsError) as caught:
            await stack.ctx.agents.create(provider="test", model="m", max_tokens=0)
        assert caught.value.code == "INVALID_MAX_TOKENS"
        assert stack.recorder.take() == []


async def test_A64_a_failing_set_up_leaves_no_agent() -> None:
    store = MemoryLogStore()
    async with loop_stack(before=with_store(store)) as stack:

        def setup(ctx: Context, agent: Agent) -> None:
            raise RuntimeError("no")

        with pytest.raises(RuntimeError, match="no"):
            await stack.ctx.agents.create(session_id=S1, provider="test", model="m", setup=setup)
        assert stack.recorder.take() == ["~session/created", "~session/disposed"]
        listing = await stack.ctx.session_persistence.list()
        assert S1 not in [each.header.id for each in listing.sessions]
        again = await stack.ctx.agents.create(session_id=S1, provider="test", model="m")
        assert again.agent.id == S1


async def test_A64_a_vetoed_session_leaves_nothing() -> None:
    async with loop_stack() as stack:

        def veto(event: SessionCreated) -> None:
            raise RuntimeError("not here")

        stack.ctx.on(SessionCreated, veto, everywhere=True)
        with pytest.raises(RuntimeError, match="not here"):
            await stack.ctx.agents.create(session_id=S1, provider="test", model="m")
        assert stack.recorder.take() == ["~session/created", "~session/disposed"]
        assert stack.ctx.sessions.get(S1) is None


async def test_A64_a_raising_creation_listener_is_rolled_back_with_both_edges() -> None:
    async with loop_stack() as stack:

        async def refuse(event: AgentCreated) -> None:
            raise RuntimeError("refused")

        stack.ctx.on(AgentCreated, refuse, everywhere=True)
        with pytest.raises(RuntimeError, match="refused"):
            await stack.ctx.agents.create(session_id=S1, provider="test", model="m")
        assert stack.recorder.take() == [
            "~session/created",
            "~agent/created startup",
            "~agent/disposed",
            "~session/disposed",
        ]


async def test_A63_a_caller_signal_aborts_the_creation() -> None:
    async with loop_stack() as stack:
        controller = AbortController()
        ended: list[str] = []

        async def setup(ctx: Context, agent: Agent) -> None:
            controller.abort("changed my mind")
            try:
                await anyio.sleep_forever()
            finally:
                ended.append("set-up")

        with pytest.raises(AgentCreationError) as caught, anyio.fail_after(5):
            await stack.ctx.agents.create(
                session_id=S1,
                provider="test",
                model="m",
                setup=setup,
                signal=controller.signal,
            )
        assert caught.value.code == "CREATION_ABORTED"
        assert ended == ["set-up"]
        assert stack.recorder.take() == ["~session/created", "~session/disposed"]


async def test_A89_a_live_id_cannot_be_created_again() -> None:
    async with loop_stack() as stack:
        await stack.ctx.agents.create(session_id=S1, provider="test", model="m")
        stack.recorder.take()
        with pytest.raises(Exception, match="live already"):
            await stack.ctx.agents.create(session_id=S1, provider="test", model="m")
        assert stack.recorder.take() == []


async def test_A53_without_a_loop_nothing_makes_agents() -> None:
    async with loop_stack() as stack, Context() as other:
        _ = other.plugin(AgentRegistry)
        await other.settled()
        with pytest.raises(AgentRegistryError) as caught:
            await other.agents.create()
        assert caught.value.code == "NO_AGENT_FACTORY"
        assert stack.agent.status == "idle"


async def test_A114_listT13_dispose_in_the_middle_of_a_reply() -> None:
    store = MemoryLogStore()
    async with loop_stack(before=with_store(store)) as stack:
        handle = stack.handle

        async def hang() -> None:
            handle.agent.followup("queued")
            stack.recorder.take()
            handle.dispose()
            await anyio.sleep_forever()

        stack.model.replies = [[*say("half a thought")[:2], hang]]
        handle.agent.followup("M")
        with anyio.fail_after(5):
            while not stack.recorder.lines or stack.recorder.lines[-1] != "~session/disposed":
                await anyio.lowlevel.checkpoint()
        await handle.dispose()
        assert stack.recorder.take() == [
            "agent/inbox/spliced next-turn@0 -1 canceled",
            "~discarded queued",
            "assistant/message interrupted",
            "~end 2 message",
            "step/end 1.1",
            "turn/end 1 aborted",
            "~status idle",
            "~agent/disposed",
            "~session/disposed",
        ]
        log = await stored(stack.ctx, handle.agent.id)
        assert log[-1].data == TurnEnd(turn=1, reason=Aborted(reason=DisposedCancel()))
        assert [event.seq for event in log] == list(range(handle.agent.session.seq))
        with pytest.raises(AgentDisposedError):
            handle.agent.followup("too late")


async def test_A13_A117_dispose_inside_a_tool_of_the_same_agent_does_not_hang() -> None:
    async with loop_stack(call(("c1", "nope", ""))) as stack:

        async def setup(ctx: Context, agent: Agent) -> None:
            async def on_status(event: AgentStatusChanged) -> None:
                stack.recorder.note(f"async {event.status}")

            ctx.on(AgentStatusChanged, on_status)

        handle = await stack.ctx.agents.create(provider="test", model="m", setup=setup)

        async def end() -> None:
            await handle.dispose()
            await anyio.sleep_forever()

        stack.model.replies = [[end]]
        handle.agent.followup("M")
        with anyio.fail_after(5):
            await handle.agent.when_idle()
            await handle.dispose()
        assert stack.recorder.take()[-2:] == ["~agent/disposed", "~session/disposed"]


async def test_A115_every_call_of_dispose_gives_one_completion() -> None:
    async with loop_stack() as stack:
        with anyio.fail_after(5):
            await stack.handle.dispose()
            await stack.handle.dispose()
        stack.handle.dispose()
        assert stack.recorder.take() == ["~agent/disposed", "~session/disposed"]
        assert stack.ctx.agents.list() == []


async def test_A63_the_owner_takes_its_agent_along_and_keeps_the_input() -> None:
    store = MemoryLogStore()
    async with loop_stack(before=with_store(store)) as stack:
        handles: list[AgentHandle] = []

        async def owner(ctx: Owner) -> None:
            handles.append(await ctx.agents.create(session_id=S1))

        async with stack.ctx.plugin(owner):
            handles[0].agent.inject("later")
            assert stack.ctx.agents.get(S1) is not None
        assert stack.ctx.agents.get(S1) is None
        lines = stack.recorder.take()
        assert lines[-3:] == ["~inserted later", "~agent/disposed", "~session/disposed"]
        log = await stored(stack.ctx, S1)
        assert line_of(log[-1]) == "agent/inbox/spliced next-step@0 +later"


async def test_A54_unloading_the_loop_drains_its_agents() -> None:
    async with loop_stack() as stack:

        async def hang() -> None:
            entered.set()
            await anyio.sleep_forever()

        entered = anyio.Event()
        stack.model.replies = [[hang]]
        stack.agent.followup("M")
        with anyio.fail_after(5):
            await entered.wait()
        stack.recorder.take()
    assert stack.recorder.take() == [
        "assistant/attempt",
        "~end 0 attempt",
        "step/end 1.1",
        "turn/end 1 aborted",
        "~status idle",
        "~agent/disposed",
        "~session/disposed",
    ]


async def test_A116_a_child_made_through_the_parent_goes_first() -> None:
    async with loop_stack() as stack:
        parent = stack.agent
        child = await parent.ctx.agents.create(session_id=S1, parent_agent=parent)
        assert stack.ctx.agents.roots() == [parent]
        assert stack.ctx.agents.is_owned_by(child.agent, parent)
        with anyio.fail_after(5):
            await stack.handle.dispose()
        assert stack.recorder.take() == [
            "~session/created",
            "~agent/created startup",
            "~agent/session-start",
            "~agent/disposed",
            "~session/disposed",
            "~agent/disposed",
            "~session/disposed",
        ]


async def test_A28_A64_an_inbox_that_cannot_be_folded_fails_the_resume_and_nothing_hangs() -> None:
    store = MemoryLogStore()
    async with loop_stack(before=with_store(store)) as stack:
        handle = await stack.ctx.agents.create(session_id=S1, provider="test", model="m")
        handle.agent.inject("M")
        await handle.dispose()
        writer = await stack.ctx.session_persistence.open(S1, "write")
        end = len(await writer.read())
        lost = create_user_message("lost")
        beyond = InboxSpliced(target="next-turn", start=7, inserted=(lost,))
        await writer.append([SessionEvent(type=beyond.type, seq=end, time=5, data=beyond)])
        await writer.close()
        with anyio.fail_after(5), pytest.raises(ProjectionFailed, match=f"seq {end}"):
            await stack.ctx.agents.resume(S1)
        assert stack.ctx.agents.get(S1) is None
        with anyio.fail_after(5):
            await stack.ctx.fiber.dispose()


async def test_A86_A99_listT24_a_crashed_turn_is_closed_and_the_next_one_resumes() -> None:
    store = MemoryLogStore()
    replies: list[list[Step]] = [say("one"), say("two")]
    async with loop_stack(*replies, before=with_store(store)) as stack:
        handle = await stack.ctx.agents.create(session_id=S1, provider="test", model="m")
        handle.agent.followup("M")
        with anyio.fail_after(5):
            await handle.agent.when_idle()
            await handle.dispose()
        writer = await stack.ctx.session_persistence.open(S1, "write")
        end = len(await writer.read())
        crashed = [TurnStart(turn=2), StepStart(turn=2, step=1)]
        await writer.append(
            [
                SessionEvent(type=data.type, seq=end + index, time=5, data=data)
                for index, data in enumerate(crashed)
            ]
        )
        await writer.close()
        stack.recorder.take()
        resumed = await stack.ctx.agents.resume(S1)
        assert stack.recorder.take() == [
            "~session/created",
            "~agent/created resume",
            "~agent/session-start",
        ]
        tail = [line_of(event) for event in await stored(stack.ctx, S1)][-3:]
        assert tail == ["step/end 2.1", "turn/end 2 interrupted", "session/end-seed"]
        resumed.agent.followup("N")
        with anyio.fail_after(5):
            await resumed.agent.when_idle()
        lines = stack.recorder.take()
        at = lines.index("step/start 3.1")
        assert lines[at : at + 5] == [
            "step/start 3.1",
            "~request",
            "user/message N",
            "request/header resume",
            "~llm/stream",
        ]
        await stack.ctx.sessions.flush(resumed.agent.session)
        assert await stored(stack.ctx, S1) == list(resumed.agent.session.events)


async def test_A88_input_that_was_pending_comes_first() -> None:
    store = MemoryLogStore()
    async with loop_stack(say("one"), before=with_store(store)) as stack:

        async def owner(ctx: Owner) -> None:
            handle = await ctx.agents.create(session_id=S1)
            handle.agent.inject("before")

        async with stack.ctx.plugin(owner):
            pass
        resumed = await stack.ctx.agents.resume(S1, provider="test", model="m")
        assert resumed.agent.status == "idle"
        assert [message.content for message in resumed.agent.inbox.next_step]
        resumed.agent.followup("after")
        with anyio.fail_after(5):
            await resumed.agent.when_idle()
        batch = [
            message_text(event.data.message)
            for event in resumed.agent.session.events
            if isinstance(event.data, UserMessageEvent)
        ]
        assert batch == ["before", "after"]


async def test_A59_resuming_without_a_store_says_so() -> None:
    async with loop_stack() as stack:
        with pytest.raises(AgentCreationError) as caught:
            await stack.ctx.agents.resume(S1)
        assert caught.value.code == "NO_PERSISTENCE"
        assert stack.recorder.take() == []


async def test_A28_a_fork_child_drops_the_inherited_queue() -> None:
    async with loop_stack() as stack:
        stack.agent.inject("parent's")
        parent = stack.agent.session
        stack.recorder.take()
        child = await stack.ctx.agents.create(
            session_id=S1,
            seed=build_fork_seed(parent.events, parent.seq - 1),
            inherited_event_count=parent.seq,
            meta=SessionMeta(is_seeded=True, parent_session=parent.id),
        )
        assert stack.recorder.take()[0] == "~session/created"
        assert child.agent.inbox.next_step == ()
        assert [line_of(event) for event in child.agent.session.events] == [
            "agent/inbox/spliced next-step@0 +parent's",
            "session/end-seed",
            "agent/inbox/spliced next-step@0 -1 canceled",
        ]


async def test_A57_the_initiator_of_a_creation_is_its_creator() -> None:
    async with loop_stack() as stack:
        seen: list[object] = []

        def inserted(event: InboxInserted) -> None:
            seen.append(current_initiator())

        async def create_child() -> None:
            seen.append(current_initiator())
            await stack.ctx.agents.create(
                session_id=S1, setup=lambda ctx, agent: seen.append(current_initiator())
            )

        stack.ctx.on(InboxInserted, inserted, everywhere=True)
        stack.model.replies = [[create_child, *say("ok")]]
        await stack.run("M")
        assert seen == [None, stack.agent, stack.agent]
        assert current_initiator() is None


async def test_A64_a_wake_kept_by_a_failing_creation_starts_nothing() -> None:
    async with loop_stack() as stack:

        def setup(ctx: Context, agent: Agent) -> None:
            agent.followup("M")
            raise RuntimeError("no")

        with pytest.raises(RuntimeError, match="no"):
            await stack.ctx.agents.create(provider="test", model="m", setup=setup)
        assert stack.recorder.take() == [
            "~session/created",
            "agent/inbox/spliced next-turn@0 +M",
            "~inserted M",
            "~session/disposed",
        ]


async def create_and_fail(create: Callable[[], Awaitable[object]], caught: list[Exception]) -> None:
    try:
        await create()
    except Exception as error:  # noqa: BLE001  # the test looks at it
        caught.append(error)


async def test_A64_the_owner_goes_down_during_the_creation() -> None:
    async with loop_stack() as stack:
        entered = anyio.Event()

        async def setup(ctx: Context, agent: Agent) -> None:
            entered.set()
            await anyio.sleep_forever()

        owners: list[Owner] = []
        caught: list[Exception] = []

        def owner(ctx: Owner) -> None:
            owners.append(ctx)

        fiber = stack.ctx.plugin(owner)
        await fiber
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                create = partial(owners[0].agents.create, session_id=S1, setup=setup)
                tasks.start_soon(create_and_fail, create, caught)
                await entered.wait()
                await fiber.dispose()
        assert [getattr(error, "code", error) for error in caught] == ["OWNER_DISPOSED"]
        assert stack.recorder.take() == ["~session/created", "~session/disposed"]


async def test_A64_the_loop_is_unloaded_during_the_creation() -> None:
    entered = anyio.Event()
    caught: list[Exception] = []

    async def setup(ctx: Context, agent: Agent) -> None:
        entered.set()
        await anyio.sleep_forever()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks, loop_stack() as stack:
            create = partial(stack.ctx.agents.create, session_id=S1, setup=setup)
            tasks.start_soon(create_and_fail, create, caught)
            await entered.wait()
            stack.recorder.take()
    codes = [getattr(error, "code", error) for error in caught]
    assert codes in (["LOOP_INACTIVE"], ["OWNER_DISPOSED"])
    assert stack.recorder.take()[-1] == "~session/disposed"


async def test_A63_a_cancelled_caller_leaves_nothing() -> None:
    async with loop_stack() as stack:

        async def setup(ctx: Context, agent: Agent) -> None:
            scope.cancel()
            await anyio.sleep_forever()

        with anyio.fail_after(5), anyio.CancelScope() as scope:
            await stack.ctx.agents.create(session_id=S1, setup=setup)
        assert scope.cancelled_caught
        assert stack.recorder.take() == ["~session/created", "~session/disposed"]
        assert stack.ctx.sessions.get(S1) is None


async def test_A36_options_do_not_replace_the_recorded_choice() -> None:
    store = MemoryLogStore()
    async with loop_stack(say("one"), before=with_store(store)) as stack:
        handle = await stack.ctx.agents.create(session_id=S1, provider="test", model="m")
        handle.agent.followup("M")
        with anyio.fail_after(5):
            await handle.agent.when_idle()
            await handle.dispose()
        resumed = await stack.ctx.agents.resume(S1, provider="test", model="other")
        current = resumed.agent.model.current()
        assert current is not None
        assert current.model == "m"
        assert resumed.agent.options.model == "other"


async def test_A64_a_second_process_that_owns_the_session_is_respected() -> None:
    store = MemoryLogStore()
    async with loop_stack(before=with_store(store)) as stack:
        writer = await stack.ctx.session_persistence.create(SessionHeader(id=S1, created_at=0))
        await writer.flush()
        with pytest.raises(SessionAlreadyOwnedError):
            await stack.ctx.agents.resume(S1)
        with pytest.raises(SessionAlreadyExistsError):
            await stack.ctx.agents.create(session_id=S1)
        assert stack.recorder.take() == []
        await writer.close()
        assert (await stack.ctx.agents.resume(S1)).agent.id == S1
