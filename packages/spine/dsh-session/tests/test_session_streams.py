"""The compact stream inside a settlement, as it is packed, stored and read (S15-S20)."""

import json
from typing import Any

import pytest

from dsh_llm import (
    AssistantStreamAccumulator,
    BlockStart,
    CallId,
    FinishChunk,
    ReasoningDelta,
    StopFinish,
    StreamChunk,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    UsageChunk,
    chunk_from_json,
    expand_assistant_stream,
)
from dsh_session import (
    AssistantAttempt,
    SessionEvent,
    decode_event,
    encode_event,
    event_from_json,
    event_to_json,
)
from dsh_session.testing import new_session

Json_ = dict[str, Any]  # JSON objects, built by hand
T = 1_789_000_000_000


def packed(*timed: tuple[int, StreamChunk]) -> SessionEvent:
    """The event that settles an attempt of these chunks."""
    accumulator = AssistantStreamAccumulator()
    for time, chunk in timed:
        accumulator.push(T + time, chunk)
    data = AssistantAttempt(turn=1, step=1, stream=accumulator.snapshot())
    return new_session().append(data)


def records(event: SessionEvent) -> list[Json_]:
    data = json.loads(encode_event(event))["data"]
    assert data == event_to_json(event)["data"]
    found: list[Json_] = data["stream"]
    return found


def tool(index: int, call: str, name: str | None, text: str) -> ToolCallDelta:
    return ToolCallDelta(index=index, id=CallId(call), arguments_delta=text, name=name)


def test_S15_records_have_exactly_their_keys_in_order() -> None:
    found = records(
        packed(
            (0, TextDelta(0, "a")),
            (1, ReasoningDelta(1, "b")),
            (2, tool(2, "c", "ls", "{}")),
            (3, tool(2, "c", None, "")),
            (4, FinishChunk(StopFinish())),
        )
    )
    assert [list(record) for record in found] == [
        ["type", "time0", "index", "dt", "texts"],
        ["type", "time0", "index", "dt", "texts"],
        ["type", "time0", "index", "dt", "id", "name", "args"],
        ["type", "time0", "index", "dt", "id", "args"],
        ["type", "time", "chunk"],
    ]
    kinds = ["text-chunks", "reasoning-chunks", "tool-call-chunks", "tool-call-chunks", "chunk"]
    assert [record["type"] for record in found] == kinds


def test_S17_members_stay_apart_and_gaps_are_one_less() -> None:
    texts = ["", "Hel", "", "lo", ""]
    times = [5, 5, 3, 9, 9]
    event = packed(*((time, TextDelta(0, text)) for time, text in zip(times, texts, strict=True)))
    assert records(event) == [
        {"type": "text-chunks", "time0": T + 5, "index": 0, "dt": [0, -2, 6, 0], "texts": texts}
    ]
    back = decode_event(encode_event(event)).data
    assert isinstance(back, AssistantAttempt)
    assert [time - T for time, _ in expand_assistant_stream(back.stream)] == times


@pytest.mark.parametrize(
    "chunk",
    [
        pytest.param(tool(0, "", "ls", "{"), id="empty-id"),
        pytest.param(tool(0, "c", "", "{"), id="empty-name"),
        pytest.param(BlockStart(0, "text"), id="block-start"),
        pytest.param(UsageChunk(TokenUsage(1, 2)), id="usage"),
        pytest.param(
            chunk_from_json({"type": "text-delta", "index": 0, "text": "a", "p": 0.5}), id="odd-key"
        ),
    ],
)
def test_S18_what_no_run_can_hold_is_a_raw_record(chunk: StreamChunk) -> None:
    event = packed((0, TextDelta(0, "a")), (1, chunk), (2, TextDelta(0, "b")))
    kinds = [record["type"] for record in records(event)]
    assert kinds == ["text-chunks", "chunk", "text-chunks"]
    back = decode_event(encode_event(event)).data
    assert isinstance(back, AssistantAttempt)
    assert [found for _, found in expand_assistant_stream(back.stream)][1] == chunk


def test_S18_an_unknown_chunk_is_refused_when_pushed_and_kept_when_read() -> None:
    accumulator = AssistantStreamAccumulator()
    with pytest.raises(ValueError):  # noqa: PT011  # the words are of dsh_llm
        accumulator.push(T, {"type": "smell", "of": "rain"})  # type: ignore[arg-type]  # what is tested
    stream = [{"type": "chunk", "time": T, "chunk": {"type": "smell", "of": "rain"}}]
    data = {"turn": 1, "step": 1, "stream": stream}
    value = {"type": "assistant/attempt", "seq": 0, "time": T, "data": data}
    assert event_to_json(event_from_json(value)) == value


def test_S19_a_refused_push_leaves_the_record_as_it_was() -> None:
    accumulator = AssistantStreamAccumulator()
    accumulator.push(T, TextDelta(0, "a"))
    before = accumulator.snapshot()
    bad: list[tuple[int, StreamChunk]] = [
        (T, TextDelta(-1, "x")),
        (T, TextDelta(True, "x")),
        (2**53, TextDelta(0, "x")),
    ]
    for time, chunk in bad:
        with pytest.raises(ValueError):  # noqa: PT011  # as above
            accumulator.push(time, chunk)
        assert accumulator.snapshot() == before
    accumulator.push(T + 1, TextDelta(0, "b"))
    assert [time for time, _ in expand_assistant_stream(accumulator.snapshot())] == [T, T + 1]


def test_S20_a_stored_stream_does_not_grow_and_keeps_its_own_times() -> None:
    accumulator = AssistantStreamAccumulator()
    accumulator.push(T, TextDelta(0, "a"))
    data = AssistantAttempt(turn=1, step=1, stream=accumulator.snapshot())
    event = new_session().append(data)
    accumulator.push(T + 1, TextDelta(0, "b"))
    assert records(event)[0]["texts"] == ["a"]
    assert event.time != T
    assert isinstance(event.data, AssistantAttempt)
    assert event.data.stream is data.stream
