"""More event lists of the contract, compared whole: aborted, rewritten and broken turns."""

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Self

import anyio
import pytest
from typing_extensions import override

from dsh_agent import (
    AgentRequest,
    AgentRequestError,
    ModelSelection,
    PreStep,
    PreStepDecision,
    Retry,
)
from dsh_agent_loop.testing import LoopStack, ScriptedModel, call, fail, loop_stack, say
from dsh_cordis import Next
from dsh_llm import (
    AbortSignal,
    LlmCallConfig,
    LlmResolvedModelInfo,
    TextBlock,
    ToolRegistrySource,
    create_developer_message,
    create_user_message,
    message_text,
)
from dsh_session import DeveloperMessageEvent, ReplaceOp, UserMessageEvent
from dsh_tools import ToolRunContext

STREAM = ["~llm/stream", "~start", "~chunk 0", "~chunk 1", "~chunk 2", "~chunk 3"]


def opening(text: str, turn: int) -> list[str]:
    return [
        f"agent/inbox/spliced next-turn@0 +{text}",
        f"~inserted {text}",
        "~status running",
        f"turn/start {turn}",
        "agent/inbox/spliced next-turn@0 -1",
        f"~claimed {text} turn {turn}",
        "~assemble",
        f"~pre-step [{text}] {turn}.1",
        f"step/start {turn}.1",
        "~request",
    ]


def closing(turn: int) -> list[str]:
    return [
        *STREAM,
        "assistant/message",
        "~end 4 message",
        f"step/end {turn}.1",
        "~turn-stopping",
        f"turn/end {turn} completed",
        "~status idle",
    ]


class InHistory(ScriptedModel):
    """A route that takes prompt updates in the history."""

    @override
    async def resolve_model(
        self, provider: str, model: str, signal: AbortSignal | None = None
    ) -> LlmResolvedModelInfo:
        return LlmResolvedModelInfo(
            provider=provider, id=model, name=model, system_prompt_update="in-history"
        )


