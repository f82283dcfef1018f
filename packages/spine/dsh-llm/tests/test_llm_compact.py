"""Compact streams."""

import hashlib
from collections.abc import Iterable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_brand import JsonValue, decode, decode_json, encode, to_json
from dsh_llm import (
    AbortedFinish,
    AssistantStreamAccumulator,
    BlockAssembler,
    BlockEnd,
    BlockStart,
    CallId,
    FinishChunk,
    FinishReason,
    LlmFailure,
    MaxTokensFinish,
    RawChunk,
    ReasoningBlock,
    ReasoningChunks,
    ReasoningDelta,
    StopFinish,
    StreamChunk,
    StreamRecord,
    TextBlock,
    TextChunks,
    TextDelta,
    TimedChunk,
    TokenUsage,
    ToolCallBlock,
    ToolCallChunks,
    ToolCallDelta,
    ToolCallsFinish,
    UsageChunk,
    assemble_assistant_stream,
    assistant_stream_chunks,
    assistant_stream_first_token_time,
    assistant_stream_has_visible_content,
    assistant_stream_has_visible_text,
    chunk_from_json,
    chunk_has_visible_text,
    expand_assistant_stream,
    is_token_delta,
    is_visible_chunk,
    join_assistant_stream_text,
    last_assistant_stream_chunk,
    run_first_token_time,
    run_first_visible_time,
)

LIMIT = 2**53 - 1
T0 = 1_790_000_000_000


def call(index: int, call_id: str, name: str | None, fragment: str) -> ToolCallDelta:
    return ToolCallDelta(index=index, id=CallId(call_id), name=name, arguments_delta=fragment)


EXAMPLE: list[tuple[int, StreamChunk]] = [
    (0, BlockStart(0, "text")),
    (0, TextDelta(0, "Si")),
    (7, TextDelta(0, "")),
    (5, TextDelta(0, "x")),
    (5, ReasoningDelta(1, " ")),
    (6, TextDelta(0, "!")),
    (9, call(2, "c7", "ls", "")),
    (9, call(2, "c7", "ls", "{")),
    (12, call(2, "c7", None, "}")),
    (12, call(3, "", "ls", "{}")),
    (13, FinishChunk(ToolCallsFinish())),
]


def pack(timed: Iterable[tuple[int, StreamChunk]]) -> tuple[StreamRecord, ...]:
    accumulator = AssistantStreamAccumulator()
    for time, chunk in timed:
        accumulator.push(time, chunk)
    return accumulator.snapshot()


def example() -> tuple[StreamRecord, ...]:
    return pack((T0 + time, chunk) for time, chunk in EXAMPLE)


def test_L194_the_worked_example_has_these_bytes() -> None:
    text = encode(example())
    assert len(text) == 765
    assert (
        hashlib.sha256(text).hexdigest()
        == "5b1a6700462d8982eb168aef4c0e08f13457a50ebc61d6765e138c751e3653e5"
    )
    assert decode(tuple[StreamRecord, ...], text) == example()


def test_L195_readers_of_the_worked_example() -> None:
    records = example()
    assert assistant_stream_first_token_time(records) == T0
    assert assistant_stream_has_visible_content(records)
    assert assistant_stream_has_visible_text(records)
    assert join_assistant_stream_text(records) == "Six!"
    fifth, sixth, third = records[4], records[5], records[2]
    assert isinstance(fifth, ToolCallChunks)
    assert isinstance(sixth, ToolCallChunks)
    assert isinstance(third, ReasoningChunks)
    assert run_first_token_time(fifth) == T0 + 9
    assert run_first_token_time(sixth) == T0 + 12
    assert run_first_visible_time(third) is None
    assembled = assemble_assistant_stream(records)
    assert assembled.finish == ToolCallsFinish()
    assert assembled.blocks() == (
        TextBlock("Six!"),
        ReasoningBlock(" "),
        ToolCallBlock(CallId("c7"), "ls", "{}"),
        ToolCallBlock(CallId("call-3"), "ls", "{}"),
    )


def test_L195_a_refused_push_changes_nothing() -> None:
    accumulator = AssistantStreamAccumulator()
    for time, chunk in EXAMPLE:
        accumulator.push(T0 + time, chunk)
    accumulator.push(T0 + 13, TextDelta(0, "?"))
    before = accumulator.snapshot()
    assert before[-1] == TextChunks(T0 + 13, 0, (), ("?",))
    with pytest.raises(ValueError, match="time"):
        accumulator.push(2**53, TextDelta(0, "?"))
    assert accumulator.snapshot() == before


