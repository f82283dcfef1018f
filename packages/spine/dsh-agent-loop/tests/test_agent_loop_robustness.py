"""Whatever is in the log, the next request is valid; whatever ends the driver, the log is closed."""

from collections.abc import Sequence

import anyio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsh_agent_loop.testing import LoopStack, call, line_of, loop_stack, say
from dsh_llm import (
    CallId,
    Message,
    ModelSource,
    TextBlock,
    ToolCallBlock,
    create_assistant_message,
    create_tool_result_message,
    create_user_message,
)
from dsh_llm.testing import check_request
from dsh_session import (
    AssistantMessageEvent,
    SessionEvent,
    SessionEventData,
    SessionId,
    ToolResultEvent,
    UserMessageEvent,
)
from dsh_tools import ToolRunContext

IDS = st.sampled_from(["a", "b", "c", ""])
TEXTS = st.sampled_from(["", "x", "half \ud83d", "{}"])


def assistant(texts: list[str], calls: list[tuple[str, str]]) -> SessionEventData:
    blocks = [
        *(TextBlock(text) for text in texts),
        *(ToolCallBlock(id=CallId(id_), name="t", arguments=raw) for id_, raw in calls),
    ]
    message = create_assistant_message(blocks, ModelSource(provider="p", model="m"))
    return AssistantMessageEvent(turn=1, step=1, message=message, stream=())


def result(call_id: str, texts: list[str]) -> SessionEventData:
    message = create_tool_result_message(CallId(call_id), [TextBlock(t) for t in texts], False)
    return ToolResultEvent(turn=1, step=1, message=message)


def user(text: str) -> SessionEventData:
    return UserMessageEvent(message=create_user_message(text))


PAYLOADS: st.SearchStrategy[SessionEventData] = st.one_of(
    st.builds(
        assistant,
        st.lists(TEXTS, max_size=2),
        st.lists(st.tuples(IDS, st.sampled_from(["{}", "", "[1", '{"q": 1}'])), max_size=3),
    ),
    st.builds(result, st.sampled_from(["a", "b", "c"]), st.lists(TEXTS, max_size=2)),
    st.builds(user, TEXTS),
)


def as_log(payloads: Sequence[SessionEventData]) -> list[SessionEvent]:
    return [
        SessionEvent(type=data.type, seq=seq, time=0, data=data, surface_op="append")
        for seq, data in enumerate(payloads)
    ]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(PAYLOADS, max_size=8))
async def test_A113_any_history_leads_to_a_valid_request(payloads: list[SessionEventData]) -> None:
    async with loop_stack() as stack:
        handle = await stack.ctx.agents.create(
            session_id=SessionId("s"), provider="test", model="m", seed=as_log(payloads)
        )
        handle.agent.followup("go on")
        with anyio.fail_after(5):
            await handle.agent.when_idle()
        (request,) = stack.model.requests
        sent = [message for message in request.messages if isinstance(message, Message)]
        check_request(sent)
        assert line_of(handle.agent.session.events[-1]) == "turn/end 1 completed"


def add_tool(stack: LoopStack, entered: anyio.Event) -> None:
    async def hang(run: ToolRunContext) -> str:
        entered.set()
        await anyio.sleep_forever()
        return "never"

    stack.add_tool("t", hang)


async def test_A109_A123_a_driver_cancelled_natively_leaves_no_hole() -> None:
    async with loop_stack(call(("c1", "t", ""), ("c2", "t", ""))) as stack:
        entered = anyio.Event()
        add_tool(stack, entered)
        stack.agent.followup("M")
        with anyio.fail_after(5):
            await entered.wait()
        stack.recorder.take()
        tasks = stack.ctx.agent_loop._runtime._tasks
        assert tasks is not None
        tasks.cancel_scope.cancel()
        with anyio.fail_after(5):
            await stack.agent.when_idle()
        assert stack.recorder.take() == [
            "tool/result c1 ABORTED",
            "tool/call c2",
            "tool/result c2 ABORTED_BEFORE_DISPATCH",
            "step/end 1.1",
            "turn/end 1 aborted",
            "~status idle",
        ]


async def test_A123_a_driver_cancelled_in_a_stream_closes_the_log() -> None:
    async with loop_stack() as stack:
        entered = anyio.Event()

        async def hang() -> None:
            entered.set()
            await anyio.sleep_forever()

        stack.model.replies = [[*say("half a thought")[:2], hang]]
        stack.agent.followup("M")
        with anyio.fail_after(5):
            await entered.wait()
        stack.recorder.take()
        tasks = stack.ctx.agent_loop._runtime._tasks
        assert tasks is not None
        tasks.cancel_scope.cancel()
        with anyio.fail_after(5):
            await stack.agent.when_idle()
        assert stack.recorder.take() == [
            "assistant/message interrupted",
            "~end 2 message",
            "step/end 1.1",
            "turn/end 1 aborted",
            "~status idle",
        ]


async def test_A109_a_refused_call_event_is_answered_as_not_started() -> None:
    async with loop_stack(call(("c1", "t", ""))) as stack:
        add_tool(stack, anyio.Event())
        with stack.refusing("tool/call"):
            lines = await stack.run("M")
        assert lines[-5:] == [
            "tool/result c1 TOOL_NOT_STARTED",
            "step/end 1.1",
            "~agent/error 1.1",
            "turn/end 1 error",
            "~status idle",
        ]


async def test_A109_a_refused_result_keeps_the_step_open_until_the_next_driver() -> None:
    async with loop_stack(call(("c1", "nope", "")), say("ok")) as stack:
        with stack.refusing("tool/result") as broken:
            lines = await stack.run("M")
            assert lines[-2:] == ["~agent/error 1.1", "~status idle"]
            assert "step/end 1.1" not in lines
            broken.clear()
            lines = await stack.run("N")
        at = lines.index("~status running")
        assert lines[at + 1 : at + 5] == [
            "tool/result c1 TOOL_OUTCOME_UNKNOWN",
            "step/end 1.1",
            "turn/end 1 error",
            "turn/start 2",
        ]
