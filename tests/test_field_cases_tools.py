"""Field cases 31 to 34: tool calls that are cancelled, fail, overlap or block, in the real loop."""

import contextvars
import json
import random
import threading
from collections.abc import Awaitable, Callable
from itertools import permutations

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

import dsh_llm_openai
from dsh_agent_loop.testing import LoopStack, ScriptedModel, call, loop_stack, say
from dsh_brand import encode
from dsh_cordis import Next
from dsh_llm import message_text
from dsh_llm.testing import check_request
from dsh_llm_scripted import Call, MockServer, text_reply, tool_call_reply
from dsh_session import SessionEvent, ToolResultEvent, TurnEnd
from dsh_spine import SpineContext, spine
from dsh_tools import ToolDefinition, ToolExecutionResult, ToolsExecute, tool

Body = Callable[[], Awaitable[str]]


def named(name: str, body: Body, *, parallel: bool = True) -> ToolDefinition:
    """A tool without parameters."""

    @tool(name=name, description=f"Do {name}.", concurrency_safe=parallel)
    async def run() -> str:
        return await body()

    return run


def results(stack: LoopStack) -> list[tuple[str | None, str, str | None]]:
    """Call id, text and code of each result in the log."""
    return [
        (
            event.data.message.tool_call_id,
            message_text(event.data.message),
            event.data.error.code if event.data.error else None,
        )
        for event in stack.agent.session.events
        if isinstance(event.data, ToolResultEvent)
    ]


def ends(stack: LoopStack) -> list[str]:
    """How each turn ended."""
    return [
        str(event.data.reason.__struct_config__.tag)
        for event in stack.agent.session.events
        if isinstance(event.data, TurnEnd)
    ]


# ---- 31 -------------------------------------------------------------------------------------


async def test_case_31_a_cancelled_batch_is_answered_call_by_call() -> None:
    asked = call(("c1", "one", ""), ("c2", "two", ""), ("c3", "rest", ""), ("c4", "rest", ""))
    async with loop_stack(asked, say("ok"), config={"max_parallel_tool_calls": 2}) as stack:
        inside, may_stop = anyio.Event(), anyio.Event()
        ran: list[str] = []

        async def one() -> str:
            return "first"

        async def two() -> str:
            inside.set()
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await may_stop.wait()
                ran.append("two has stopped")
            return "never"

        async def rest() -> str:
            ran.append("rest began")
            return "never"

        stack.ctx.tools.register(named("one", one))
        stack.ctx.tools.register(named("two", two))
        stack.ctx.tools.register(named("rest", rest, parallel=False))
        stack.agent.followup("go")
        idle: list[list[str]] = []

        async def wait() -> None:
            await stack.agent.when_idle()
            idle.append(list(ran))

        with anyio.fail_after(5):
            await inside.wait()
            while "tool/result c1" not in stack.recorder.lines:
                await anyio.lowlevel.checkpoint()
            stack.agent.cancel()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                assert idle == []
                may_stop.set()
        assert idle == [["two has stopped"]]
        assert ran == ["two has stopped"]
        assert [(call_id, code) for call_id, _, code in results(stack)] == [
            ("c1", None),
            ("c2", "ABORTED"),
            ("c3", "ABORTED_BEFORE_DISPATCH"),
            ("c4", "ABORTED_BEFORE_DISPATCH"),
        ]
        assert results(stack)[0][1] == "first"
        assert ends(stack) == ["aborted"]
        await stack.run("go on")
        check_request(stack.model.requests[-1].messages)
        answered = [m.tool_call_id for m in stack.model.requests[-1].messages if m.role == "tool"]
        assert answered == ["c1", "c2", "c3", "c4"]
        assert ends(stack) == ["aborted", "completed"]


# ---- 32 -------------------------------------------------------------------------------------


async def _raise_a_stray_cancellation() -> str:
    kept: list[BaseException] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.lowlevel.checkpoint()
        except anyio.get_cancelled_exc_class() as error:
            kept.append(error)
            raise
    raise kept[0]


@pytest.mark.parametrize("kind", ["empty-error", "stray-cancellation"])
async def test_case_32_one_failing_call_leaves_its_siblings_alone(kind: str) -> None:
    asked = call(("c1", "good", ""), ("c2", "bad", ""), ("c3", "good", ""))
    async with loop_stack(asked, say("ok")) as stack:
        failed = anyio.Event()

        async def good() -> str:
            await failed.wait()
            await anyio.wait_all_tasks_blocked()
            return "value"

        async def bad() -> str:
            failed.set()
            if kind == "empty-error":
                raise ValueError("")
            return await _raise_a_stray_cancellation()

        stack.ctx.tools.register(named("good", good))
        stack.ctx.tools.register(named("bad", bad))
        await stack.run("go")
        first, second, third = results(stack)
        assert (first, third) == (("c1", "value", None), ("c3", "value", None))
        assert second[0] == "c2"
        assert second[1].removeprefix("Error: ") in {"ValueError", "CancelledError", "Cancelled"}
        assert ends(stack) == ["completed"]
        check_request(stack.model.requests[-1].messages)


