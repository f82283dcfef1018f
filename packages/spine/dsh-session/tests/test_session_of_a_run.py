"""What the loop writes: prompt and headers (S56-S64), and calls that pair (S129-S131)."""

from collections.abc import Callable, Iterable, Sequence

import anyio
import msgspec
import pytest
from typing_extensions import override

from dsh_agent_loop.testing import LoopStack, ScriptedModel, call, loop_stack, say
from dsh_brand import to_json
from dsh_llm import (
    AbortSignal,
    LlmModelContext,
    LlmResolvedModelInfo,
    ToolCallBlock,
    create_user_message,
    message_text,
    request_repairs,
)
from dsh_session import (
    TOOL_NOT_STARTED,
    AssistantMessageEvent,
    ReplaceOp,
    RequestContext,
    RequestHeaderEvent,
    Session,
    SessionEvent,
    SessionHeader,
    SessionId,
    StepEnd,
    StepStart,
    SystemMessageEvent,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
    interrupted_turn_closers,
)
from dsh_session.testing import assistant_message, new_session, tool_message
from dsh_tools import ToolDefinition, ToolOutput


def session_of(stack: LoopStack) -> Session:
    return stack.agent.session


async def run(stack: LoopStack, text: str) -> list[SessionEvent]:
    """The events of a turn."""
    start = session_of(stack).seq
    with anyio.fail_after(5):
        await stack.run(text)
    return list(session_of(stack).events[start:])


def headers(events: Iterable[SessionEvent]) -> list[tuple[str, bool | None]]:
    return [
        (event.data.reason, event.data.starts_series)
        for event in events
        if isinstance(event.data, RequestHeaderEvent)
    ]


def prompts(events: Iterable[SessionEvent]) -> list[tuple[str, object]]:
    return [
        (message_text(event.data.message), event.surface_op)
        for event in events
        if isinstance(event.data, SystemMessageEvent)
    ]


def contexts(events: Iterable[SessionEvent]) -> list[RequestContext]:
    return [event.data for event in events if isinstance(event.data, RequestContext)]


@pytest.mark.parametrize("text", ["", "You help."])
async def test_S56_the_prompt_is_the_first_node_even_when_it_is_empty(text: str) -> None:
    async with loop_stack(say("a"), say("b")) as stack:
        section = [text]
        stack.ctx.system_prompt.section("test", 1, lambda assembly: section[0])
        surfaces = [event for event in await run(stack, "M") if event.surface_op is not None]
        assert [event.type for event in surfaces[:2]] == ["system/message", "user/message"]
        head = surfaces[0].data
        assert isinstance(head, SystemMessageEvent)
        assert bool(head.message.content) == bool(text)
        section[0] = "You help more."
        await run(stack, "N")
        first = session_of(stack).event_at(session_of(stack).surface.nodes[0])
        assert isinstance(first.data, SystemMessageEvent)
        assert message_text(first.data.message) == "You help more."


async def test_S57_S63_a_changed_prompt_replaces_the_head_and_begins_a_series() -> None:
    async with loop_stack(say("a"), say("b"), say("c"), say("d")) as stack:
        text = ["one"]
        stack.ctx.system_prompt.section("test", 1, lambda assembly: text[0])
        await run(stack, "M")
        head = session_of(stack).surface.nodes[0]
        assert prompts(await run(stack, "equal")) == []
        text[0] = "two"
        events = await run(stack, "N")
        assert prompts(events) == [("two", ReplaceOp(start_seq=head, end_seq=head))]
        assert headers(events) == [("series", None)]
        text[0] = ""
        events = await run(stack, "O")
        (only,) = prompts(events)
        assert only[0] == ""
        assert isinstance(only[1], ReplaceOp)
        roles = [message.role for message in session_of(stack).derive_messages()]
        assert "system" not in roles


def tool(name: str) -> ToolDefinition:
    async def execute(args: object, exec: object) -> str:  # noqa: A002  # the name of the seam
        return "done"

    return ToolDefinition(
        name=name,
        description="Does something.",
        parameters={"type": "object", "properties": {}},
        output=ToolOutput(schema={"type": "string"}, render=lambda args, value: str(value)),
        execute=execute,
    )