@pytest.mark.parametrize("keep_inbox", [True, False])
async def test_A26_listT11_cancel_during_pre_step(keep_inbox: bool) -> None:
    async with loop_stack() as stack:
        entered = anyio.Event()

        async def wait(event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
            entered.set()
            await anyio.sleep_forever()
            return await next_()

        stack.ctx.on(PreStep, wait, everywhere=True)
        stack.agent.followup("M")
        with anyio.fail_after(5):
            await entered.wait()
            stack.recorder.take()
            stack.agent.cancel(keep_inbox=keep_inbox)
            await stack.agent.when_idle()
        assert stack.recorder.take() == ["turn/end 1 aborted", "~status idle"]
        assert stack.agent.inbox.next_turn == ()


async def test_A82_listT12_cancel_during_a_retry_wait() -> None:
    async with loop_stack(fail()) as stack:
        waiting = anyio.Event()

        async def retry(event: AgentRequestError, next_: Next[Retry | None]) -> Retry | None:
            waiting.set()
            await anyio.sleep_forever()
            return Retry()

        stack.ctx.on(AgentRequestError, retry, everywhere=True)
        stack.agent.followup("M")
        with anyio.fail_after(5):
            await waiting.wait()
            lines = stack.recorder.take()
            stack.agent.cancel()
            await stack.agent.when_idle()
        assert lines[-3:] == ["assistant/attempt", "~end 1 attempt", "~request-error SERVER"]
        assert stack.recorder.take() == ["step/end 1.1", "turn/end 1 aborted", "~status idle"]


async def prompted(stack: LoopStack, texts: list[str]) -> None:
    """Each turn has the next text as its prompt."""
    stack.ctx.system_prompt.section("test", 1, lambda assembly: texts[0])
    await stack.run("M")
    texts.pop(0)


async def test_A97_listT21_a_changed_prompt_on_a_route_that_reads_only_a_leading_one() -> None:
    async with loop_stack(say("a"), say("b")) as stack:
        await prompted(stack, ["one", "two"])
        head = stack.agent.session.surface.nodes[0]
        assert await stack.run("N") == [
            *opening("N", 2),
            f"system/message replace {head}",
            "user/message N",
            "request/header series",
            *closing(2),
        ]


async def test_A97_listT21_a_changed_prompt_on_a_route_that_takes_it_in_the_history() -> None:
    async with loop_stack() as stack:
        stack.ctx.llm.register_adapter(["new"], InHistory(say("a"), say("b")))
        stack.handle = await stack.ctx.agents.create(provider="new", model="m")
        stack.recorder.take()
        await prompted(stack, ["one", "two"])
        assert await stack.run("N") == [
            *opening("N", 2),
            "system/message",
            "user/message N",
            *closing(2),
        ]


async def test_A97_listT21_an_emptied_prompt_empties_every_node_later_ones_first() -> None:
    async with loop_stack() as stack:
        stack.ctx.llm.register_adapter(["new"], InHistory(say("a"), say("b"), say("c")))
        stack.handle = await stack.ctx.agents.create(provider="new", model="m")
        texts = ["one", "two", ""]
        await prompted(stack, texts)
        await stack.run("N")
        texts.pop(0)
        log = stack.agent.session.events
        first, second = (event.seq for event in log if event.type == "system/message")
        assert await stack.run("O") == [
            *opening("O", 3),
            f"system/message replace {second}",
            f"system/message replace {first}",
            "user/message O",
            "request/header series",
            *closing(3),
        ]


async def test_A126_later_prompts_of_a_log_are_consolidated_on_another_route() -> None:
    async with loop_stack(say("c")) as stack:
        stack.ctx.llm.register_adapter(["new"], InHistory(say("a"), say("b")))
        stack.handle = await stack.ctx.agents.create(provider="new", model="m")
        texts = ["one", "two", "two"]
        await prompted(stack, texts)
        await stack.run("N")
        log = stack.agent.session.events
        first, second = (event.seq for event in log if event.type == "system/message")
        stack.agent.model.select(ModelSelection(provider="test", model="m"))
        lines = await stack.run("O")
        at = lines.index("~request")
        assert lines[at + 1 : at + 5] == [
            f"system/message replace {second}",
            f"system/message replace {first}",
            "user/message O",
            "request/header change series",
        ]
        sent = stack.model.requests[-1].messages
        assert [message_text(m) for m in sent if m.role == "system"] == ["two"]


async def test_A127_a_log_that_holds_developer_messages_goes_on() -> None:
    async with loop_stack(say("a"), say("b")) as stack:

        async def tell(event: AgentRequest, next_: Next[LlmCallConfig]) -> LlmCallConfig:
            if event.turn == 2:
                message = create_developer_message((TextBlock("gone: t"),), ToolRegistrySource())
                data = DeveloperMessageEvent(turn=2, step=1, message=message)
                event.agent.session.append(data, surface_op="append")
            return await next_()

        await stack.run("M")
        stack.ctx.on(AgentRequest, tell, everywhere=True)
        assert "turn/end 2 completed" in await stack.run("N")
        log = list(stack.agent.session.events)
        stack.handle = await stack.ctx.agents.create(seed=log, provider="test", model="m")
        assert "turn/end 3 completed" in await stack.run("O")
        roles = [message.role for message in stack.model.requests[-1].messages]
        assert roles.count("user") == 3


async def test_A90_A98_listT22_history_rewritten_in_pre_step() -> None:
    async with loop_stack(say("a"), say("b")) as stack:
        await stack.run("M")
        session = stack.agent.session
        nodes = tuple(session.surface.nodes)

        async def compact(event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
            session.append(
                UserMessageEvent(message=create_user_message("summary")),
                surface_op=ReplaceOp(start_seq=nodes[1], end_seq=nodes[-1]),
                source_event_seqs=nodes[1:],
            )
            return await next_()

        stack.ctx.on(PreStep, compact, everywhere=True)
        assert await stack.run("N") == [
            *opening("N", 2)[:-2],
            f"user/message summary replace {nodes[1]}",
            "step/start 2.1",
            "~request",
            "user/message N",
            "request/header series",
            *closing(2),
        ]


class LateStage:
    """A stage that waits, in the place of one of the pipeline's own."""

    immediate = False

    def __init__(self, run: Callable[[], Awaitable[object]]) -> None:
        self._run = run

    def __await__(self) -> Generator[object, None, object]:
        return (yield from self._run().__await__())

    def alone(self) -> Self:
        return self


async def test_A109_A110_A121_listT23_a_scheduler_failure_compared_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replies = call(("c1", "t", ""), ("c2", "t", ""), ("c3", "t", ""))
    async with loop_stack(replies, config={"max_parallel_tool_calls": 2}) as stack:
        second = anyio.Event()
        release = anyio.Event()

        async def body(run: ToolRunContext) -> str:
            second.set()
            await release.wait()
            stack.recorder.note(f"{run.call_id} ends")
            return "ok"

        stack.add_tool("t", body, parallel=True)
        scheduler = stack.ctx.tools.scheduler
        dispatch = scheduler.dispatching

        async def broken(run: ToolRunContext) -> object:
            if run.call_id != "c1":
                return await dispatch(run)
            await second.wait()
            release.set()
            stack.recorder.note("E")
            raise RuntimeError("the scheduler broke")

        monkeypatch.setattr(scheduler, "dispatching", lambda run: LateStage(partial(broken, run)))
        lines = await stack.run("M")
        assert lines[lines.index("tool/call c1") :] == [
            "tool/call c1",
            "~pre c1",
            "tool/call c2",
            "~pre c2",
            "~execute c2",
            "E",
            "c2 ends",
            "tool/result c1 TOOL_OUTCOME_UNKNOWN",
            "~post c2",
            "~result c2",
            "tool/result c2",
            "tool/call c3",
            "tool/result c3 TOOL_NOT_STARTED",
            "step/end 1.1",
            "~agent/error 1.1",
            "turn/end 1 error",
            "~status idle",
        ]
