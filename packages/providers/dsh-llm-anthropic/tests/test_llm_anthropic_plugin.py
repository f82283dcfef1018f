"""Profiles, headers and the package as a plugin (L42, L90-L104, L136, L143, L153, L179)."""

import subprocess
import sys
import traceback
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from pydantic import ValidationError

import dsh_llm_anthropic
from dsh_cordis import Context
from dsh_llm import (
    AbortController,
    BlockAssembler,
    ErrorFinish,
    FinishChunk,
    GenerateOptions,
    LlmError,
    LlmModelContext,
    LlmService,
    ModelSource,
    StreamChunk,
    create_user_message,
)
from dsh_llm_anthropic import AnthropicAdapter, Config, Profile, ProfileError
from dsh_llm_scripted import MockServer, message_text_reply, raw_reply, stall

pytest_plugins = ["dsh_cordis.testing"]


def options(*extra: Any, **fields: Any) -> GenerateOptions:  # any messages and options
    messages = [create_user_message("hi"), *extra]
    return GenerateOptions(provider="x", model="m", messages=messages, **fields)


async def collect(adapter: AnthropicAdapter, given: GenerateOptions) -> list[StreamChunk]:
    with anyio.fail_after(5):
        async with aclosing(adapter.stream(given)) as stream:
            return [chunk async for chunk in stream]


async def lookup(reference: str) -> str | None:
    return {"KEY": "sk-secret\n"}.get(reference)


@pytest.mark.parametrize(
    ("base", "endpoint"),
    [
        ("https://h", "https://h/v1/messages"),
        ("https://h/v1/", "https://h/v1/messages"),
        ("https://h/anthropic", "https://h/anthropic/v1/messages"),
    ],
)
def test_L136_the_endpoint(base: str, endpoint: str) -> None:
    adapter = AnthropicAdapter({"x": Profile(base_url=base)})
    assert adapter.endpoint(adapter.route("x")) == endpoint


@pytest.mark.parametrize("header", ["x-api-key", "authorization"])
async def test_L91_L136_headers(header: str) -> None:
    async with MockServer(message_text_reply("a"), api_key="sk-secret") as server:
        profile = {
            "base_url": server.base_url,
            "api_key_env": "KEY",
            "key_header": header,
            "headers": {"Anthropic-Beta": "b1"},
        }
        adapter = AnthropicAdapter({"x": profile}, credentials=lookup)
        await collect(adapter, options())
        await adapter.aclose()
        sent = server.requests[0]
    assert sent.path == "/v1/messages"
    assert sent.headers[header] == ("sk-secret" if header == "x-api-key" else "Bearer sk-secret")
    assert len({"x-api-key", "authorization"} & set(sent.headers)) == 1
    assert sent.headers["anthropic-version"] == "2023-06-01"
    assert sent.headers["anthropic-beta"] == "b1"
    assert sent.headers["user-agent"].startswith("dsh-llm-anthropic/")


@pytest.mark.parametrize("name", ["X-Api-Key", "anthropic-version", "Authorization"])
def test_L91_headers_of_the_adapter_cannot_be_replaced(name: str) -> None:
    with pytest.raises(ValidationError, match="remove it"):
        Profile(headers={name: "x"})


async def test_L102_L104_the_key_is_in_no_failure() -> None:
    quoted = [
        raw_reply([b'{"error":{"message":"bad sk-secret"}}'], status=401),
        raw_reply([b"<p>sk-secret"]),
    ]
    async with MockServer(quoted) as server:
        profile = {"base_url": server.base_url, "api_key_env": "KEY"}
        adapter = AnthropicAdapter({"x": profile}, credentials=lookup)
        for code in ("AUTH", "MALFORMED_RESPONSE"):
            with pytest.raises(LlmError) as caught:
                await collect(adapter, options())
            assert caught.value.code == code
            assert "sk-secret" not in "".join(traceback.format_exception(caught.value))
        await adapter.aclose()


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        ("connection_reset", "TRANSPORT"),
        ("stream_disconnect", "TRANSPORT"),
        ("partial_disconnect", "TRANSPORT"),
        ("stall", "TIMEOUT"),
        ("empty", "EMPTY_RESPONSE"),
        ("empty_body", "STREAM_CLOSED"),
        ("stream_eof", "STREAM_CLOSED"),
        ("partial_eof", "STREAM_CLOSED"),
        ("malformed_json", "MALFORMED_RESPONSE"),
        ("malformed_event", "MALFORMED_RESPONSE"),
        ("wrong_content_type", "MALFORMED_RESPONSE"),
        ("rate_limit", "RATE_LIMIT"),
        ("server_error", "SERVER"),
        ("service_unavailable", "SERVER"),
        ("auth_error", "AUTH"),
        ("invalid_request", "INVALID_REQUEST"),
        ("context_overflow", "CONTEXT_WINDOW_EXCEEDED"),
        ("quota_exceeded", "QUOTA"),
    ],
)
async def test_L157_every_fault_of_a_provider_has_its_code(behaviour: str, code: str) -> None:
    async with MockServer([behaviour]) as server:
        profile = {"base_url": server.base_url, "stream_idle_timeout_ms": 80}
        adapter = AnthropicAdapter({"x": profile})
        found = await _failure_code(adapter)
        await adapter.aclose()
    assert found == code


