"""Tool calls: order, parallel bodies, cancellation, failures of the scheduling, no hole."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import structlog.testing

from dsh_agent import AbandonedWork, AgentAbandoned, AgentSelfWaitError
from dsh_agent_loop.testing import LoopStack, ManualClock, call, loop_stack, say
from dsh_llm import create_user_message
from dsh_session import ToolResultEvent
from dsh_tools import ToolRunContext, ToolsResult


async def echo(run: ToolRunContext) -> str:
    return f"ran {run.call_id}"


def results(stack: LoopStack) -> list[tuple[str | None, str | None]]:
    """Call id and code of each result in the log."""
    return [
        (event.data.message.tool_call_id, event.data.error.code if event.data.error else None)
        for event in stack.agent.session.events
        if isinstance(event.data, ToolResultEvent)
    ]


async def test_A76_A81_listT2_a_tool_turn() -> None:
    async with loop_stack(call(("c1", "t", "{}")), say("done")) as stack:
        context = create_user_message("note")

        async def body(run: ToolRunContext) -> str:
            run.defer_context(context)
            return "ok"

        stack.add_tool("t", body)
        lines = await stack.run("M")
        at = lines.index("assistant/message")
        assert lines[at : lines.index("~start", at)] == [
            "assistant/message",
            "~end 3 message",
            "tool/call c1",
            "~pre c1",
            "~execute c1",
            "~post c1",
            "~result c1",
            "tool/result c1",
            "agent/inbox/spliced next-step@0 +note",
            "~inserted note",
            "step/end 1.1",
            "agent/inbox/spliced next-step@0 -1",
            "~claimed note turn 1",
            "~assemble",
            "~pre-step [note] 1.2 owed",
            "step/start 1.2",
            "~request",
            "user/message note",
            "~llm/stream",
        ]
        result = next(e for e in stack.agent.session.events if e.type == "tool/result")
        cited = next(e for e in stack.agent.session.events if e.type == "tool/call")
        assert result.source_event_seqs == (cited.seq,)
        roles = [message.role for message in stack.model.requests[1].messages]
        assert roles == ["user", "assistant", "tool", "user"]


async def test_A107_listT3_parallel_calls_with_a_cap() -> None:
    replies = call(("c1", "t", ""), ("c2", "t", ""), ("c3", "t", ""))
    async with loop_stack(replies, say("ok"), config={"max_parallel_tool_calls": 2}) as stack:
        ends = {name: anyio.Event() for name in ("c1", "c2", "c3")}
        begun = {name: anyio.Event() for name in ("c1", "c2", "c3")}

        async def body(run: ToolRunContext) -> str:
            begun[run.call_id].set()
            await ends[run.call_id].wait()
            stack.recorder.note(f"{run.call_id} ends")
            return "ok"

        stack.add_tool("t", body, parallel=True)
        stack.agent.followup("M")
        with anyio.fail_after(5):
            await begun["c2"].wait()
            ends["c2"].set()
            await begun["c3"].wait()
            ends["c1"].set()
            while "tool/result c2" not in stack.recorder.lines:
                await anyio.lowlevel.checkpoint()
            ends["c3"].set()
            await stack.agent.when_idle()
        lines = stack.recorder.take()
        at = lines.index("tool/call c1")
        scheduled = lines[at : lines.index("step/end 1.1")]
        # The start of a body is its task's; everything else is the scheduler's to order.
        assert [line for line in scheduled if not line.startswith("~execute")] == [
            "tool/call c1",
            "~pre c1",
            "tool/call c2",
            "~pre c2",
            "c2 ends",
            "tool/call c3",
            "~pre c3",
            "c1 ends",
            "~post c1",
            "~result c1",
            "tool/result c1",
            "~post c2",
            "~result c2",
            "tool/result c2",
            "c3 ends",
            "~post c3",
            "~result c3",
            "tool/result c3",
        ]


async def test_A106_an_exclusive_call_is_a_barrier() -> None:
    replies = call(("c1", "p", ""), ("c2", "x", ""), ("c3", "p", ""))
    async with loop_stack(replies, say("ok")) as stack:
        stack.add_tool("p", echo, parallel=True)
        stack.add_tool("x", echo)
        lines = await stack.run("M")
        kept = [line for line in lines if line.startswith(("tool/", "~execute"))]
        assert kept == [
            f"{kind} {name}"
            for name in ("c1", "c2", "c3")
            for kind in ("tool/call", "~execute", "tool/result")
        ]


async def test_A108_listT10_cancel_while_a_tool_runs() -> None:
    replies = call(("c1", "t", ""), ("c2", "t", ""))
    async with loop_stack(replies) as stack:
        entered = anyio.Event()

        async def body(run: ToolRunContext) -> str:
            run.defer_context(create_user_message("ctx"))
            entered.set()
            await run.signal.wait()
            return "finished anyway"

        stack.add_tool("t", body)
        stack.agent.followup("M")
        with anyio.fail_after(5):
            await entered.wait()
            stack.recorder.take()
            stack.agent.cancel()
            await stack.agent.when_idle()
        assert stack.recorder.take() == [
            "~post c1",
            "~result c1",
            "tool/result c1 ABORTED",
            "agent/inbox/spliced next-step@0 +ctx",
            "~inserted ctx",
            "tool/call c2",
            "tool/result c2 ABORTED_BEFORE_DISPATCH",
            "step/end 1.1",
            "turn/end 1 aborted",
            "~status idle",
        ]


async def test_A81_listT17_a_concluding_tool() -> None:
    async with loop_stack(call(("c1", "t", ""))) as stack:

        async def body(run: ToolRunContext) -> str:
            run.conclude_turn()
            return "that is all"

        stack.add_tool("t", body)
        lines = await stack.run("M")
        assert lines[lines.index("tool/result c1") :] == [
            "tool/result c1",
            "step/end 1.1",
            "~turn-stopping",
            "turn/end 1 completed",
            "~status idle",
        ]


@asynccontextmanager
async def ending(released: anyio.Event) -> AsyncGenerator[None]:
    """Let a body that stays go in any case: the loop waits for it."""
    try:
        yield
    finally:
        released.set()


async def test_A74_listT25_a_body_that_outlives_both_graces() -> None:
    clock = ManualClock()
    replies = call(("c1", "t", ""), ("c2", "t", ""))
    async with (
        loop_stack(replies, before=lambda ctx: ctx.provide("clock", clock)) as stack,
        anyio.create_task_group() as tasks,
        ending(released := anyio.Event()),
    ):

        async def pass_time() -> None:
            while True:
                await anyio.lowlevel.checkpoint()
                clock.advance(1)

        entered = anyio.Event()
        given_up: list[AbandonedWork] = []
        stack.ctx.on(AgentAbandoned, lambda e: given_up.append(e.work), everywhere=True)

        async def body(run: ToolRunContext) -> str:
            entered.set()
            with anyio.CancelScope(shield=True):
                await released.wait()
            return "too late"

        stack.add_tool("t", body)
        stack.agent.followup("M")
        with anyio.fail_after(5):
            await entered.wait()
            stack.recorder.take()
            stack.agent.cancel()
            tasks.start_soon(pass_time)
            with structlog.testing.capture_logs() as records:
                await stack.agent.when_idle()
        assert stack.recorder.take() == [
            "tool/result c1 TOOL_OUTCOME_UNKNOWN",
            "~agent/abandoned",
            "tool/call c2",
            "tool/result c2 ABORTED_BEFORE_DISPATCH",
            "step/end 1.1",
            "turn/end 1 aborted",
            "~status idle",
        ]
        assert [(work.kind, work.call_id) for work in given_up] == [("tool-body", "c1")]
        assert given_up[0].age_s >= 15
        (record,) = [each for each in records if each["event"] == "agent.work_abandoned"]
        assert "await released.wait()" in record["stack"]
        alive = stack.ctx.agent_loop.census(stack.agent)
        assert alive
        assert all(entry.abandoned for entry in alive)
        released.set()
        with anyio.fail_after(5):
            while stack.ctx.agent_loop.census(stack.agent):
                await anyio.lowlevel.checkpoint()
        assert stack.recorder.take() == []
        tasks.cancel_scope.cancel()


async def test_A74_a_body_that_ends_by_the_native_cancellation() -> None:
    async with loop_stack(call(("c1", "t", "")), config={"cancel_grace_ms": 10}) as stack:
        entered = anyio.Event()

        async def body(run: ToolRunContext) -> str:
            entered.set()
            await anyio.sleep_forever()
            return "never"

        stack.add_tool("t", body)
        stack.agent.followup("M")
        with anyio.fail_after(5):
            await entered.wait()
            stack.recorder.take()
            stack.agent.cancel()
            await stack.agent.when_idle()
        assert stack.recorder.take() == [
            "tool/result c1 ABORTED",
            "step/end 1.1",
            "turn/end 1 aborted",
            "~status idle",
        ]
        assert stack.ctx.agent_loop.census(stack.agent) == []


async def test_A13_a_tool_cannot_wait_for_its_own_agent() -> None:
    async with loop_stack(call(("c1", "t", "")), say("ok")) as stack:
        caught: list[BaseException] = []

        async def body(run: ToolRunContext) -> str:
            try:
                await stack.agent.when_idle()
            except AgentSelfWaitError as error:
                caught.append(error)
            return "went on"

        stack.add_tool("t", body)
        await stack.run("M")
        assert [type(error) for error in caught] == [AgentSelfWaitError]
        assert results(stack) == [("c1", None)]


async def test_A105_repeated_call_ids_are_told_apart() -> None:
    replies = call(("same", "t", ""), ("same", "t", ""), ("", "t", ""))
    async with loop_stack(replies, call(("same", "t", "")), say("ok")) as stack:
        stack.add_tool("t", echo)
        await stack.run("M")
        ids = [call_id for call_id, _ in results(stack)]
        assert ids[0] == "same"
        assert len(set(ids)) == 4
        assert all(ids)


async def test_A111_the_next_request_is_valid_after_an_abort() -> None:
    async with loop_stack(call(("c1", "t", "[broken")), say("ok")) as stack:
        entered = anyio.Event()

        async def body(run: ToolRunContext) -> str:
            entered.set()
            await run.signal.wait()
            return "x"

        stack.add_tool("t", body)
        stack.agent.followup("M")
        with anyio.fail_after(5):
            await entered.wait()
            stack.agent.cancel()
            await stack.agent.when_idle()
        await stack.run("N")
        sent = stack.model.requests[-1].messages
        assert [message.role for message in sent] == ["user", "assistant", "tool", "user"]


async def test_A108_a_success_not_yet_committed_when_the_turn_aborts_is_aborted() -> None:
    async with loop_stack(call(("c1", "t", ""))) as stack:
        stack.add_tool("t", echo)
        stack.ctx.on(ToolsResult, lambda event: stack.agent.cancel(), everywhere=True)
        lines = await stack.run("M")
        assert lines[-5:] == [
            "~result c1",
            "tool/result c1 ABORTED",
            "step/end 1.1",
            "turn/end 1 aborted",
            "~status idle",
        ]
