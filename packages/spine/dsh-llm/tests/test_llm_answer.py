"""Whole answers, and failures as exceptions."""

from collections.abc import AsyncIterator, Sequence

import anyio
import pytest

from dsh_llm import (
    AbortedFinish,
    Answer,
    BlockEnd,
    CallId,
    ErrorFinish,
    FinishChunk,
    FinishReason,
    GenerateOptions,
    LlmError,
    LlmFailure,
    MaxTokensFinish,
    ModelSource,
    ReasoningBlock,
    ReplayEnvelope,
    StopFinish,
    StreamChunk,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    UsageChunk,
    collect,
    create_user_message,
)
from dsh_llm.testing import FakeAdapter

OPTIONS = GenerateOptions(provider="a", model="m", messages=[create_user_message("hi")])
CALL = ToolCallBlock(CallId("c1"), "read", "{}")
SAID: Sequence[StreamChunk] = (
    BlockEnd(0, ReasoningBlock("hm")),
    TextDelta(1, "Hel"),
    TextDelta(1, "lo."),
    BlockEnd(1, TextBlock("Hello.")),
    BlockEnd(2, CALL),
)


async def collected(*script: StreamChunk | Exception) -> Answer:
    adapter = FakeAdapter(script)
    with anyio.fail_after(5):
        return await collect(adapter.stream(OPTIONS))


async def test_an_answer_is_what_the_stream_said() -> None:
    state = ReplayEnvelope({"k": 1})
    usage = TokenUsage(3, 2)
    answer = await collected(*SAID, UsageChunk(usage), FinishChunk(StopFinish(), state))
    assert answer == Answer(
        blocks=(ReasoningBlock("hm"), TextBlock("Hello."), CALL),
        finish=StopFinish(),
        usage=usage,
        replay_state=state,
    )
    assert (answer.text, answer.reasoning, answer.tool_calls) == ("Hello.", "hm", (CALL,))
    message = answer.message("a", "m")
    assert message.source == ModelSource(provider="a", model="m", replay_state=state)
    assert message.content == answer.blocks


async def test_L76_the_output_limit_is_no_failure_and_drops_calls() -> None:
    answer = await collected(*SAID, FinishChunk(MaxTokensFinish()))
    assert (answer.text, answer.tool_calls) == ("Hello.", ())


async def test_pieces_of_text_are_handed_on_as_they_come() -> None:
    pieces: list[str] = []
    adapter = FakeAdapter([*SAID, FinishChunk(StopFinish())])
    with anyio.fail_after(5):
        await collect(adapter.stream(OPTIONS), on_text=pieces.append)
    assert pieces == ["Hel", "lo."]


@pytest.mark.parametrize("finish", [ErrorFinish, AbortedFinish])
async def test_L39_a_failure_is_raised_with_its_facts_however_it_is_told(
    finish: type[ErrorFinish | AbortedFinish],
) -> None:
    failure = LlmFailure(
        message="slow down", code="RATE_LIMIT", status=429, provider_retry_after_ms=5
    )
    reason: FinishReason = finish(failure)
    raised = LlmError("slow down", "RATE_LIMIT", status=429, provider_retry_after_ms=5)
    for end in (FinishChunk(reason), raised):
        with pytest.raises(LlmError) as caught:
            await collected(TextDelta(0, "x"), end)
        assert caught.value.failure == failure


async def test_a_stream_without_a_finish_is_a_failure() -> None:
    with pytest.raises(LlmError) as caught:
        await collected(*SAID)
    assert caught.value.code == "STREAM_CLOSED"


async def test_the_stream_is_closed_when_the_caller_fails() -> None:
    adapter = FakeAdapter([*SAID, FinishChunk(StopFinish())])

    def broken(text: str) -> None:
        raise KeyError(text)

    stream: AsyncIterator[StreamChunk] = adapter.stream(OPTIONS)
    with anyio.fail_after(5), pytest.raises(KeyError):
        await collect(stream, on_text=broken)
    assert adapter.closed == 1
