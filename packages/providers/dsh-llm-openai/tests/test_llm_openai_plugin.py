"""The package as a plugin and as a client of its own."""

import subprocess
import sys

import anyio
import anyio.lowlevel
import pytest

import dsh_llm_openai
from dsh_cordis import ConfigError, Context
from dsh_llm import (
    GenerateOptions,
    LlmCallConfig,
    LlmError,
    LlmService,
    StreamChunk,
    TextDelta,
    create_user_message,
)
from dsh_llm_openai import OpenAiAdapter
from dsh_llm_scripted import (
    MockServer,
    Part,
    closing,
    delta_event,
    opening,
    raw_reply,
    stall,
    text_reply,
)

pytest_plugins = ["dsh_cordis.testing"]


def options(provider: str = "x", max_tokens: int | None = None) -> GenerateOptions:
    return GenerateOptions(
        provider=provider,
        model="m",
        messages=[create_user_message("hi")],
        max_tokens=max_tokens,
    )


async def service(ctx: Context) -> LlmService:
    ctx.plugin(LlmService)
    await ctx.settled()
    found = ctx.get(LlmService)
    assert found is not None
    return found


def texts(chunks: list[StreamChunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))


async def test_L153_all_routes_are_registered_together_and_go_with_the_plugin(ctx: Context) -> None:
    llm = await service(ctx)
    async with MockServer(text_reply("hello")) as server:
        profile = {"base_url": server.base_url, "name": "Mock", "max_tokens": 9}
        plugin = ctx.plugin(dsh_llm_openai, {"providers": {"x": profile, "deepseek": {}}})
        await ctx.settled()
        assert [(p.id, p.name) for p in llm.list_providers()] == [
            ("x", "Mock"),
            ("deepseek", "DeepSeek"),
        ]
        with anyio.fail_after(5):
            assert texts([chunk async for chunk in llm.stream(options())]) == "hello"
        assert server.requests[0].body["max_tokens"] == 9
        await plugin.dispose()
        assert llm.list_providers() == []


async def test_L51_the_directory_says_where_each_route_is_set_up(ctx: Context) -> None:
    llm = await service(ctx)

    def listed() -> list[tuple[str, str, str, tuple[str, ...]]]:
        return [
            (entry.provider, entry.display_name, entry.settings_ns, entry.settings_path)
            for entry in llm.list_configurable_providers()
        ]

    here = ("x", "Here", "llm-openai", ("providers", "x"))
    llm.register_adapter(["taken"], OpenAiAdapter({"taken": {"preset": "ollama"}}))
    with anyio.fail_after(5):
        plugin = ctx.plugin(dsh_llm_openai, {"providers": {}})
        await plugin.active()
        assert listed() == []
        await plugin.update({"providers": {"x": {"preset": "ollama", "name": "Here"}}})
        assert listed() == [here]
        with pytest.raises(LlmError):
            await plugin.update({"providers": {"taken": {"preset": "ollama"}}})
        assert listed() == [here]
        assert {provider.id for provider in llm.list_providers()} == {"taken", "x"}
        await plugin.update({"providers": {"x": {"preset": "ollama"}, "deepseek": {}}})
        assert [name for _, name, *_ in listed()] == ["Ollama", "DeepSeek"]
        await plugin.dispose()
    assert listed() == []


async def test_L153_no_provider_registers_nothing(ctx: Context) -> None:
    llm = await service(ctx)
    ctx.plugin(dsh_llm_openai)
    await ctx.settled()
    assert llm.list_providers() == []


async def test_L153_a_route_of_another_adapter_fails_the_load(ctx: Context) -> None:
    llm = await service(ctx)
    llm.register_adapter(["x"], OpenAiAdapter({"x": {"base_url": "http://127.0.0.1:1"}}))
    plugin = ctx.plugin(
        dsh_llm_openai, {"providers": {"y": {"preset": "ollama"}, "x": {"preset": "ollama"}}}
    )
    with pytest.raises(LlmError) as caught:
        await plugin
    assert caught.value.code == "DUPLICATE_ADAPTER"
    assert [provider.id for provider in llm.list_providers()] == ["x"]
    await plugin.dispose()


