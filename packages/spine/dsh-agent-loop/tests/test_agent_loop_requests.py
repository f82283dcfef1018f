"""What a step sends and logs: prompt, header, context, proposals, settlement."""

from collections.abc import AsyncIterator, Callable

import anyio

from dsh_agent import (
    AgentError,
    AgentRequest,
    Enter,
    ModelSelection,
    PreStep,
    PreStepDecision,
    install_model_selection,
)
from dsh_agent_loop.testing import LoopStack, loop_stack, say
from dsh_cordis import Next
from dsh_llm import (
    BlockStart,
    LlmCallConfig,
    LlmStreamEvent,
    StreamChunk,
    TextDelta,
    TokenUsage,
    UsageChunk,
    create_user_message,
    is_agent_loop_request,
    message_text,
)
from dsh_session import (
    AssistantMessageEvent,
    ErrorEnd,
    ReplaceOp,
    RequestHeaderEvent,
    TodoWrite,
    TurnEnd,
    UserMessageEvent,
)

CONTENT = ("system/message", "user/message", "request/", "assistant/")


def logged(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith(CONTENT)]


def error_code(stack: LoopStack) -> str:
    ends = [e.data.reason for e in stack.agent.session.events if isinstance(e.data, TurnEnd)]
    assert isinstance(ends[-1], ErrorEnd)
    return ends[-1].error.code


async def test_A97_listT21_a_changed_prompt_is_rewritten_in_place() -> None:
    async with loop_stack(say("a"), say("b"), say("c")) as stack:
        text = ["You help."]
        stack.ctx.system_prompt.section("test", 1, lambda assembly: text[0])
        assert logged(await stack.run("M"))[:2] == ["system/message", "user/message M"]
        head = stack.agent.session.surface.nodes[0]
        text[0] = "You help more."
        assert logged(await stack.run("N")) == [
            f"system/message replace {head}",
            "user/message N",
            "request/header series",
            "assistant/message",
        ]
        assert logged(await stack.run("O")) == ["user/message O", "assistant/message"]
        assert [message_text(request.messages[0]) for request in stack.model.requests] == [
            "You help.",
            "You help more.",
            "You help more.",
        ]
        assert all(request.system is None for request in stack.model.requests)


async def test_A97_where_something_stands_before_the_prompt() -> None:
    async with loop_stack(say("a"), say("b")) as stack:
        stack.ctx.system_prompt.section("test", 1, "You help.")
        early = create_user_message("early")
        stack.agent.session.append(UserMessageEvent(message=early), surface_op="append")
        stack.recorder.take()
        assert logged(await stack.run("M")) == [
            "user/message You help.",
            "user/message M",
            "request/header initial",
            "request/context",
            "assistant/message",
        ]
        assert logged(await stack.run("N")) == ["user/message N", "assistant/message"]


async def test_A104_runtime_context_is_given_when_it_changes() -> None:
    async with loop_stack(say("a"), say("b"), say("c"), say("d")) as stack:
        fact: list[str | None] = ["it is Monday"]
        stack.ctx.system_prompt.context("day", 1, lambda assembly: fact[0])
        assert "~pre-step [M RC] 1.1" in await stack.run("M")
        assert "~pre-step [N] 2.1" in await stack.run("N")
        fact[0] = None
        assert "~pre-step [O RC] 3.1" in await stack.run("O")
        assert "~pre-step [P] 4.1" in await stack.run("P")


async def test_A38_the_prompt_knows_the_model_of_the_step() -> None:
    async with loop_stack(say("a")) as stack:
        stack.ctx.system_prompt.section("test", 1, "{{provider}}/{{model}}")
        await stack.run("M")
        assert message_text(stack.model.requests[0].messages[0]) == "test/m"