async def test_S61_the_first_reason_that_applies_and_else_no_header() -> None:
    async with loop_stack(*(say(letter) for letter in "abcdef")) as stack:
        assert headers(await run(stack, "M")) == [("initial", None)]
        assert headers(await run(stack, "N")) == []
        registered = stack.ctx.tools.register(tool("late"))
        assert [reason for reason, _ in headers(await run(stack, "O"))] == ["change"]
        await registered()
        compact(session_of(stack))
        assert headers(await run(stack, "P")) == [("change", True)]
        compact(session_of(stack))
        assert headers(await run(stack, "Q")) == [("series", None)]
        stack.handle = await stack.ctx.agents.create(
            provider="test", model="m", seed=list(session_of(stack).events)
        )
        assert [reason for reason, _ in headers(await run(stack, "R"))] == ["resume"]
        assert headers(await run(stack, "S")) == []


def compact(session: Session) -> None:
    """Replace everything behind the head by a summary."""
    nodes = tuple(session.surface.nodes)
    session.append(
        UserMessageEvent(message=create_user_message("summary")),
        surface_op=ReplaceOp(start_seq=nodes[1], end_seq=nodes[-1]),
        source_event_seqs=nodes[1:],
    )


async def test_S62_a_series_begins_when_the_history_changed() -> None:
    async with loop_stack(say("a"), say("b"), say("c")) as stack:
        await run(stack, "M")
        generation = session_of(stack).surface.content_generation
        compact(session_of(stack))
        assert session_of(stack).surface.content_generation == generation + 1
        assert headers(await run(stack, "N")) == [("series", None)]
        assert headers(await run(stack, "O")) == []


class Roomy(ScriptedModel):
    """A model whose context window may change."""

    window = 1000

    @override
    async def resolve_model(
        self, provider: str, model: str, signal: AbortSignal | None = None
    ) -> LlmResolvedModelInfo:
        context = LlmModelContext(context_window=self.window)
        return LlmResolvedModelInfo(provider=provider, id=model, name=model, context=context)


async def test_S64_a_context_is_logged_when_it_differs_from_the_last() -> None:
    async with loop_stack() as stack:
        model = Roomy(*(say(letter) for letter in "abcd"))
        stack.ctx.llm.register_adapter(["roomy"], model)
        stack.handle = await stack.ctx.agents.create(provider="roomy", model="m")
        (first,) = contexts(await run(stack, "M"))
        assert (first.provider, first.model, first.context_window) == ("roomy", "m", 1000)
        assert contexts(await run(stack, "N")) == []
        model.window = 2000
        (second,) = contexts(await run(stack, "O"))
        assert second == msgspec.structs.replace(first, context_window=2000)
        assert session_of(stack).request_context() == second


# ---- calls and results that pair ---------------------------------------------------------------


def broken_pairs(events: Sequence[SessionEvent]) -> list[str]:
    """What the rules on calls and results find in a log, in words."""
    pending: dict[str, ToolCallBlock] = {}
    called: set[str] = set()
    found: list[str] = []
    for event in events:
        match event.data:
            case AssistantMessageEvent(message=message):
                for block in message.content:
                    if isinstance(block, ToolCallBlock):
                        found += [f"{block.id} announced again"] if block.id in pending else []
                        pending[block.id] = block
                        called.discard(block.id)
            case ToolCallEvent(call_id=call_id, name=name, arguments=arguments):
                announced = pending.get(call_id)
                if announced is None or call_id in called:
                    found.append(f"{call_id} called and not announced, or twice")
                elif (name, arguments) != (announced.name, announced.arguments):
                    found.append(f"{call_id} called as something else")
                called.add(call_id)
            case ToolResultEvent(message=message) if event.surface_op == "append":
                answered = message.tool_call_id or ""
                if pending.pop(answered, None) is None:
                    found.append(f"{answered} answered and not open")
                elif answered not in called and not is_repair(event, event.data):
                    found.append(f"{answered} answered without a call")
            case StepEnd() | TurnEnd() if pending:
                found.append(f"{event.type} over {sorted(pending)}")
            case _:
                pass
    return found


