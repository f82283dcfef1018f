"""Whole answers as chunk lists, for the scripted adapter."""

from collections.abc import Sequence

from dsh_llm import (
    BlockEnd,
    BlockStart,
    CallId,
    ErrorFinish,
    FinishChunk,
    FinishReason,
    LlmFailure,
    MaxTokensFinish,
    ReasoningBlock,
    ReasoningDelta,
    StopFinish,
    StreamChunk,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCallDelta,
    ToolCallsFinish,
    UsageChunk,
)

from .completions import Call, FinishWord, words

DEFAULT_USAGE = TokenUsage(12, 7, 19)
FINISHES: dict[FinishWord, FinishReason] = {
    "stop": StopFinish(),
    "tool_calls": ToolCallsFinish(),
    "length": MaxTokensFinish(),
    "content_filter": ErrorFinish(LlmFailure("the answer was filtered", "CONTENT_FILTER")),
}


def text_chunks(
    text: str | Sequence[str],
    *,
    reasoning: str | Sequence[str] = "",
    finish: FinishReason | None = None,
    usage: TokenUsage | None = DEFAULT_USAGE,
) -> list[StreamChunk]:
    """A model that answers in words, after it thought if `reasoning` is given.

    A single string is cut after each space; a sequence gives the deltas themselves.
    """
    chunks = [*_reasoning(0, reasoning)]
    chunks += _text(1 if chunks else 0, text)
    return [*chunks, *_ending(finish or StopFinish(), usage)]


def call_chunks(
    *calls: Call,
    text: str | Sequence[str] = "",
    reasoning: str | Sequence[str] = "",
    finish: FinishReason | None = None,
    usage: TokenUsage | None = DEFAULT_USAGE,
) -> list[StreamChunk]:
    """A model that calls tools, after some words if `text` is given.

    Calls without an id are numbered `call_1`, `call_2`, ...; ids must differ within a session, so
    give them where a script calls tools more than once.
    """
    chunks = [*_reasoning(0, reasoning)]
    index = 1 if chunks else 0
    said = _text(index, text)
    chunks += said
    index += 1 if said else 0
    for number, call in enumerate(calls, 1):
        chunks += _call(index, call, CallId(call.id or f"call_{number}"))
        index += 1
    return [*chunks, *_ending(finish or ToolCallsFinish(), usage)]


def _reasoning(index: int, given: str | Sequence[str]) -> list[StreamChunk]:
    pieces = words(given)
    if not pieces:
        return []
    deltas = [ReasoningDelta(index, piece) for piece in pieces]
    end = BlockEnd(index, ReasoningBlock("".join(pieces)))
    return [BlockStart(index, "reasoning"), *deltas, end]


def _text(index: int, given: str | Sequence[str]) -> list[StreamChunk]:
    pieces = words(given)
    if not pieces:
        return []
    deltas = [TextDelta(index, piece) for piece in pieces]
    return [BlockStart(index, "text"), *deltas, BlockEnd(index, TextBlock("".join(pieces)))]


def _call(index: int, call: Call, call_id: CallId) -> list[StreamChunk]:
    text = call.text()
    half = len(text) // 2
    deltas = [
        ToolCallDelta(index=index, id=call_id, name=call.name, arguments_delta=piece)
        for piece in ("", text[:half], text[half:])
    ]
    end = BlockEnd(index, ToolCallBlock(call_id, call.name, text))
    return [BlockStart(index, "tool-call"), *deltas, end]


def _ending(finish: FinishReason, usage: TokenUsage | None) -> list[StreamChunk]:
    cost = [] if usage is None else [UsageChunk(usage)]
    return [*cost, FinishChunk(finish)]