def test_L196_L189_half_characters_are_kept_and_joined() -> None:
    records = pack((0, TextDelta(0, text)) for text in ("a\ud83d", "\ude00", "\ud83d"))
    assert [c.chunk for c in expand_assistant_stream(records)] == [
        TextDelta(0, "a\ud83d"),
        TextDelta(0, "\ude00"),
        TextDelta(0, "\ud83d"),
    ]
    assert join_assistant_stream_text(records) == "a😀\ud83d"
    assert assemble_assistant_stream(records).blocks() == (TextBlock("a😀\ud83d"),)
    assert b'["a\\ud83d","\\ude00","\\ud83d"]' in encode(records)
    assert decode(tuple[StreamRecord, ...], encode(records)) == records


def test_L183_runs_split_by_index_id_name_and_time_gap() -> None:
    records = pack(
        [
            (0, TextDelta(0, "a")),
            (0, TextDelta(1, "b")),
            (-LIMIT, TextDelta(1, "c")),
            (LIMIT, TextDelta(1, "d")),
            (0, call(0, "x", "n", "1")),
            (0, call(0, "x", None, "2")),
            (0, call(0, "y", None, "3")),
        ]
    )
    assert records == (
        TextChunks(0, 0, (), ("a",)),
        TextChunks(0, 1, (-LIMIT,), ("b", "c")),
        TextChunks(LIMIT, 1, (), ("d",)),
        ToolCallChunks(time0=0, index=0, dt=(), id=CallId("x"), name="n", args=("1",)),
        ToolCallChunks(time0=0, index=0, dt=(), id=CallId("x"), args=("2",)),
        ToolCallChunks(time0=0, index=0, dt=(), id=CallId("y"), args=("3",)),
    )


@pytest.mark.parametrize("time", [-LIMIT, -1, 0, LIMIT])
def test_L181_times_need_not_increase_and_reach_both_limits(time: int) -> None:
    first, last = TextDelta(0, "a"), FinishChunk(StopFinish())
    timed: list[tuple[int, StreamChunk]] = [(time, first), (0, last), (-5, first)]
    assert list(expand_assistant_stream(pack(timed))) == timed


@pytest.mark.parametrize("bad", [True, False, -0.0, 0.5, 2**53, -(2**53), "0", None])
@pytest.mark.parametrize("key", ["time", "time0", "dt", "index"])
def test_L181_what_is_no_integer_of_the_range_is_refused(key: str, bad: JsonValue) -> None:
    finish: JsonValue = {"type": "finish", "reason": {"kind": "stop"}}
    record: dict[str, JsonValue] = {"type": "chunk", "time": 0, "chunk": finish}
    if key != "time":
        record = TEXT_RUN | {"texts": ["a", "b"], "dt": [0]}
    record[key] = [bad] if key == "dt" else bad
    with pytest.raises(ValueError, match="record 0"):
        list(expand_assistant_stream([record]))
    number = cast("int", bad)
    if key in ("time", "index"):
        accumulator = AssistantStreamAccumulator()
        time, index = (number, 0) if key == "time" else (0, number)
        with pytest.raises(ValueError, match=key):
            accumulator.push(time, TextDelta(index, ""))
        assert accumulator.snapshot() == ()


@pytest.mark.parametrize(
    ("chunk", "keys"),
    [
        (TextDelta(0, "a"), ["type", "time0", "index", "dt", "texts"]),
        (ReasoningDelta(0, "a"), ["type", "time0", "index", "dt", "texts"]),
        (call(0, "c", "n", "a"), ["type", "time0", "index", "dt", "id", "name", "args"]),
        (call(0, "c", None, "a"), ["type", "time0", "index", "dt", "id", "args"]),
        (BlockStart(0, "text"), ["type", "time", "chunk"]),
    ],
)
def test_L182_records_have_these_keys_in_this_order(chunk: StreamChunk, keys: list[str]) -> None:
    [record] = pack([(0, chunk)])
    stored = decode_json(encode(record))
    assert isinstance(stored, dict)
    assert list(stored) == keys
    assert list(cast("dict[str, JsonValue]", to_json(record))) == keys


def test_L193_a_stream_holds_what_its_message_leaves_out() -> None:
    answer: list[tuple[int, StreamChunk]] = [
        (0, TextDelta(0, "Look")),
        (1, call(1, "c", "ls", '{"a":')),
        (2, call(1, "c", None, "1}")),
    ]
    kept = [TextBlock("Look"), ToolCallBlock(CallId("c"), "ls", '{"a":1}')]
    for reason, blocks, interrupted in (
        (MaxTokensFinish(), kept[:1], kept[:1]),
        (AbortedFinish(LlmFailure("m", "ABORTED")), kept, kept[:1]),
        (ToolCallsFinish(), kept, kept[:1]),
    ):
        records = pack([*answer, (3, FinishChunk(reason))])
        assert [each.chunk for each in expand_assistant_stream(records)][:3] == [
            chunk for _, chunk in answer
        ]
        assembled = assemble_assistant_stream(records)
        assert list(assembled.blocks()) == blocks
        assert list(assembled.interrupted_blocks()) == interrupted
        assert assembled.finish == reason


