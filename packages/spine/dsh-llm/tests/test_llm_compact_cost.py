"""What packing and reading compact streams cost, counted in bytes and in members looked at."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from statistics import median

import pytest
from typing_extensions import override

from dsh_llm import (
    AssistantStreamAccumulator,
    BlockStart,
    CallId,
    FinishChunk,
    RawChunk,
    ReasoningDelta,
    StopFinish,
    StreamChunk,
    StreamRecord,
    TextChunks,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    UsageChunk,
    assemble_assistant_stream,
    assistant_stream_first_token_time,
    assistant_stream_has_visible_content,
    assistant_stream_has_visible_text,
    expand_assistant_stream,
    join_assistant_stream_text,
    last_assistant_stream_chunk,
)

COUNT = 20_000


@pytest.fixture
def traced() -> Iterator[None]:
    gc.collect()
    tracemalloc.start()
    yield
    tracemalloc.stop()


def text(place: int) -> StreamChunk:
    return TextDelta(0, f"w{place}")


def fragment(place: int) -> StreamChunk:
    return ToolCallDelta(index=0, id=CallId("c"), name="ls", arguments_delta=f"w{place}")


def start(place: int) -> StreamChunk:
    return BlockStart(place, "text")


def alternating(place: int) -> StreamChunk:
    return text(place) if place % 2 else ReasoningDelta(1, f"w{place}")


@pytest.mark.parametrize("chunk", [text, alternating])
@pytest.mark.usefixtures("traced")
def test_L192_a_push_costs_the_same_however_much_came_before(
    chunk: Callable[[int], StreamChunk],
) -> None:
    accumulator = AssistantStreamAccumulator()
    for place in range(COUNT):
        accumulator.push(place, chunk(place))
    peaks: list[int] = []
    for place in range(COUNT, COUNT + 65):
        news = chunk(place)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        accumulator.push(place, news)
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
    # A list that grows is copied now and then; a copy of what came before would be in each.
    assert median(peaks) < 1000


@pytest.mark.parametrize("chunk", [text, fragment, start])
@pytest.mark.parametrize("gap", [0, 7, 1000])
@pytest.mark.usefixtures("traced")
def test_L192_a_stream_costs_at_most_120_bytes_a_chunk_beyond_its_texts(
    chunk: Callable[[int], StreamChunk], gap: int
) -> None:
    chunks = [chunk(place) for place in range(COUNT)]
    before = tracemalloc.get_traced_memory()[0]
    accumulator = AssistantStreamAccumulator()
    time = 1_790_000_000_000
    for each in chunks:
        time += gap
        accumulator.push(time, each)
    records = accumulator.snapshot()
    del accumulator
    assert len(records) == (COUNT if chunk is start else 1)
    assert tracemalloc.get_traced_memory()[0] - before <= 120 * COUNT


class _Members(tuple[str, ...]):
    """Member texts that know how many of them were looked at."""

    seen = 0

    @override
    def __iter__(self) -> Iterator[str]:
        for member in super().__iter__():
            type(self).seen += 1
            yield member


READERS: list[Callable[[list[StreamRecord]], object]] = [
    assistant_stream_first_token_time,
    assistant_stream_has_visible_content,
    assistant_stream_has_visible_text,
]


@pytest.mark.parametrize("read", READERS)
def test_L192_readers_stop_at_the_first_hit(
    read: Callable[[Iterator[StreamRecord]], object],
) -> None:
    members = _Members(["", "", "hit", *["more"] * 100])
    _Members.seen = 0

    def records() -> Iterator[StreamRecord]:
        yield RawChunk(0, BlockStart(0, "text"))
        yield TextChunks(1, 0, (0,) * (len(members) - 1), members)
        raise AssertionError("nothing behind the first hit is read")

    assert read(records())
    assert _Members.seen == 3


def test_L192_the_last_chunk_is_searched_from_the_end() -> None:
    members = _Members(["a", "b"])
    _Members.seen = 0
    usage = UsageChunk(TokenUsage(1, 1))
    records: list[StreamRecord] = [
        RawChunk(0, UsageChunk(TokenUsage(9, 9))),
        TextChunks(0, 0, (0,), members),
        RawChunk(0, usage),
        RawChunk(0, FinishChunk(StopFinish())),
    ]
    assert last_assistant_stream_chunk(records, "usage") is usage
    assert _Members.seen == 0


@pytest.mark.usefixtures("traced")
def test_L192_no_reader_keeps_an_expansion() -> None:
    accumulator = AssistantStreamAccumulator()
    for place in range(COUNT):
        accumulator.push(place, TextDelta(0, "" if place < COUNT - 1 else "hit"))
    records = accumulator.snapshot()
    before = tracemalloc.get_traced_memory()[0]
    assert assistant_stream_first_token_time(records) == COUNT - 1
    assert assistant_stream_has_visible_content(records)
    assert assistant_stream_has_visible_text(records)
    assert join_assistant_stream_text(records) == "hit"
    assert len(assemble_assistant_stream(records).blocks()) == 1
    assert sum(1 for _ in expand_assistant_stream(records)) == COUNT
    gc.collect()
    assert tracemalloc.get_traced_memory()[0] - before < COUNT
