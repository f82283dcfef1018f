"""Our side: the whole spine."""

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import dsh_llm_openai
import dsh_session_jsonl
from dsh_agent import StreamChunkFrame
from dsh_brand import JsonValue
from dsh_llm import (
    AbortSignal,
    BlockEnd,
    BlockStart,
    CallId,
    FinishChunk,
    GenerateOptions,
    LlmModelInfo,
    LlmProviderInfo,
    LlmResolvedModelInfo,
    StopFinish,
    StreamChunk,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallsFinish,
)
from dsh_spine import SpineContext, TurnEvents, spine
from dsh_tools import ToolDefinition, ToolOutput, ToolRunContext

from .script import ARGUMENTS, DELTAS, PARAMETERS, New, Script, Source, Talk, add


class Scripted:
    """The script as an adapter."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def stream(self, options: GenerateOptions) -> AsyncIterator[StreamChunk]:
        """One answer."""
        if (call := self._script.call()) is not None:
            yield BlockStart(0, "tool-call")
            yield BlockEnd(0, ToolCallBlock(id=CallId(call), name="add", arguments=ARGUMENTS))
            yield FinishChunk(ToolCallsFinish())
            return
        yield BlockStart(0, "text")
        for word in DELTAS:
            yield TextDelta(0, word)
        yield BlockEnd(0, TextBlock("".join(DELTAS)))
        yield FinishChunk(StopFinish())

    async def list_models(
        self, provider: str, signal: AbortSignal | None = None
    ) -> list[LlmModelInfo]:
        """None."""
        return []

    async def resolve_model(
        self, provider: str, model: str, signal: AbortSignal | None = None
    ) -> LlmResolvedModelInfo:
        """Any."""
        return LlmResolvedModelInfo(provider=provider, id=model, name=model)

    def provider_info(self, provider: str) -> LlmProviderInfo:
        """The route."""
        return LlmProviderInfo(id=provider, name=provider)

    def provider_retry_policy(self, provider: str) -> None:
        """None."""


async def execute(arguments: JsonValue, run: ToolRunContext) -> str:
    """The tool as a body."""
    assert isinstance(arguments, dict)
    number = arguments["n"]
    assert isinstance(number, int)
    return add(number)


TOOL = ToolDefinition(
    name="add",
    description="Add one to a number.",
    parameters=PARAMETERS,
    output=ToolOutput(schema={"type": "string"}, render=lambda arguments, value: value),
    execute=execute,
)


@asynccontextmanager
async def in_memory(source: Source, folder: str | None = None) -> AsyncIterator[New]:
    """The whole spine; with a folder, over a store of JSON lines."""
    async with SpineContext() as ctx:
        _ = ctx.plugin(spine)
        if folder is not None:
            _ = ctx.plugin(dsh_session_jsonl, {"root": folder, "compression": "none"})
        if isinstance(source, str):
            profile = {"preset": "generic", "base_url": source, "anonymous": True}
            _ = ctx.plugin(dsh_llm_openai, {"providers": {"mock": profile}})
        await ctx.settled()
        if isinstance(source, Script):
            ctx.llm.register_adapter(["mock"], Scripted(source))
        ctx.tools.register(TOOL)

        async def new() -> Talk:
            agent = (await ctx.agents.create(provider="mock", model="m")).agent

            async def say(text: str) -> str:
                async with TurnEvents(agent, text) as events:
                    parts = [
                        event.chunk.text
                        async for event in events
                        if isinstance(event, StreamChunkFrame)
                        and isinstance(event.chunk, TextDelta)
                    ]
                await agent.when_idle()
                return "".join(parts)

            return say

        yield new


@asynccontextmanager
async def on_disk(source: Source) -> AsyncIterator[New]:
    """The same, each event on the disk."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        async with in_memory(source, folder) as new:
            yield new
