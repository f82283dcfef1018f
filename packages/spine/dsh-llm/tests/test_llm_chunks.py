"""Chunks and the grammar of streams."""

import pytest

from dsh_brand import decode, encode, freeze_object
from dsh_llm import (
    BlockEnd,
    BlockStart,
    CallId,
    Chunk,
    ErrorFinish,
    FinishChunk,
    LlmFailure,
    OpaqueBlock,
    ReasoningBlock,
    ReasoningDelta,
    StopFinish,
    StreamChunk,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCallDelta,
    UsageChunk,
    chunk_from_json,
    chunk_has_visible_text,
    is_token_delta,
    is_visible_chunk,
)
from dsh_llm.testing import check_stream, stream_problems, text_script


def call(name: str | None, fragment: str) -> ToolCallDelta:
    return ToolCallDelta(index=0, id=CallId("c"), name=name, arguments_delta=fragment)


def test_L2_the_union_of_chunks_is_closed() -> None:
    with pytest.raises(ValueError, match="known type"):
        chunk_from_json({"type": "hologram"})


def test_L2_blocks_and_finish_reasons_inside_chunks_are_open() -> None:
    end = chunk_from_json({"type": "block-end", "index": 0, "block": {"type": "x", "y": 1}})
    assert isinstance(end, BlockEnd)
    assert isinstance(end.block, OpaqueBlock)
    finish = chunk_from_json({"type": "finish", "reason": {"kind": "paused", "until": 9}})
    assert isinstance(finish, FinishChunk)
    assert finish.reason.kind == "paused"
    assert encode(finish) == b'{"type":"finish","reason":{"kind":"paused","until":9}}'


def test_L15_chunks_have_these_keys() -> None:
    assert encode(call("ls", "{}")) == (
        b'{"type":"tool-call-delta","index":0,"id":"c","name":"ls","argumentsDelta":"{}"}'
    )
    assert encode(BlockStart(0, "text")) == b'{"type":"block-start","index":0,"blockType":"text"}'
    error = FinishChunk(ErrorFinish(LlmFailure("m", "C", provider_retry_after_ms=5)))
    assert encode(error) == (
        b'{"type":"finish","reason":{"kind":"error","failure":'
        b'{"message":"m","code":"C","providerRetryAfterMs":5}}}'
    )
    assert decode(FinishChunk, encode(error)) == error


def test_L16_prompt_pressure_is_the_sum_of_the_three_input_counts() -> None:
    usage = TokenUsage(1, 10, cache_read_tokens=2, cache_write_tokens=4, reasoning_tokens=8)
    assert usage.prompt_tokens == 7
    assert b"totalTokens" not in encode(usage)


@pytest.mark.parametrize(
    ("chunk", "token"),
    [
        (TextDelta(0, ""), False),
        (TextDelta(0, " "), True),
        (ReasoningDelta(0, "a"), True),
        (call(None, ""), False),
        (call(None, "{"), True),
        (call("", ""), True),
        (BlockEnd(0, TextBlock("a")), False),
    ],
)
def test_L19_tokens(chunk: Chunk, token: bool) -> None:
    assert is_token_delta(chunk) is token


IMAGE = OpaqueBlock(extra=freeze_object({"type": "image"}))


@pytest.mark.parametrize(
    ("chunk", "visible", "text"),
    [
        pytest.param(TextDelta(0, "a"), True, True, id="text"),
        pytest.param(TextDelta(0, " \ufeff\u2028\n"), False, False, id="text-blank"),
        pytest.param(TextDelta(0, "\x1c"), True, True, id="text-separator-is-no-space"),
        pytest.param(TextDelta(0, ""), False, False, id="text-empty"),
        pytest.param(ReasoningDelta(0, "a"), True, False, id="reasoning"),
        pytest.param(ReasoningDelta(0, " "), False, False, id="reasoning-blank"),
        pytest.param(call("ls", "{}"), False, False, id="call"),
        pytest.param(BlockStart(0, "text"), False, False, id="start-text"),
        pytest.param(BlockStart(0, "reasoning"), False, False, id="start-reasoning"),
        pytest.param(BlockStart(0, "tool-call"), False, False, id="start-call"),
        pytest.param(BlockStart(0, "image"), True, False, id="start-other"),
        pytest.param(BlockEnd(0, TextBlock("a")), True, True, id="end-text"),
        pytest.param(BlockEnd(0, TextBlock(" ")), False, False, id="end-text-blank"),
        pytest.param(BlockEnd(0, ReasoningBlock("a")), True, False, id="end-reasoning"),
        pytest.param(BlockEnd(0, ReasoningBlock("")), False, False, id="end-reasoning-blank"),
        pytest.param(
            BlockEnd(0, ToolCallBlock(CallId("c"), "ls", "{}")), False, False, id="end-call"
        ),
        pytest.param(BlockEnd(0, IMAGE), True, False, id="end-other"),
        pytest.param(UsageChunk(TokenUsage(1, 1)), False, False, id="usage"),
        pytest.param(FinishChunk(StopFinish()), False, False, id="finish"),
    ],
)
def test_L190_what_a_person_sees_of_a_chunk(chunk: Chunk, visible: bool, text: bool) -> None:
    assert is_visible_chunk(chunk) is visible
    assert chunk_has_visible_text(chunk) is text


def test_L68_the_checker_accepts_what_the_grammar_allows() -> None:
    check_stream(text_script("a"))
    check_stream([BlockStart(0, "text"), FinishChunk(ErrorFinish(LlmFailure("m", "C")))])


STOP = FinishChunk(StopFinish())
USAGE = UsageChunk(TokenUsage(1, 1))


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([BlockStart(-1, "text"), STOP], id="index"),
        pytest.param([BlockStart(0, "text"), BlockStart(0, "text")], id="opened-again"),
        pytest.param([TextDelta(0, "a"), STOP], id="delta-not-open"),
        pytest.param([BlockStart(0, "text"), ReasoningDelta(0, "a")], id="delta-other-type"),
        pytest.param([BlockStart(0, "reasoning"), BlockEnd(0, TextBlock("a"))], id="end-other"),
        pytest.param([USAGE, USAGE, STOP], id="second-usage"),
        pytest.param([BlockStart(0, "text"), STOP], id="left-open"),
        pytest.param([STOP, USAGE], id="after-finish"),
        pytest.param([], id="no-finish"),
    ],
)
def test_L68_the_checker_sees_each_fault(chunks: list[StreamChunk]) -> None:
    assert stream_problems(chunks)
    with pytest.raises(AssertionError, match="not valid"):
        check_stream(chunks)