def is_repair(event: SessionEvent, data: ToolResultEvent) -> bool:
    return (
        data.error is not None
        and data.error.code == TOOL_NOT_STARTED
        and event.source_event_seqs is None
    )


RUNS = [
    pytest.param(
        [call(("c", "echo", '{"a": 1,, }'), ("d", "missing", "{}")), say("done")], id="refused"
    ),
    pytest.param([call(("c", "echo", "{}"), ("c", "echo", "{}")), say("done")], id="equal-ids"),
    pytest.param(
        [call(("c", "echo", "{}")), call(("c", "echo", "{}")), say("done")], id="again-later"
    ),
    pytest.param([call(("", "", "")), say("done")], id="no-id"),
]


@pytest.mark.parametrize("replies", RUNS)
async def test_S129_S131_what_the_loop_writes_pairs(replies: list[Sequence[object]]) -> None:
    async with loop_stack(*replies) as stack:  # type: ignore[arg-type]  # scripted steps
        stack.ctx.tools.register(tool("echo"))
        events = await run(stack, "M")
        assert broken_pairs(session_of(stack).events) == []
        assert [
            e.data.reason.__class__.__name__ for e in events if isinstance(e.data, TurnEnd)
        ] == ["Completed"]
        calls = [e.data for e in events if isinstance(e.data, ToolCallEvent)]
        assert calls


@pytest.mark.parametrize("logged", [0, 1, 2])
async def test_S130_a_result_without_its_call_is_the_exact_repair(logged: int) -> None:
    session = new_session()
    session.append(TurnStart(turn=1))
    session.append(StepStart(turn=1, step=1))
    message = assistant_message(calls=("c", "d"))
    data = AssistantMessageEvent(turn=1, step=1, message=message, stream=())
    session.append(data, surface_op="append")
    for block in message.content[1 : 1 + logged]:
        assert isinstance(block, ToolCallBlock)
        session.append(
            ToolCallEvent(
                turn=1, step=1, call_id=block.id, name=block.name, arguments=block.arguments
            )
        )
    closers = interrupted_turn_closers(session.events)
    results = [event for event in closers if isinstance(event.data, ToolResultEvent)]
    repairs = [
        event
        for event in results
        if isinstance(event.data, ToolResultEvent) and is_repair(event, event.data)
    ]
    assert (len(results), len(repairs)) == (2, 2 - logged)
    assert broken_pairs([*session.events, *closers]) == []
    for event in repairs:
        value = to_json(event.data)
        assert isinstance(value, dict)
        assert "interrupted-tool-result-" in str(value["message"])


def two_answers(session: Session) -> None:
    for _ in range(2):
        session.append(
            ToolResultEvent(turn=1, step=1, message=tool_message("c")), surface_op="append"
        )


def announced_twice(session: Session) -> None:
    for name in ("a", "b"):
        message = assistant_message(calls=("c",), id=name)
        data = AssistantMessageEvent(turn=1, step=1, message=message, stream=())
        session.append(data, surface_op="append")


def never_answered(session: Session) -> None:
    announced_twice(session)
    session.append(StepEnd(turn=1, step=1))


@pytest.mark.parametrize("break_it", [two_answers, announced_twice, never_answered])
def test_S129_S131_S120_a_log_that_does_not_pair_opens_and_requests_are_made_valid(
    break_it: Callable[[Session], None],
) -> None:
    session = new_session()
    session.append(TurnStart(turn=1))
    session.append(StepStart(turn=1, step=1))
    break_it(session)
    whole = [*session.events, *interrupted_turn_closers(session.events)]
    assert broken_pairs(whole)
    header = SessionHeader(id=SessionId("test"), created_at=0)
    opened = Session.from_restore(header.id, whole, header)
    assert request_repairs(opened.derive_messages())


async def test_S131_where_something_stands_first_the_prompt_is_no_system_message() -> None:
    async with loop_stack(say("a")) as stack:
        stack.ctx.system_prompt.section("test", 1, "You help.")
        early = UserMessageEvent(message=create_user_message("early"))
        session_of(stack).append(early, surface_op="append")
        assert prompts(await run(stack, "M")) == []
        assert "You help." in [message_text(m) for m in session_of(stack).derive_messages()]