async def test_L153_an_invalid_configuration_fails_the_load_without_its_values(
    ctx: Context,
) -> None:
    await service(ctx)
    plugin = ctx.plugin(dsh_llm_openai, {"providers": {"x": {"apiKey": "sk-secret"}}})
    with pytest.raises(ConfigError) as caught:
        await plugin
    assert "apiKey" in str(caught.value)
    assert "sk-secret" not in str(caught.value)
    await plugin.dispose()


async def test_L60_a_prepared_call_outlives_its_route(ctx: Context) -> None:
    llm = await service(ctx)
    async with MockServer(text_reply("late")) as server:
        settings = {"providers": {"x": {"base_url": server.base_url}}}
        plugin = ctx.plugin(dsh_llm_openai, settings)
        await ctx.settled()
        prepared = await llm.prepare_call(LlmCallConfig("x", "m"))
        await plugin.dispose()
        with anyio.fail_after(5):
            assert texts([chunk async for chunk in prepared.stream(options())]) == "late"


async def test_L60_a_running_answer_outlives_its_route() -> None:
    slow = raw_reply([opening(), Part(delta_event({"content": "late"}), 0.05), *closing("stop")])
    async with MockServer(slow) as server:
        adapter = OpenAiAdapter({"x": {"base_url": server.base_url}})
        with anyio.fail_after(5):
            stream = adapter.stream(options())
            async with anyio.create_task_group() as tasks:
                found: list[StreamChunk] = []

                async def read() -> None:
                    found.extend([chunk async for chunk in stream])

                tasks.start_soon(read)
                while not server.requests:
                    await anyio.lowlevel.checkpoint()
                await adapter.aclose()
            assert texts(found) == "late"


@pytest.mark.parametrize("waiting", [False, True])
async def test_cutting_ends_running_answers_once_with_a_failure(waiting: bool) -> None:
    async with MockServer(stall([opening(), delta_event({"content": "a"})])) as server:
        adapter = OpenAiAdapter({"x": {"base_url": server.base_url}})
        stream = adapter.stream(options())
        with anyio.fail_after(5):
            for _ in range(2):
                await anext(stream)
            async with anyio.create_task_group() as tasks:
                if waiting:

                    async def cut() -> None:
                        await anyio.wait_all_tasks_blocked()
                        await adapter.aclose(cut=True)

                    tasks.start_soon(cut)
                else:
                    await adapter.aclose(cut=True)
                with pytest.raises(LlmError) as caught:
                    await anext(stream)
            assert caught.value.code == "TRANSPORT"
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            assert await server.requests[0].ended() == "client_closed"


async def test_an_unknown_route_is_refused_by_name() -> None:
    with pytest.raises(LlmError, match=r"no route 'y'.*x") as caught:
        OpenAiAdapter({"x": {"preset": "ollama"}}).stream(options("y"))
    assert caught.value.code == "NO_ADAPTER"


def test_importing_the_package_does_not_load_the_http_library() -> None:
    code = "import sys, dsh_llm_openai; print('httpx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


async def test_L42_L173_a_prepared_call_keeps_the_configuration_of_its_preparation(
    ctx: Context,
) -> None:
    llm = await service(ctx)
    async with MockServer(text_reply("old")) as old, MockServer(text_reply("new")) as new:
        profiles = {"x": {"base_url": old.base_url}}
        plugin = ctx.plugin(dsh_llm_openai, {"providers": profiles})
        with anyio.fail_after(5):
            await plugin.active()
            config = LlmCallConfig(provider="x", model="m")
            prepared = await llm.prepare_call(config)
            await plugin.update({"providers": {"x": {"base_url": new.base_url}}})
            before = [chunk async for chunk in prepared.stream(options())]
            after = [chunk async for chunk in llm.stream(options())]
    assert (texts(before), texts(after)) == ("old", "new")


def test_L102_profile_headers_do_not_show_in_a_rendering() -> None:
    profile = dsh_llm_openai.Profile(base_url="http://127.0.0.1:9", headers={"x-gate": "hush-1"})
    adapter = OpenAiAdapter({"x": profile})
    assert "hush-1" not in repr(profile)
    assert "hush-1" not in repr(adapter.routes)
    assert "x-gate" in repr(adapter.routes["x"])
