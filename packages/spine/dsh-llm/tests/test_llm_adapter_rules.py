"""What every adapter owes the model layer, seen from there: through the service and over HTTP."""

import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from types import FrameType

import anyio
import pytest
from typing_extensions import override

import dsh_llm_anthropic
import dsh_llm_openai
from dsh_brand import JsonValue
from dsh_cordis import Context
from dsh_llm import (
    AssistantStreamAccumulator,
    BlockAssembler,
    BlockEnd,
    BlockStart,
    ErrorFinish,
    FinishChunk,
    GenerateOptions,
    LlmService,
    ReasoningBlock,
    RequestMessage,
    StopFinish,
    StreamChunk,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolSchema,
    collect,
    create_system_message,
    create_user_message,
)
from dsh_llm.testing import FakeAdapter, check_stream
from dsh_llm_scripted import (
    MockServer,
    Reply,
    block_delta,
    block_start,
    block_stop,
    delta_event,
    message_closing,
    message_event,
    message_opening,
    stream_reply,
)

PLUGINS = {"openai": dsh_llm_openai, "anthropic": dsh_llm_anthropic}


@pytest.fixture
async def ctx() -> AsyncIterator[Context]:
    async with Context() as root:
        yield root


async def routed(ctx: Context, kind: str, server: MockServer, **profile: JsonValue) -> LlmService:
    """The service with one route `x` to the server."""
    await ctx.plugin(LlmService)
    settings = {"base_url": server.base_url, "anonymous": True, **profile}
    ctx.plugin(PLUGINS[kind], {"providers": {"x": settings}})
    await ctx.settled()
    llm = ctx.get(LlmService)
    assert llm is not None
    return llm


def asking(*messages: RequestMessage, **fields: object) -> GenerateOptions:
    given = messages or (create_user_message("hi"),)
    return GenerateOptions(provider="x", model="m", messages=given, **fields)  # type: ignore[arg-type]  # fields by name


PARSED = {"path": "é.txt", "lines": [1, 2], "deep": {"a": None}}
COMPACT = '{"path":"é.txt","lines":[1,2],"deep":{"a":null}}'
PARSED_REPLIES: Mapping[str, Reply] = {
    "openai": stream_reply(
        [
            delta_event(
                {
                    "tool_calls": [
                        {"index": 0, "id": "c", "function": {"name": "read", "arguments": PARSED}}
                    ]
                }
            ),
            delta_event({}, "tool_calls"),
            b"data: [DONE]\n\n",
        ]
    ),
    "anthropic": stream_reply(
        [
            message_opening(),
            block_start(0, {"type": "tool_use", "id": "c", "name": "read", "input": PARSED}),
            block_stop(0),
            *message_closing("tool_use"),
        ]
    ),
}


@pytest.mark.parametrize("kind", list(PLUGINS))
async def test_L38_parsed_arguments_are_written_back_as_compact_json(
    ctx: Context, kind: str
) -> None:
    async with MockServer([PARSED_REPLIES[kind]]) as server:
        llm = await routed(ctx, kind, server)
        with anyio.fail_after(5):
            answer = await collect(llm.stream(asking()))
    assert [call.arguments for call in answer.tool_calls] == [COMPACT]


BAD_TOOL = ToolSchema("no such name!", "d", {"type": "object"})
THINKING: Mapping[str, JsonValue] = {"efforts": {"high": {"budget_tokens": 2048}}}


@pytest.mark.parametrize(
    ("kind", "profile", "fields"),
    [
        pytest.param("openai", {}, {"tools": [BAD_TOOL]}, id="openai: name of a tool"),
        pytest.param("anthropic", {}, {"tools": [BAD_TOOL]}, id="anthropic: name of a tool"),
        pytest.param("anthropic", {}, {"stop": [" "]}, id="anthropic: blank stop"),
        pytest.param(
            "anthropic",
            THINKING,
            {"reasoning_effort": "high", "temperature": 0.5},
            id="anthropic: temperature with thinking",
        ),
        pytest.param(
            "anthropic",
            THINKING,
            {"reasoning_effort": "high", "max_tokens": 1000},
            id="anthropic: no room for thinking",
        ),
    ],
)
async def test_L40_what_a_provider_cannot_honour_is_refused_before_any_io(
    ctx: Context, kind: str, profile: Mapping[str, JsonValue], fields: Mapping[str, object]
) -> None:
    async with MockServer([]) as server:
        llm = await routed(ctx, kind, server, **profile)
        with anyio.fail_after(5):
            chunks = [chunk async for chunk in llm.stream(asking(**fields))]
        assert server.requests == []
    [finish] = chunks
    assert isinstance(finish, FinishChunk)
    assert isinstance(finish.reason, ErrorFinish)
    assert finish.reason.failure.code == "UNSUPPORTED_OPTION"