def test_L184_a_delta_with_a_further_key_is_kept_raw() -> None:
    odd = chunk_from_json({"type": "text-delta", "index": 0, "text": "b", "logprob": -1})
    records = pack([(0, TextDelta(0, "a")), (0, odd), (0, TextDelta(0, "c"))])
    assert records == (
        TextChunks(0, 0, (), ("a",)),
        RawChunk(0, odd),
        TextChunks(0, 0, (), ("c",)),
    )
    assert b'"logprob":-1' in encode(records)


@pytest.mark.parametrize(
    ("time", "chunk"),
    [
        pytest.param(True, TextDelta(0, "a"), id="time-bool"),
        pytest.param(1.0, TextDelta(0, "a"), id="time-float"),
        pytest.param(0, TextDelta(-1, "a"), id="index-negative"),
        pytest.param(0, TextDelta(True, "a"), id="index-bool"),
        pytest.param(0, BlockStart(-0.0, "text"), id="index-minus-zero"),  # type: ignore[arg-type]  # bad on purpose
        pytest.param(0, TextDelta(0, 1), id="text-no-string"),  # type: ignore[arg-type]  # bad on purpose
        pytest.param(0, call(0, 1, "n", ""), id="id-no-string"),  # type: ignore[arg-type]  # bad on purpose
        pytest.param(0, call(0, "c", 1, ""), id="name-no-string"),  # type: ignore[arg-type]  # bad on purpose
        pytest.param(0, call(0, "c", "n", None), id="fragment-no-string"),  # type: ignore[arg-type]  # bad on purpose
        pytest.param(0, UsageChunk(TokenUsage(float("nan"), 0)), id="no-json"),  # type: ignore[arg-type]  # bad on purpose
        pytest.param(0, "text", id="no-chunk"),
    ],
)
def test_L185_what_cannot_be_stored_is_refused(time: int, chunk: StreamChunk) -> None:
    accumulator = AssistantStreamAccumulator()
    accumulator.push(0, TextDelta(0, "before"))
    with pytest.raises(ValueError):  # noqa: PT011  # each problem has its own words
        accumulator.push(time, chunk)
    accumulator.push(0, TextDelta(0, "after"))
    assert accumulator.snapshot() == (TextChunks(0, 0, (0,), ("before", "after")),)


def test_L186_push_returns_the_chunk_and_snapshots_are_detached() -> None:
    accumulator = AssistantStreamAccumulator()
    chunk = TextDelta(0, "a")
    assert accumulator.push(5, chunk) == TimedChunk(5, chunk)
    first = accumulator.snapshot()
    accumulator.push(6, TextDelta(0, "b"))
    assert first == (TextChunks(5, 0, (), ("a",)),)
    assert accumulator.snapshot() == (TextChunks(5, 0, (1,), ("a", "b")),)


CHUNKS: st.SearchStrategy[StreamChunk] = st.one_of(
    st.builds(TextDelta, st.integers(0, 2), st.text(max_size=3)),
    st.builds(ReasoningDelta, st.integers(0, 2), st.text(max_size=3)),
    st.builds(
        call,
        st.integers(0, 2),
        st.sampled_from(["", "c", "d"]),
        st.sampled_from([None, "", "ls"]),
        st.text(max_size=3),
    ),
    st.builds(BlockStart, st.integers(0, 2), st.sampled_from(["text", "reasoning", "tool-call"])),
    st.builds(BlockEnd, st.integers(0, 2), st.builds(TextBlock, st.text(max_size=3))),
    st.just(UsageChunk(TokenUsage(1, 2))),
    st.just(FinishChunk(StopFinish())),
)
STREAMS = st.lists(st.tuples(st.integers(-LIMIT, LIMIT), CHUNKS), max_size=25)


@given(STREAMS)
def test_L180_L187_packing_and_expansion_are_inverse(stream: list[tuple[int, StreamChunk]]) -> None:
    records = pack(stream)
    assert list(expand_assistant_stream(records)) == stream
    stored = cast("list[dict[str, JsonValue]]", to_json(records))
    assert list(expand_assistant_stream(stored)) == stream
    assert decode(tuple[StreamRecord, ...], encode(records)) == records


@given(STREAMS)
def test_L188_L191_readers_agree_with_the_expansion(stream: list[tuple[int, StreamChunk]]) -> None:
    records = pack(stream)
    fed = BlockAssembler()
    for _, chunk in stream:
        fed.push(chunk)
    assembled = assemble_assistant_stream(records)
    assert assembled.blocks() == fed.blocks()
    assert (assembled.usage, assembled.finish) == (fed.usage, fed.finish)
    chunks = [chunk for _, chunk in stream]
    first = next((time for time, chunk in stream if is_token_delta(chunk)), None)
    assert assistant_stream_first_token_time(records) == first
    assert assistant_stream_has_visible_content(records) == any(map(is_visible_chunk, chunks))
    assert assistant_stream_has_visible_text(records) == any(map(chunk_has_visible_text, chunks))
    ends = [chunk for chunk in chunks if isinstance(chunk, BlockEnd)]
    assert assistant_stream_chunks(records, "block-end") == ends
    assert last_assistant_stream_chunk(records, "block-end") == (ends[-1] if ends else None)
    joined = "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))
    assert join_assistant_stream_text(records) == joined