async def test_A98_A99_listT22_rewritten_history_begins_a_series() -> None:
    async with loop_stack(say("a"), say("b")) as stack:
        await stack.run("M")
        session = stack.agent.session

        async def compact(event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
            nodes = session.surface.nodes
            session.append(
                UserMessageEvent(message=create_user_message("summary")),
                surface_op=ReplaceOp(start_seq=nodes[1], end_seq=nodes[-1]),
                source_event_seqs=tuple(nodes[1:]),
            )
            return await next_()

        stack.ctx.on(PreStep, compact, everywhere=True)
        lines = logged(await stack.run("N"))
        assert lines[-3:] == ["user/message N", "request/header series", "assistant/message"]
        sent = stack.model.requests[-1].messages
        assert [message_text(message) for message in sent] == ["summary", "N"]


async def test_A77_a_decision_may_declare_a_series() -> None:
    async with loop_stack(say("a"), say("b")) as stack:
        await stack.run("M")

        async def declare(event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
            return Enter(event.messages, starts_request_series=True)

        stack.ctx.on(PreStep, declare, everywhere=True)
        assert "request/header series" in await stack.run("N")


async def test_A91_A95_sampling_may_change_and_stays() -> None:
    async with loop_stack(say("a"), say("b")) as stack:

        async def cooler(event: AgentRequest, next_: Next[LlmCallConfig]) -> LlmCallConfig:
            config = await next_()
            return LlmCallConfig(provider=config.provider, model=config.model, temperature=0.5)

        handle = stack.ctx.on(AgentRequest, cooler, everywhere=True)
        await stack.run("M")
        handle()
        await stack.run("N")
        assert [request.temperature for request in stack.model.requests] == [0.5, 0.5]


async def test_A91_the_route_may_not_change() -> None:
    async with loop_stack() as stack:

        async def reroute(event: AgentRequest, next_: Next[LlmCallConfig]) -> LlmCallConfig:
            return LlmCallConfig(provider="test", model="other")

        stack.ctx.on(AgentRequest, reroute, everywhere=True)
        lines = await stack.run("M")
        assert error_code(stack) == "ROUTE_CHANGED"
        assert "user/message M" not in lines
        assert stack.model.requests == []


async def test_A91_without_any_model() -> None:
    async with loop_stack() as stack:
        handle = await stack.ctx.agents.create()
        handle.agent.followup("M")
        with anyio.fail_after(5):
            await handle.agent.when_idle()
        last = handle.agent.session.events[-1].data
        assert isinstance(last, TurnEnd)
        assert isinstance(last.reason, ErrorEnd)
        assert last.reason.error.code == "NO_MODEL"


async def test_A96_a_route_without_adapter_fails_as_an_attempt() -> None:
    async with loop_stack() as stack:
        stack.agent.model.select(ModelSelection(provider="nowhere", model="m"))
        stack.recorder.take()
        lines = await stack.run("M")
        assert logged(lines) == [
            "system/message",
            "user/message M",
            "request/header initial",
            "request/context",
            "assistant/attempt",
        ]
        assert error_code(stack) == "NO_ADAPTER"


async def test_A96_middleware_may_serve_a_route_without_adapter() -> None:
    async with loop_stack() as stack:

        async def answer() -> AsyncIterator[StreamChunk]:
            for chunk in say("served"):
                assert not callable(chunk)
                yield chunk

        def serve(
            event: LlmStreamEvent, next_: Callable[[], AsyncIterator[StreamChunk]]
        ) -> AsyncIterator[StreamChunk]:
            return answer()

        stack.ctx.on(LlmStreamEvent, serve, everywhere=True)
        stack.agent.model.select(ModelSelection(provider="nowhere", model="m"))
        assert "turn/end 1 completed" in await stack.run("M")


async def test_A101_the_request_is_marked_and_carries_session_and_signal() -> None:
    async with loop_stack(say("a")) as stack:
        await stack.run("M")
        (request,) = stack.model.requests
        assert is_agent_loop_request(request)
        assert request.session_id == stack.agent.id
        assert request.signal is not None


async def test_A103_a_stream_that_breaks_leaves_an_attempt_and_fails_the_turn() -> None:
    async with loop_stack() as stack:

        async def broken() -> AsyncIterator[StreamChunk]:
            yield BlockStart(0, "text")
            yield TextDelta(0, "half")
            raise RuntimeError("wire broke")

        def serve(
            event: LlmStreamEvent, next_: Callable[[], AsyncIterator[StreamChunk]]
        ) -> AsyncIterator[StreamChunk]:
            return broken()

        errors: list[str] = []
        stack.ctx.on(AgentError, lambda e: errors.append(str(e.error)), everywhere=True)
        stack.ctx.on(LlmStreamEvent, serve, everywhere=True)
        lines = await stack.run("M")
        assert lines[-6:] == [
            "assistant/attempt",
            "~end 2 attempt",
            "step/end 1.1",
            "~agent/error 1.1",
            "turn/end 1 error",
            "~status idle",
        ]
        assert errors == ["wire broke"]


async def test_A103_an_empty_answer_is_a_message_with_its_usage() -> None:
    async with loop_stack() as stack:
        usage = TokenUsage(input_tokens=3, output_tokens=0)
        stack.model.replies = [[UsageChunk(usage), say("x")[-1]]]
        await stack.run("M")
        messages = [
            event.data
            for event in stack.agent.session.events
            if isinstance(event.data, AssistantMessageEvent)
        ]
        assert [(each.usage, each.message.content) for each in messages] == [(usage, ())]
        assert [m.role for m in stack.agent.session.derive_messages()] == ["user"]


async def test_A46_A103_a_refused_record_is_told_as_abandoned() -> None:
    async with loop_stack(say("a")) as stack:
        with stack.refusing("assistant/message"):
            lines = await stack.run("M")
        assert lines[-5:] == [
            "~end 4 abandoned",
            "step/end 1.1",
            "~agent/error 1.1",
            "turn/end 1 error",
            "~status idle",
        ]


async def test_A40_a_change_of_model_is_told_once() -> None:
    async with loop_stack(say("a"), say("b"), say("c")) as stack:
        install_model_selection(stack.agent.ctx, stack.agent)
        await stack.run("M")
        stack.agent.model.select(ModelSelection(provider="test", model="n"))
        notice = (
            "[model changed: assistant turns above this point were generated by m; "
            "the session continues with n]"
        )
        assert logged(await stack.run("N"))[:3] == [
            "user/message N",
            f"user/message {notice}",
            "request/header change",
        ]
        assert logged(await stack.run("O")) == ["user/message O", "assistant/message"]


async def test_A90_what_pre_step_appends_is_part_of_the_request() -> None:
    async with loop_stack(say("a")) as stack:

        async def add(event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
            event.agent.session.append(TodoWrite(todos=()))
            return await next_()

        stack.ctx.on(PreStep, add, everywhere=True)
        lines = await stack.run("M")
        assert lines.index("todo/write") < lines.index("step/start 1.1")


async def test_A99_tools_of_the_header() -> None:
    async with loop_stack(say("a")) as stack:
        await stack.run("M")
        headers = [
            event.data.header
            for event in stack.agent.session.events
            if isinstance(event.data, RequestHeaderEvent)
        ]
        assert [header.tools for header in headers] == [None]
        assert stack.model.requests[0].tools is None


async def test_A104_a_shadowed_snapshot_is_given_again() -> None:
    async with loop_stack(say("a"), say("b")) as stack:
        stack.ctx.system_prompt.context("day", 1, "it is Monday")
        assert "~pre-step [M RC] 1.1" in await stack.run("M")
        session = stack.agent.session
        nodes = session.surface.nodes
        session.append(
            UserMessageEvent(message=create_user_message("summary")),
            surface_op=ReplaceOp(start_seq=nodes[1], end_seq=nodes[-1]),
            source_event_seqs=tuple(nodes[1:]),
        )
        assert "~pre-step [N RC] 2.1" in await stack.run("N")
