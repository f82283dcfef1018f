"""Random input at random moments: whatever happens, the log stays well-formed and idle means idle."""

from collections.abc import Callable, Sequence

import anyio
import anyio.lowlevel
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh_agent_loop.testing import LoopStack, Step, call, cut, fail, loop_stack, say
from dsh_llm import ToolCallBlock
from dsh_session import (
    AssistantMessageEvent,
    SessionEvent,
    StepEnd,
    StepStart,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
)
from dsh_tools import ToolRunContext

ACTIONS: dict[str, Callable[[LoopStack], object]] = {
    "nothing": lambda stack: None,
    "followup": lambda stack: stack.agent.followup("f"),
    "steer": lambda stack: stack.agent.steer("s"),
    "inject": lambda stack: stack.agent.inject("i"),
    "cancel": lambda stack: stack.agent.cancel(),
    "cancel-keep": lambda stack: stack.agent.cancel(keep_inbox=True),
}
REPLIES: dict[str, Sequence[Step]] = {
    "say": say("hello"),
    "parallel": call(("a", "p", ""), ("b", "p", ""), ("a", "p", "")),
    "mixed": call(("a", "p", ""), ("b", "x", ""), ("c", "nope", "[1")),
    "fail": fail(),
    "cut": cut("half"),
}


def add_tools(stack: LoopStack) -> None:
    async def body(run: ToolRunContext) -> str:
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        return "ok"

    stack.add_tool("p", body, parallel=True)
    stack.add_tool("x", body)


def check_log(events: Sequence[SessionEvent]) -> None:
    """Turns and steps nest and count, and each call has one result before its step ends."""
    turn = step = 0
    turn_open = step_open = False
    owed: list[str] = []
    for event in events:
        match event.data:
            case TurnStart(turn=number):
                assert not turn_open
                assert number == turn + 1
                turn, step, turn_open = number, 0, True
            case StepStart(turn=of, step=number):
                assert turn_open
                assert not step_open
                assert (of, number) == (turn, step + 1)
                step, step_open = number, True
            case AssistantMessageEvent(message=message):
                owed = [b.id for b in message.content if isinstance(b, ToolCallBlock)]
                assert step_open
            case ToolCallEvent(call_id=call_id):
                assert call_id in owed
            case ToolResultEvent(message=message):
                assert owed.pop(0) == message.tool_call_id
            case StepEnd():
                assert step_open
                assert owed == []
                step_open = False
            case TurnEnd():
                assert turn_open
                assert not step_open
                turn_open = False
            case _:
                pass
    assert not turn_open


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(sorted(REPLIES)), max_size=5),
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from(sorted(ACTIONS))), max_size=8),
)
async def test_A73_A109_a_storm_leaves_a_well_formed_log_and_an_idle_agent(
    replies: list[str], storm: list[tuple[int, str]]
) -> None:
    async with loop_stack(*(REPLIES[name] for name in replies)) as stack:
        add_tools(stack)
        stack.agent.followup("M")
        for pause, action in storm:
            for _ in range(pause):
                await anyio.lowlevel.checkpoint()
            ACTIONS[action](stack)
        with anyio.fail_after(5):
            await stack.agent.when_idle()
        assert stack.agent.status == "idle"
        assert stack.ctx.agent_loop.census(stack.agent) == []
        check_log(list(stack.agent.session.events))
        statuses = [line for line in stack.recorder.take() if line.startswith("~status")]
        assert statuses == ["~status running", "~status idle"] * (len(statuses) // 2)