# ---- 33 -------------------------------------------------------------------------------------


def _stripped(event: SessionEvent) -> bytes:
    """A result as logged, without what differs by nature: its message's id."""
    data = event.data
    assert isinstance(data, ToolResultEvent)
    message = data.message
    return encode(message.content) + str((message.tool_call_id, message.is_error)).encode()


async def _one_run(finish: tuple[str, ...], seed: int) -> tuple[list[bytes], list[bytes]]:
    """Results as logged and request bodies as sent, for one order of finishing."""
    calls = [Call(each, {}, f"c{each}") for each in "ABC"]
    script = [tool_call_reply(*calls), text_reply("done")]
    over = {name: anyio.Event() for name in ("", *finish)}
    over[""].set()

    def body(name: str) -> Body:
        before = ("", *finish)[finish.index(name)]

        async def run() -> str:
            await over[before].wait()
            over[name].set()
            return f"value of {name}"

        return run

    names = ["A", "B", "C"]
    random.Random(seed).shuffle(names)
    async with MockServer(script, strict=True) as server, SpineContext() as ctx:
        ctx.plugin(spine)
        route = {"preset": "generic", "base_url": server.base_url}
        ctx.plugin(dsh_llm_openai, {"providers": {"mock": route}})
        await ctx.settled()
        for name in names:
            ctx.tools.register(named(name, body(name)))
        handle = await ctx.agents.create(provider="mock", model="m")
        handle.agent.followup("go")
        with anyio.fail_after(5):
            await handle.agent.when_idle()
        logged = [e for e in handle.agent.session.events if isinstance(e.data, ToolResultEvent)]
        return [_stripped(event) for event in logged], [
            json.dumps(each.body).encode() for each in server.requests
        ]


async def test_case_33_finishing_order_and_registration_order_leave_no_trace() -> None:
    orders = [*permutations("ABC")] * 4
    runs = [await _one_run(order, seed) for seed, order in enumerate(orders)]
    first_results, first_bodies = runs[0]
    for name, text in zip((b"A", b"B", b"C"), first_results, strict=True):
        assert b"value of " + name in text
    assert len(first_bodies) == 2
    for logged, bodies in runs[1:]:
        assert logged == first_results
        assert bodies == first_bodies


# ---- 34 -------------------------------------------------------------------------------------

_seen: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="nothing")


async def test_case_34_blocking_bodies_stop_neither_loop_nor_siblings() -> None:
    asked = call(("c1", "block", ""), ("c2", "block", ""))
    async with loop_stack(asked, say("ok")) as stack:
        both = threading.Barrier(3, timeout=5)
        release = threading.Event()

        @tool(thread=True, concurrency_safe=True)
        def block() -> str:
            """Block a thread until it is released."""
            both.wait()
            assert release.wait(5)
            return _seen.get()

        async def set_variable(
            event: ToolsExecute, next_: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            _seen.set("something")
            return await next_()

        stack.ctx.tools.register(block)
        stack.ctx.on(ToolsExecute, set_variable)
        other = ScriptedModel(say("meanwhile"))
        stack.ctx.llm.register_adapter(["other"], other)
        second = await stack.ctx.agents.create(provider="other", model="m")
        stack.agent.followup("go")
        with anyio.fail_after(5):
            # Both bodies are in their threads at once, or the barrier breaks.
            await anyio.to_thread.run_sync(both.wait)
            second.agent.followup("hi")
            await second.agent.when_idle()
            assert ends(stack) == []
            for _ in range(100):
                await anyio.lowlevel.checkpoint()
            release.set()
            await stack.agent.when_idle()
        assert results(stack) == [("c1", "something", None), ("c2", "something", None)]


async def test_case_34_a_cancelled_blocking_call_is_answered_when_its_thread_has_ended() -> None:
    async with loop_stack(call(("c1", "block", ""))) as stack:
        started, release = threading.Event(), threading.Event()
        ended: list[bool] = []

        @tool(thread=True)
        def block() -> str:
            """Block a thread until it is released."""
            started.set()
            assert release.wait(5)
            ended.append(True)
            return "late"

        stack.ctx.tools.register(block)
        stack.agent.followup("go")
        with anyio.fail_after(5):
            await anyio.to_thread.run_sync(started.wait, 5)
            stack.agent.cancel()
            await anyio.wait_all_tasks_blocked()
            assert results(stack) == []
            release.set()
            await stack.agent.when_idle()
        assert ended == [True]
        assert [(call_id, code) for call_id, _, code in results(stack)] == [("c1", "ABORTED")]