@pytest.mark.parametrize(
    ("in_history", "expected"),
    [
        pytest.param(
            False,
            [("system", "be exact"), ("user", "onetwo"), ("user", "three")],
            id="a leading prompt only",
        ),
        pytest.param(
            True,
            [("system", "be brief"), ("user", "onetwo"), ("system", "be exact"), ("user", "three")],
            id="in history",
        ),
    ],
)
async def test_L114_one_leading_system_message_holds_the_prompt(
    ctx: Context, in_history: bool, expected: list[tuple[str, str]]
) -> None:
    history = [
        create_system_message("be brief"),
        create_user_message([TextBlock("one"), TextBlock("two")]),
        create_system_message("be exact"),
        create_system_message(""),
        create_user_message("three"),
    ]
    profile: dict[str, JsonValue] = (
        {"models": {"m": {"system_prompt_update": "in-history"}}} if in_history else {}
    )
    async with MockServer(["success", "success"]) as server:
        llm = await routed(ctx, "openai", server, **profile)
        with anyio.fail_after(5):
            await collect(llm.stream(asking(*history)))
            await collect(llm.stream(asking(create_system_message(""), create_user_message("a"))))
        first, second = [record.body for record in server.requests]
    assert _pairs(first) == expected
    assert _pairs(second) == [("user", "a")]


def _pairs(body: Mapping[str, object]) -> list[tuple[str, str]]:
    messages = body["messages"]
    assert isinstance(messages, list)
    return [(message["role"], message["content"]) for message in messages]


async def test_L147_blocks_end_when_they_stop_or_in_order_at_the_end(ctx: Context) -> None:
    events = [
        message_opening(),
        block_start(0, {"type": "redacted_thinking", "data": "sealed"}),
        block_stop(0),
        block_start(1, {"type": "text", "text": ""}),
        block_delta(1, "text_delta", text="a"),
        block_start(2, {"type": "tool_use", "id": "c", "name": "ls", "input": {}}),
        block_start(3, {"type": "thinking", "thinking": ""}),
        block_delta(3, "thinking_delta", thinking="hm"),
        block_stop(3),
        message_event("message_delta", delta={"stop_reason": "tool_use"}, usage={}),
        message_event("message_stop"),
    ]
    async with MockServer([stream_reply(events)]) as server:
        llm = await routed(ctx, "anthropic", server)
        with anyio.fail_after(5):
            chunks = [chunk async for chunk in llm.stream(asking())]
    check_stream(chunks)
    ended = [(chunk.index, chunk.block) for chunk in chunks if isinstance(chunk, BlockEnd)]
    assert ended == [
        (0, ReasoningBlock("")),
        (3, ReasoningBlock("hm")),
        (1, TextBlock("a")),
        (2, ToolCallBlock("c", "ls", "{}")),  # type: ignore[arg-type]  # an id is a string
    ]


class Talkative(FakeAdapter):
    """Streams one block of many fragments, and never waits."""

    def __init__(self, deltas: int) -> None:
        super().__init__()
        self.deltas = deltas

    @override
    async def stream(self, options: GenerateOptions) -> AsyncIterator[StreamChunk]:  # type: ignore[override]  # an iterator will do
        yield BlockStart(0, "text")
        for _ in range(self.deltas):
            yield TextDelta(0, "w ")
        yield BlockEnd(0, TextBlock("w " * self.deltas))
        yield FinishChunk(StopFinish())


async def _called(llm: LlmService) -> Counter[str]:
    """How often functions of each module are called while a stream is read, packed and folded."""
    called: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called[frame.f_globals.get("__name__", "?")] += 1

    assembler, recorder = BlockAssembler(), AssistantStreamAccumulator()
    stream = llm.stream(asking())
    sys.setprofile(profile)
    try:
        time = 0
        async for chunk in stream:
            time += 1
            assembler.push(recorder.push(time, chunk).chunk)
        recorder.snapshot()
        assembler.blocks()
    finally:
        sys.setprofile(None)
    return called


async def test_L159_a_chunk_costs_a_few_calls_and_no_machinery(ctx: Context) -> None:
    await ctx.plugin(LlmService)
    llm = ctx.get(LlmService)
    assert llm is not None
    adapter = Talkative(1000)
    llm.register_adapter(["x"], adapter)
    few = await _called(llm)
    adapter.deltas = 3000
    many = await _called(llm)
    per_chunk = {module: (many[module] - few[module]) / 2000 for module in many}
    # Two streams, the adapter's generator, this loop, packing and folding; no task, timer or log.
    assert sum(per_chunk.values()) <= 6
    assert {module for module, calls in per_chunk.items() if calls > 0.01} <= {
        __name__,
        "dsh_llm.streaming",
        "dsh_llm.accumulator",
        "dsh_llm.assembler",
        "dsh_llm.chunks",
    }


def test_L159_a_million_fragments_are_joined_once() -> None:
    assembler, recorder = BlockAssembler(), AssistantStreamAccumulator()
    delta = TextDelta(0, "ab")
    for time in range(1_000_000):
        recorder.push(time, delta)
        assembler.push(delta)
    [record] = recorder.snapshot()
    assert len(assembler.blocks()[0].text) == 2_000_000  # type: ignore[attr-defined]  # a text block
    assert len(record.texts) == 1_000_000  # type: ignore[union-attr]  # a run of text