async def _failure_code(adapter: AnthropicAdapter) -> str:
    try:
        chunks = await collect(adapter, options())
    except LlmError as error:
        return error.code
    last = chunks[-1]
    assert isinstance(last, FinishChunk)
    assert isinstance(last.reason, ErrorFinish)
    return last.reason.failure.code


async def test_L93_an_abort_interrupts_the_wait() -> None:
    controller = AbortController()
    async with MockServer(stall([])) as server, anyio.create_task_group() as tasks:
        adapter = AnthropicAdapter({"x": {"base_url": server.base_url}})

        async def abort() -> None:
            await anyio.wait_all_tasks_blocked()
            controller.abort()

        tasks.start_soon(abort)
        with pytest.raises(LlmError) as caught:
            await collect(adapter, options(signal=controller.signal))
        assert caught.value.code == "ABORTED"
        assert await server.requests[0].ended() == "client_closed"
        await adapter.aclose()


async def test_L137_L153_the_plugin_serves_its_routes_and_logs_the_limit(ctx: Context) -> None:
    ctx.plugin(LlmService)
    await ctx.settled()
    llm = ctx.get(LlmService)
    assert llm is not None
    async with MockServer([message_text_reply("a", reasoning="b")] * 2, strict=True) as server:
        plugin = ctx.plugin(
            dsh_llm_anthropic, {"providers": {"x": {"baseURL": server.base_url}, "anthropic": {}}}
        )
        await ctx.settled()
        assert [info.id for info in llm.list_providers()] == ["x", "anthropic"]
        info = await llm.resolve_model_info("x", "m")
        assert info.default_max_tokens == 8192
        assembler = BlockAssembler()
        async for chunk in llm.stream(options()):
            assembler.push(chunk)
        # The replay state of the first answer goes back with the second request.
        answer = assembler.message(ModelSource("x", "m", assembler.replay_state))
        async for _ in llm.stream(options(answer, create_user_message("more"))):
            pass
        thought = server.requests[1].body["messages"][1]["content"][0]  # type: ignore[index]  # JSON
        assert thought == {"type": "thinking", "thinking": "b", "signature": "c2lnbmVk"}
        await plugin.dispose()
        assert llm.list_providers() == []


async def test_L179_the_deepseek_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEEPSEEK_BASE_URL", raising=False)
    adapter = AnthropicAdapter({"deepseek-official": {}})
    route = adapter.route("deepseek-official")
    assert adapter.endpoint(route) == "https://api.deepseek.com/anthropic/v1/messages"
    assert (route.api_key_env, route.key_header) == ("DEEPSEEK_API_KEY", "x-api-key")
    assert route.unsigned_thinking == "send"
    info = await adapter.resolve_model("deepseek-official", "deepseek-chat")
    assert info.context == LlmModelContext(1_000_000)
    assert info.default_max_tokens == 256_000
    assert info.system_prompt_update == "in-history"
    assert info.reasoning is not None
    assert [effort.id for effort in info.reasoning.efforts] == ["off", "low", "high", "max"]
    assert info.reasoning.default_effort == "high"
    monkeypatch.setenv("DEEPSEEK_BASE_URL", "http://127.0.0.1:9")
    moved = AnthropicAdapter({"deepseek": {}}).route("deepseek")
    assert moved.base_url == "http://127.0.0.1:9/anthropic"


async def test_L137_declared_models_have_their_facts() -> None:
    profile = {
        "base_url": "http://h",
        "efforts": {"low": {"budgetTokens": 2048}, "high": {"level": "high"}},
        "models": {"a": {"max_tokens": 9, "efforts": ["low"], "default_effort": "low"}, "b": {}},
    }
    adapter = AnthropicAdapter({"x": profile})
    assert [info.id for info in await adapter.list_models("x")] == ["a", "b"]
    found = await adapter.resolve_model("x", "a")
    assert found.default_max_tokens == 9
    assert found.reasoning is not None
    assert [effort.id for effort in found.reasoning.efforts] == ["low"]
    other = await adapter.resolve_model("x", "b")
    assert other.reasoning is not None
    assert [effort.id for effort in other.reasoning.efforts] == ["off", "low", "high"]


@pytest.mark.parametrize(
    "profile",
    [
        {"efforts": {"low": {}}},
        {"efforts": {"low": {"budget_tokens": 1023}}},
        {"efforts": {"low": {"budget_tokens": 2000, "level": "x"}}},
        {"cache_retention": "forever"},
        {"key_header": "cookie"},
        {"api_key": "sk"},
    ],
)
def test_L118_L143_profiles_that_cannot_be_are_refused(profile: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Config.model_validate({"providers": {"x": {"base_url": "http://h", **profile}}})


def test_models_name_declared_efforts() -> None:
    with pytest.raises(ProfileError, match="'max'"):
        AnthropicAdapter({"anthropic": {"models": {"a": {"efforts": ["max"]}}}})
    with pytest.raises(ProfileError, match="base_url"):
        AnthropicAdapter({"x": {}})


def test_importing_the_package_does_not_load_the_http_library() -> None:
    code = "import sys, dsh_llm_anthropic; print('httpx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
