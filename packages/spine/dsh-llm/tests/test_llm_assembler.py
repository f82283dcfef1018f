"""Folding chunks into blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_llm import (
    BlockAssembler,
    BlockEnd,
    BlockStart,
    CallId,
    FinishChunk,
    LlmError,
    MaxTokensFinish,
    ModelSource,
    ReasoningBlock,
    ReasoningDelta,
    ReplayEnvelope,
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


def fold(*chunks: StreamChunk) -> BlockAssembler:
    assembler = BlockAssembler()
    for chunk in chunks:
        assembler.push(chunk)
    return assembler


def call(index: int, fragment: str, call_id: str = "", name: str | None = None) -> ToolCallDelta:
    return ToolCallDelta(index=index, id=CallId(call_id), name=name, arguments_delta=fragment)


@given(st.lists(st.tuples(st.integers(0, 3), st.text(max_size=3)), max_size=30))
def test_L69_reading_early_and_often_changes_nothing(deltas: list[tuple[int, str]]) -> None:
    eager, lazy = BlockAssembler(), BlockAssembler()
    for index, text in deltas:
        eager.push(TextDelta(index, text))
        lazy.push(TextDelta(index, text))
        eager.blocks()
    assert eager.blocks() == lazy.blocks() == eager.blocks()
    joined = "".join(text for _, text in deltas)
    assert sum(len(b.text) for b in lazy.blocks() if isinstance(b, TextBlock)) == len(joined)


def test_L70_blocks_stand_in_first_seen_order_and_a_second_start_is_ignored() -> None:
    assembler = fold(
        TextDelta(7, "a"), ReasoningDelta(2, "b"), BlockStart(7, "reasoning"), TextDelta(7, "c")
    )
    assert assembler.blocks() == (TextBlock("ac"), ReasoningBlock("b"))


def test_L71_the_first_type_of_an_index_stays() -> None:
    assembler = fold(TextDelta(0, "a"), ReasoningDelta(0, "b"), call(0, "{}", "c", "ls"))
    assert assembler.blocks() == (TextBlock("ab"),)


def test_L72_the_first_end_wins() -> None:
    assembler = fold(
        TextDelta(0, "a"),
        BlockEnd(0, TextBlock("end")),
        TextDelta(0, "b"),
        BlockEnd(0, TextBlock("late")),
        BlockEnd(1, ReasoningBlock("unseen")),
    )
    assert assembler.blocks() == (TextBlock("end"), ReasoningBlock("unseen"))


def test_L73_an_open_call_takes_the_last_id_and_name_that_are_not_empty() -> None:
    assembler = fold(call(0, '{"a"', "x", "old"), call(0, ":1}", "y", "new"), call(0, "", "", ""))
    assert assembler.blocks() == (ToolCallBlock(CallId("y"), "new", '{"a":1}'),)
    assert fold(call(3, "{}")).blocks() == (ToolCallBlock(CallId("call-3"), "", "{}"),)


def test_L74_an_open_block_of_another_type_cannot_be_read() -> None:
    assembler = fold(TextDelta(0, "a"), BlockStart(1, "image"))
    with pytest.raises(LlmError, match="'image'"):
        assembler.blocks()
    assert assembler.interrupted_blocks() == (TextBlock("a"),)


def test_L75_the_last_usage_and_finish_count() -> None:
    assembler = BlockAssembler()
    assert (assembler.usage, assembler.finish) == (None, StopFinish())
    for count in (1, 2):
        assembler.push(UsageChunk(TokenUsage(count, count)))
    assembler.push(FinishChunk(StopFinish()))
    assembler.push(FinishChunk(ToolCallsFinish()))
    assert (assembler.usage, assembler.finish) == (TokenUsage(2, 2), ToolCallsFinish())


def test_L76_the_output_limit_drops_calls_and_their_replay_entries() -> None:
    chunks = (
        TextDelta(0, "a"),
        BlockEnd(1, ToolCallBlock(CallId("c"), "ls", "{}")),
        call(2, "{", "d", "ls"),
    )
    state = ReplayEnvelope({"id": 1}, ("t", "c", "d"))
    assembler = fold(*chunks, FinishChunk(MaxTokensFinish(), state))
    assert assembler.blocks() == (TextBlock("a"),)
    assert assembler.replay_state == ReplayEnvelope({"id": 1}, ("t",))
    kept = fold(*chunks, FinishChunk(StopFinish(), state))
    assert kept.replay_state is state


def test_L76_an_envelope_that_does_not_fit_is_discarded() -> None:
    short = ReplayEnvelope({}, ("only",))
    chunks = (TextDelta(0, "a"), call(1, "{", "d", "ls"))
    assert fold(*chunks, FinishChunk(MaxTokensFinish(), short)).replay_state is None
    whole = ReplayEnvelope({"r": 1})
    assert fold(*chunks, FinishChunk(MaxTokensFinish(), whole)).replay_state is whole


def test_L77_L163_interrupted_blocks_are_the_visible_ones() -> None:
    assembler = fold(
        TextDelta(0, "\ufeff\u2028 "),
        TextDelta(1, "\x1c"),
        ReasoningDelta(2, "think"),
        call(3, "{}", "c", "ls"),
        BlockEnd(4, TextBlock("done")),
    )
    assert assembler.interrupted_blocks() == (
        TextBlock("\x1c"),
        ReasoningBlock("think"),
        TextBlock("done"),
    )


def test_L78_a_message_names_its_producer() -> None:
    source = ModelSource("p", "m")
    message = fold(TextDelta(0, "a")).message(source)
    assert (message.role, message.source, message.content) == (
        "assistant",
        source,
        (TextBlock("a"),),
    )


def test_L189_halves_in_two_deltas_are_joined() -> None:
    assembler = fold(TextDelta(0, "a\ud83d"), TextDelta(0, "\ude00"), TextDelta(0, "\ud83d"))
    assert assembler.blocks() == (TextBlock("a😀\ud83d"),)