TEXT_RUN: dict[str, JsonValue] = {
    "type": "text-chunks",
    "time0": 1,
    "index": 0,
    "dt": [],
    "texts": ["a"],
}
CALL_RUN: dict[str, JsonValue] = {
    "type": "tool-call-chunks",
    "time0": 1,
    "index": 0,
    "dt": [],
    "id": "c",
    "name": "n",
    "args": ["a"],
}


@pytest.mark.parametrize(
    "record",
    [
        pytest.param([], id="no-record"),
        pytest.param({"type": "video-chunks"}, id="unknown-type"),
        pytest.param({k: v for k, v in TEXT_RUN.items() if k != "dt"}, id="missing-key"),
        pytest.param(TEXT_RUN | {"note": 1}, id="extra-key"),
        pytest.param(TEXT_RUN | {"texts": []}, id="no-member"),
        pytest.param(TEXT_RUN | {"dt": [1]}, id="dt-length"),
        pytest.param(TEXT_RUN | {"texts": [1]}, id="member-no-string"),
        pytest.param(TEXT_RUN | {"time0": True}, id="time-bool"),
        pytest.param(TEXT_RUN | {"time0": 2**53}, id="time-range"),
        pytest.param(TEXT_RUN | {"index": -1}, id="index-range"),
        pytest.param(TEXT_RUN | {"index": None}, id="null"),
        pytest.param(
            TEXT_RUN | {"time0": LIMIT, "dt": [1], "texts": ["a", "b"]}, id="member-time-range"
        ),
        pytest.param(CALL_RUN | {"id": ""}, id="empty-id"),
        pytest.param(CALL_RUN | {"name": ""}, id="empty-name"),
        pytest.param(CALL_RUN | {"name": None}, id="null-name"),
        pytest.param({"type": "chunk", "time": 1, "chunk": 5}, id="chunk-no-object"),
        pytest.param({"type": "chunk", "time": 1, "chunk": {"type": "usage"}}, id="chunk-shape"),
    ],
)
def test_L187_expansion_refuses_with_the_position(record: JsonValue) -> None:
    with pytest.raises(ValueError, match="record 1"):
        list(expand_assistant_stream([TEXT_RUN, cast("dict[str, JsonValue]", record)]))


def test_L187_a_chunk_of_an_unknown_type_passes_through_and_is_ignored() -> None:
    stored: list[dict[str, JsonValue]] = [
        {"type": "chunk", "time": 1, "chunk": {"type": "hologram", "z": 1}},
        TEXT_RUN,
    ]
    expanded = list(expand_assistant_stream(stored))
    assert to_json(expanded[0].chunk) == {"type": "hologram", "z": 1}
    assert assemble_assistant_stream(stored).blocks() == (TextBlock("a"),)
    assert assistant_stream_first_token_time(stored) == 1


def test_L191_readers_by_type_take_only_raw_types() -> None:
    with pytest.raises(ValueError, match="join runs"):
        assistant_stream_chunks([], "text-delta")  # type: ignore[arg-type]  # bad on purpose


@pytest.mark.parametrize(
    "chunk",
    [
        pytest.param(BlockEnd(0, TextBlock(cast("str", b"x"))), id="bytes for text"),
        pytest.param(
            BlockEnd(0, ToolCallBlock(CallId("c"), "ls", cast("str", 7j))), id="arguments"
        ),
        pytest.param(UsageChunk(TokenUsage(1, 1, cast("int", float("inf")))), id="infinite count"),
        pytest.param(UsageChunk(TokenUsage(2**53, 1)), id="too large a count"),
        pytest.param(BlockStart(0, cast("str", 7j)), id="block type"),
        pytest.param(FinishChunk(cast("FinishReason", 7j)), id="reason"),
    ],
)
def test_L185_what_is_no_json_is_refused_wherever_it_stands(chunk: StreamChunk) -> None:
    stream = AssistantStreamAccumulator()
    stream.push(1, TextDelta(0, "a"))
    before = stream.snapshot()
    with pytest.raises(ValueError, match="cannot be stored"):
        stream.push(2, chunk)
    assert stream.snapshot() == before
    stream.push(3, TextDelta(0, "b"))
    assert stream.snapshot() == (TextChunks(1, 0, (2,), ("a", "b")),)
