"""Cancel, dispose and native cancellation at every await point of every kind of turn."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

import anyio
import anyio.lowlevel
import pytest

from dsh_agent import AgentRequestError, PreStep, PreStepDecision, Retry
from dsh_agent_loop.testing import (
    LoopStack,
    ManualClock,
    Step,
    call,
    fail,
    line_of,
    log_problems,
    loop_stack,
    say,
    view_problems,
)
from dsh_cordis import Context, Next
from dsh_llm import GenerateOptions, create_user_message
from dsh_llm.testing import check_request
from dsh_session import ReentrantAppendError, ReplaceOp, UserMessageEvent
from dsh_tools import ToolRunContext

Prepare = Callable[[LoopStack], None]
Deed = Callable[[LoopStack], object]


def add_tools(stack: LoopStack) -> None:
    async def body(run: ToolRunContext) -> str:
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        run.defer_context(create_user_message("note"))
        return "ok"

    stack.add_tool("exclusive", body)
    stack.add_tool("parallel", body, parallel=True)


def retry(stack: LoopStack) -> None:
    async def again(event: AgentRequestError, next_: Next[Retry | None]) -> Retry | None:
        for _ in range(4):
            await anyio.lowlevel.checkpoint()
        return Retry()

    stack.ctx.on(AgentRequestError, again, everywhere=True)


def compact(stack: LoopStack) -> None:
    """Ask the model for a summary and put it in the place of what there is."""

    async def summarise(event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
        session = event.agent.session
        nodes = session.surface.nodes
        if len(nodes) > 2:
            options = GenerateOptions(
                provider="test", model="m", messages=tuple(session.derive_messages())
            )
            stream = stack.ctx.llm.stream(options)
            try:
                async for _ in stream:
                    pass
            finally:
                with anyio.CancelScope(shield=True):
                    await stream.aclose()
            session.append(
                UserMessageEvent(message=create_user_message("summary")),
                surface_op=ReplaceOp(start_seq=nodes[1], end_seq=nodes[-1]),
                source_event_seqs=tuple(nodes[1:]),
            )
        return await next_()

    stack.ctx.on(PreStep, summarise, everywhere=True)


def nothing(stack: LoopStack) -> None:
    """A plain turn needs no preparation."""


TURNS: Mapping[str, tuple[Prepare, Sequence[Sequence[Step]]]] = {
    "plain": (nothing, [say("hi")]),
    "tool": (add_tools, [call(("a", "exclusive", "")), say("ok")]),
    "parallel": (
        add_tools,
        [call(("a", "parallel", ""), ("b", "parallel", ""), ("c", "exclusive", "")), say("ok")],
    ),
    "retry": (retry, [fail(), fail(), say("at last")]),
    "compaction": (compact, [say("one"), say("a summary"), say("two")]),
}


async def cancel_tasks(stack: LoopStack) -> None:
    tasks = stack.ctx.agent_loop._runtime._tasks
    assert tasks is not None
    tasks.cancel_scope.cancel()


DEEDS: Mapping[str, Deed] = {
    "cancel": lambda stack: stack.agent.cancel(),
    "cancel-keep": lambda stack: stack.agent.cancel(keep_inbox=True),
    "dispose": lambda stack: stack.handle.dispose(),
    "native": cancel_tasks,
}


async def rest(stack: LoopStack, clock: ManualClock) -> None:
    """Let time pass until the agent is at rest; more than it ever needs is a hang."""
    done = anyio.Event()

    async def wait() -> None:
        await stack.agent.when_idle()
        done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        for _ in range(2000):
            if done.is_set():
                return
            clock.advance(0.1)
            await anyio.lowlevel.checkpoint()
        alive = stack.ctx.agent_loop.census(stack.agent)
        tasks.cancel_scope.cancel()
    raise AssertionError(f"no rest; alive: {alive}")


async def points_of(
    kind: str,
    deed: str,
    act: Callable[[LoopStack, int], Awaitable[bool]],
    at_event: int | None = None,
) -> int:
    """Run the turn, acting at each pass through the scheduler until `act` says stop."""
    prepare, replies = TURNS[kind]
    clock = ManualClock()

    def mount(ctx: Context) -> object:
        return ctx.provide("clock", clock)

    config = {"cancel_grace_ms": 1000, "abandon_grace_ms": 1000, "listener_grace_ms": 1000}
    async with loop_stack(*replies, before=mount, config=config) as stack:
        prepare(stack)
        if kind == "compaction":
            stack.agent.followup("before")
            await rest(stack, clock)
        if at_event is not None:
            act_at_event(stack, deed, at_event)
        stack.agent.followup("M")
        point = 0
        while stack.agent.status == "running" and not await act(stack, point):
            point += 1
            await anyio.lowlevel.checkpoint()
        await rest(stack, clock)
        assert stack.agent.status == "idle"
        assert stack.ctx.agent_loop.census(stack.agent) == []
        assert log_problems(list(stack.agent.session.events)) == []
        assert view_problems(stack.ctx, stack.agent.session) == []
        for request in stack.model.requests:
            check_request(request.messages)
        if deed.startswith("cancel"):
            await goes_on(stack, clock)
        elif deed == "dispose":
            await stack.handle.dispose()
            assert stack.ctx.agents.list() == stack.ctx.sessions.list() == []
        return point


async def goes_on(stack: LoopStack, clock: ManualClock) -> None:
    vars(stack.recorder).pop("note", None)
    stack.model.replies = []
    stack.agent.followup("and now?")
    await rest(stack, clock)
    assert line_of(stack.agent.session.events[-1]).endswith("completed")
    check_request(stack.model.requests[-1].messages)


@pytest.mark.parametrize("kind", TURNS)
@pytest.mark.parametrize("deed", DEEDS)
async def test_A82_A109_A119_every_await_point_may_be_the_last(kind: str, deed: str) -> None:
    async def never(stack: LoopStack, point: int) -> bool:
        return False  # the reference run: nothing happens to it

    with anyio.fail_after(60):
        count = await points_of(kind, deed, never)
        assert count > 4
        for chosen in range(count + 1):

            async def act(stack: LoopStack, point: int, chosen: int = chosen) -> bool:
                if point != chosen:
                    return False
                answer = DEEDS[deed](stack)
                if deed == "native":
                    await answer  # type: ignore[misc]  # the only asynchronous deed
                return True

            assert await points_of(kind, deed, act) <= chosen


def act_at_event(stack: LoopStack, deed: str, chosen: int) -> None:
    """Act inside the dispatch of the event with that number."""
    note = stack.recorder.note
    count = 0

    def counting(line: str) -> None:
        nonlocal count
        note(line)
        count += 1
        if count == chosen:
            # Listeners of the log cannot clear the inbox; the abort goes through all the same.
            with suppress(ReentrantAppendError):
                DEEDS[deed](stack)

    vars(stack.recorder)["note"] = counting


@pytest.mark.parametrize("kind", TURNS)
@pytest.mark.parametrize("deed", ["cancel", "cancel-keep", "dispose"])
async def test_A10_A82_A124_every_event_may_be_the_last(kind: str, deed: str) -> None:
    async def never(stack: LoopStack, point: int) -> bool:
        return False

    with anyio.fail_after(60):
        for chosen in range(1, 60):
            await points_of(kind, deed, never, chosen)
