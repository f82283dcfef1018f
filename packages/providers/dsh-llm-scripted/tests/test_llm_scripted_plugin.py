"""The scripted model behind `ctx.llm`."""

from collections.abc import Callable

import anyio
import pytest

import dsh_llm_scripted
from dsh_cordis import Context
from dsh_llm import (
    BlockAssembler,
    ErrorFinish,
    GenerateOptions,
    LlmService,
    TextBlock,
    create_user_message,
)
from dsh_llm_scripted import ScriptedAdapter, text_chunks

pytest_plugins = ["dsh_cordis.testing"]


async def answer(ctx: Context, provider: str) -> BlockAssembler:
    llm = ctx.get(LlmService)
    assert llm is not None
    assembler = BlockAssembler()
    options = GenerateOptions(provider=provider, model="m", messages=[create_user_message("hi")])
    with anyio.fail_after(5):
        async for chunk in llm.stream(options):
            assembler.push(chunk)
    return assembler


def adapter() -> object:
    return ScriptedAdapter([text_chunks("hello")], routes=["demo"])


def settings() -> object:
    return {"script": [{"kind": "text", "text": "hello"}], "providers": ["demo"]}


@pytest.mark.parametrize("config", [adapter, settings])
async def test_a_script_answers_until_it_is_exhausted(
    ctx: Context, config: Callable[[], object]
) -> None:
    ctx.plugin(LlmService)
    plugin = ctx.plugin(dsh_llm_scripted, config())
    await ctx.settled()
    assert (await answer(ctx, "demo")).blocks() == (TextBlock("hello"),)
    finish = (await answer(ctx, "demo")).finish
    assert isinstance(finish, ErrorFinish)
    assert finish.failure.code == "MOCK_SCRIPT_EXHAUSTED"
    await plugin.dispose()
    llm = ctx.get(LlmService)
    assert llm is not None
    assert llm.list_providers() == []
