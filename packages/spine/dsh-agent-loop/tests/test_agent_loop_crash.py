"""The process dies behind any event of a turn; the session is resumed and goes on."""

from collections.abc import Sequence

import anyio

from dsh_agent import PreStep, PreStepDecision
from dsh_agent_loop.testing import LoopStack, call, line_of, loop_stack, say
from dsh_cordis import Context, Next
from dsh_llm import Message, message_text
from dsh_llm.testing import check_request
from dsh_session import (
    EndSeed,
    InboxSpliced,
    SessionEvent,
    SessionHeader,
    SessionId,
    ToolResultEvent,
    UserMessageEvent,
)
from dsh_session_persistence.testing.memory import MemoryLogStore, MemoryPersistence

CRASHED = SessionId("crashed")


def mount_store(ctx: Context) -> object:
    return ctx.plugin(MemoryPersistence, MemoryLogStore())


async def recorded() -> list[SessionEvent]:
    """The log of a turn with two tool calls, steering and a follow-up behind it."""
    async with loop_stack() as stack:
        calls = call(("c1", "nope", ""), ("c2", "nope", ""))
        stack.model.replies = [[lambda: stack.agent.followup("N"), *calls], say("a"), say("b")]
        await stack.run("M")
        return list(stack.agent.session.events)


async def resume_behind(stack: LoopStack, log: list[SessionEvent], length: int) -> None:
    header = SessionHeader(id=CRASHED, created_at=0)
    async with await stack.ctx.session_persistence.create(header) as writer:
        await writer.append(log[:length])
    stack.handle = await stack.ctx.agents.resume(CRASHED, provider="test", model="m")


def typed_in(log: list[SessionEvent]) -> list[str]:
    """The texts that a log says were given."""
    return [
        message_text(message)
        for event in log
        if isinstance(event.data, InboxSpliced)
        for message in event.data.inserted
    ]


def history_of(log: Sequence[SessionEvent]) -> list[str]:
    """The texts of the user messages that the model is told."""
    return [message_text(e.data.message) for e in log if isinstance(e.data, UserMessageEvent)]


def open_at(log: list[SessionEvent]) -> tuple[bool, bool]:
    """Whether a turn and a step are open at the end of a log."""
    turn = step = False
    for event in log:
        turn = {"turn/start": True, "turn/end": False}.get(event.type, turn)
        step = {"step/start": True, "step/end": False}.get(event.type, step)
    return turn, step


async def test_A86_A87_A88_every_crash_point_is_closed_and_goes_on() -> None:
    log = await recorded()
    assert len(log) > 25
    first_answer = next(i for i, e in enumerate(log) if e.type == "assistant/message")
    for length in range(1, len(log) + 1):
        prefix = log[:length]
        turn, step = open_at(prefix)
        async with loop_stack(say("on"), say("on"), before=mount_store) as stack:
            await resume_behind(stack, log, length)
            session = stack.agent.session
            added = [line_of(event) for event in session.events][length:]
            expected = ["turn/end"] if turn else []
            expected = ["step/end", *expected] if step else expected
            closers = [
                line.split()[0]
                for line in added
                if not line.startswith(("session/end-seed", "agent/inbox/spliced"))
            ]
            results = [line for line in closers if line == "tool/result"]
            assert closers == [*results, *expected], (length, added)
            if (
                step
                and length > first_answer
                and "step/end" not in [event.type for event in prefix]
            ):
                answered = sum(isinstance(event.data, ToolResultEvent) for event in prefix)
                assert len(results) == 2 - answered
            assert isinstance(session.events[-1].data, EndSeed)
            assert stack.agent.status == "idle"
            # Nothing typed is lost and nothing is run twice, wherever the log was cut.
            waiting = [message_text(m) for m in stack.agent.inbox.next_turn]
            assert [*history_of(prefix), *waiting] == typed_in(prefix), (length, added)
            await goes_on(stack)


async def test_A26_A87_input_that_a_crash_cut_off_is_pending_again() -> None:
    async with loop_stack() as stack:
        stack.agent.inject("I")
        await stack.run("M")
        log = list(stack.agent.session.events)
    claimed = next(i for i, e in enumerate(log) if e.type == "agent/inbox/spliced" and i > 2)
    async with loop_stack(before=mount_store) as stack:
        await resume_behind(stack, log, claimed + 2)
        added = [line_of(event) for event in stack.agent.session.events][claimed + 2 :]
        assert added == [
            "agent/inbox/spliced next-step@0 +I",
            "agent/inbox/spliced next-turn@0 +M",
            "turn/end 1 interrupted",
            "session/end-seed",
        ]
        assert stack.agent.status == "idle"
        stack.recorder.take()
        lines = await stack.run("N")
        assert [line for line in lines if "user/message" in line] == [
            "user/message I",
            "user/message M",
            "user/message N",
        ]


async def test_A30_a_clean_shutdown_keeps_what_no_history_holds() -> None:
    logs = MemoryLogStore()

    def mount(ctx: Context) -> object:
        return ctx.plugin(MemoryPersistence, logs)

    async with loop_stack(before=mount) as stack:
        entered = anyio.Event()

        async def hold(event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
            entered.set()
            await anyio.sleep_forever()
            return await next_()

        stack.ctx.on(PreStep, hold, everywhere=True)
        stack.agent.followup("M")
        stack.agent.followup("N")
        with anyio.fail_after(5):
            await entered.wait()
        session_id = stack.agent.id
    async with loop_stack(before=mount) as stack:
        handle = await stack.ctx.agents.resume(session_id, provider="test", model="m")
        assert [message_text(m) for m in handle.agent.inbox.next_turn] == ["M", "N"]
        lines = [line_of(event) for event in handle.agent.session.events]
        assert lines[-3:] == [
            "agent/inbox/spliced next-turn@0 +M",
            "turn/end 1 aborted",
            "session/end-seed",
        ]


async def goes_on(stack: LoopStack) -> None:
    """The next wake runs what was pending, then the new message, with valid requests."""
    waiting = [message_text(message) for message in stack.agent.inbox.next_turn]
    before = stack.agent.session.seq
    stack.agent.followup("again")
    with anyio.fail_after(5):
        await stack.agent.when_idle()
    entered = [
        message_text(event.data.message)
        for event in list(stack.agent.session.events)[before:]
        if isinstance(event.data, UserMessageEvent)
    ]
    assert entered == [*waiting, "again"]
    for request in stack.model.requests:
        check_request([message for message in request.messages if isinstance(message, Message)])
    await stack.ctx.sessions.flush(stack.agent.session)
    async with await stack.ctx.session_persistence.open(CRASHED, "read") as reader:
        assert list(await reader.read()) == list(stack.agent.session.events)
