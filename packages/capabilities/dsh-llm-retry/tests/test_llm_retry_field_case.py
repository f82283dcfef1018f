"""Field case 38 through the whole stack: HTTP, adapter, loop and log."""

from pathlib import Path

import anyio
import pytest

import dsh_llm_openai
from dsh_agent import Agent, AgentAssistantStream, AssistantFrame, Committed, StreamEnd, StreamStart
from dsh_agent_loop.invariant import invariant
from dsh_cordis import Context
from dsh_cordis.testing import Recorder
from dsh_llm import UsageChunk, expand_assistant_stream, message_text
from dsh_llm.testing import check_request
from dsh_llm_retry import LlmRetry, check_retries, mount
from dsh_llm_retry.testing import ManualSleep
from dsh_llm_scripted import MockServer, raw_reply, reset
from dsh_session import AssistantAttempt, AssistantMessageEvent
from dsh_spine import SpineContext, spine

CASES = Path(__file__).parents[4].parent / "shared" / "field-cases"
FIRST = CASES / "38-retry-after-partial-output.attempt1.sse"
SECOND = CASES / "38-retry-after-partial-output.attempt2.sse"
ANSWER = "Here is the plan: step one, step two."

pytestmark = pytest.mark.skipif(
    not FIRST.exists(), reason="the field cases are not beside this repository"
)


async def run(ctx: Context, server: MockServer) -> tuple[Agent, list[AssistantFrame]]:
    def retry(inner: Context) -> None:
        mount(inner, sleep=ManualSleep())

    ctx.plugin(spine)
    ctx.plugin(invariant)
    ctx.plugin(dsh_llm_openai, {"providers": {"case": {"base_url": server.base_url}}})
    ctx.plugin(retry)
    await ctx.settled()
    frames: Recorder[AgentAssistantStream] = Recorder()
    ctx.on(AgentAssistantStream, frames, everywhere=True)
    context: SpineContext = ctx  # type: ignore[assignment]  # a root serves every key
    handle = await context.agents.create(provider="case", model="m")
    handle.agent.followup("Make a plan.")
    with anyio.fail_after(5):
        await handle.agent.when_idle()
    return handle.agent, [event.frame for event in frames.events]


async def test_L81_field_case_38_a_retry_after_partial_output_keeps_the_second_attempt() -> None:
    attempts = [reset([FIRST.read_bytes()]), raw_reply([SECOND.read_bytes()])]
    async with MockServer(attempts, strict=True) as server, Context() as ctx:
        agent, frames = await run(ctx, server)
        session = agent.session
        check_retries(session.events)

        messages = session.derive_messages()
        check_request(messages)
        answers = [message_text(m) for m in messages if m.role == "assistant"]
        assert answers == [ANSWER]

        (record,) = [e.data for e in session.events if isinstance(e.data, LlmRetry)]
        assert (record.failure.code, record.retry) == ("TRANSPORT", 1)

        (attempt,) = [e.data for e in session.events if isinstance(e.data, AssistantAttempt)]
        kinds = [type(timed.chunk) for timed in expand_assistant_stream(attempt.stream)]
        assert UsageChunk not in kinds  # unknown, not zero
        (message,) = [e.data for e in session.events if isinstance(e.data, AssistantMessageEvent)]
        assert message.usage is not None
        assert message.usage.output_tokens == 18

        first, second = (request.body for request in server.requests)
        assert first == second
        assert "call_z1" not in str(second)
        assert [e.type for e in session.events if e.type.startswith("tool/")] == []

        ends = [f for f in frames if isinstance(f, StreamStart | StreamEnd)]
        assert [type(frame) for frame in ends] == [StreamStart, StreamEnd] * 2
        outcomes = [f.outcome for f in ends if isinstance(f, StreamEnd)]
        assert [o.event_type for o in outcomes if isinstance(o, Committed)] == [
            "assistant/attempt",
            "assistant/message",
        ]
