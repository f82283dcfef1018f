"""Discovery of models and later configurations, for both adapters (L42, L44, L153, L154)."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest

import dsh_llm_anthropic
import dsh_llm_openai
from dsh_brand import Secret
from dsh_cordis import Context
from dsh_llm import (
    AbortController,
    GenerateOptions,
    LlmAdaptersUpdated,
    LlmDiscoveredModel,
    LlmError,
    LlmModelDiscoveryRequest,
    LlmService,
    TextDelta,
    create_user_message,
)
from dsh_llm.testing import forbid_real_requests
from dsh_llm_anthropic import AnthropicAdapter
from dsh_llm_http import HttpRequest
from dsh_llm_http.engine import Guard
from dsh_llm_openai import OpenAiAdapter
from dsh_llm_scripted import MockServer, Speech

pytest_plugins = ["dsh_cordis.testing"]

Answer = Callable[[HttpRequest], httpx.Response]


class CannedReply:
    """A whole answer, in pieces."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self._content = response.content

    async def read(self) -> bytes:
        piece, self._content = self._content[:100_000], self._content[100_000:]
        return piece

    async def aclose(self, *, drain: bool) -> None:
        pass


class CannedEngine:
    """Answers requests by a function, and keeps them."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.requests: list[HttpRequest] = []

    async def open(self, request: HttpRequest, guard: Guard) -> CannedReply:
        self.requests.append(request)
        return CannedReply(self._answer(request))

    async def aclose(self) -> None:
        pass


def answering(status: int, content: object) -> CannedEngine:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return CannedEngine(lambda request: httpx.Response(status, content=data))


async def lookup(reference: str) -> str | None:
    return {"KEY": "stored"}.get(reference)


def adapter_on(engine: CannedEngine, key: str = "KEY") -> OpenAiAdapter:
    profile = {"base_url": "http://127.0.0.1:1/v1", "api_key_env": key}
    return OpenAiAdapter({"x": profile}, credentials=lookup, engine=engine)


async def test_L154_the_list_is_read_tolerantly() -> None:
    engine = answering(
        200,
        {
            "data": [
                {"id": "a", "display_name": "A", "max_model_len": 9, "max_tokens": 0},
                {"id": "b", "name": "", "context_length": True, "max_output_tokens": 7},
                {"id": 5},
                "c",
            ]
        },
    )
    found = await adapter_on(engine).discover(LlmModelDiscoveryRequest(provider="x"))
    assert found == [
        LlmDiscoveredModel("a", "A", 9),
        LlmDiscoveredModel("b", None, None, 7),
    ]
    sent = engine.requests[0]
    assert (sent.url, sent.body, sent.key) == (
        "http://127.0.0.1:1/v1/models",
        None,
        Secret("stored"),
    )
    assert sent.headers["user-agent"].startswith("dsh-llm-openai/")


async def test_L154_the_drafts_key_comes_first_then_the_stored_one_then_none() -> None:
    engine = answering(200, {"data": []})
    draft = LlmModelDiscoveryRequest(
        provider="x", base_url="http://127.0.0.1:2", api_key=Secret("d")
    )
    await adapter_on(engine).discover(draft)
    await adapter_on(engine, "NO_KEY").discover(LlmModelDiscoveryRequest(provider="x"))
    await adapter_on(engine).discover(LlmModelDiscoveryRequest(base_url="http://127.0.0.1:3/"))
    assert [(each.url, each.key) for each in engine.requests] == [
        ("http://127.0.0.1:2/models", Secret("d")),
        ("http://127.0.0.1:1/v1/models", None),
        ("http://127.0.0.1:3/models", None),
    ]


async def test_L154_messages_services_are_asked_in_their_protocol() -> None:
    engine = answering(200, {"data": [{"id": "m"}]})
    adapter = AnthropicAdapter({}, engine=engine)
    draft = LlmModelDiscoveryRequest(base_url="http://127.0.0.1:1", api_key=Secret("d"))
    assert [model.id for model in await adapter.discover(draft)] == ["m"]
    sent = engine.requests[0]
    assert sent.url == "http://127.0.0.1:1/v1/models"
    assert sent.headers_with_key()["x-api-key"] == "d"
    assert sent.headers["anthropic-version"] == "2023-06-01"


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (answering(401, {"error": {"message": "bad stored"}}), r"bad \[redacted\].*check the key"),
        (answering(404, b"nothing"), "HTTP 404"),
        (answering(200, b"<html>"), "not JSON"),
        (answering(200, {"data": {}}), "no list"),
        (answering(200, []), "no list"),
        (answering(200, b" " * (4 * 1024 * 1024 + 1)), "larger than"),
    ],
)
async def test_L154_what_is_no_list_is_a_failed_discovery(engine: CannedEngine, words: str) -> None:
    with pytest.raises(LlmError, match=words) as caught:
        await adapter_on(engine).discover(LlmModelDiscoveryRequest(provider="x"))
    assert caught.value.code == "DISCOVERY_FAILED"
    assert "stored" not in caught.value.message


async def test_L154_an_unreachable_endpoint_and_a_bad_url() -> None:
    async with MockServer("success") as server:
        gone = server.base_url
    adapter = OpenAiAdapter({})
    for url in (gone, "ftp://h"):
        with pytest.raises(LlmError) as caught:
            await adapter.discover(LlmModelDiscoveryRequest(base_url=url))
        assert caught.value.code == "DISCOVERY_FAILED"
    with pytest.raises(LlmError) as caught:
        await adapter.discover(LlmModelDiscoveryRequest(provider="unknown"))
    assert caught.value.code == "NO_ADAPTER"
    await adapter.aclose()


async def test_L154_cancellation_is_aborted() -> None:
    controller = AbortController()
    controller.abort()
    engine = answering(200, {"data": []})
    request = LlmModelDiscoveryRequest(provider="x", signal=controller.signal)
    with pytest.raises(LlmError) as caught:
        await adapter_on(engine).discover(request)
    assert caught.value.code == "ABORTED"
    assert engine.requests == []


async def test_no_real_request_leaves_where_a_test_forbids_it() -> None:
    adapter = OpenAiAdapter({"x": {"base_url": "https://api.invalid"}})
    options = GenerateOptions(provider="x", model="m", messages=[create_user_message("hi")])
    with forbid_real_requests():
        with pytest.raises(LlmError) as caught:
            await anext(adapter.stream(options))
        assert caught.value.code == "REAL_REQUEST_FORBIDDEN"
        with pytest.raises(LlmError, match="leave this machine"):
            await adapter.discover(LlmModelDiscoveryRequest(provider="x"))


@asynccontextmanager
async def running(ctx: Context) -> AsyncIterator[tuple[LlmService, list[object]]]:
    ctx.plugin(LlmService)
    await ctx.settled()
    llm = ctx.get(LlmService)
    assert llm is not None
    changes: list[object] = []
    ctx.on(LlmAdaptersUpdated, changes.append)
    with anyio.fail_after(5):
        yield llm, changes


async def said(llm: LlmService, provider: str) -> str:
    options = GenerateOptions(provider=provider, model="m", messages=[create_user_message("hi")])
    chunks = [chunk async for chunk in llm.stream(options)]
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))


@pytest.mark.parametrize("plugin", [dsh_llm_openai, dsh_llm_anthropic])
async def test_L52_L153_a_later_configuration_is_taken_over_in_place(
    ctx: Context, plugin: Any
) -> None:
    async with (
        running(ctx) as (llm, changes),
        MockServer([Speech(text=text) for text in "abc"]) as server,
    ):
        profile = {"base_url": server.base_url}
        fiber = ctx.plugin(plugin, {"providers": {"x": profile, "y": profile}})
        await ctx.settled()
        changes.clear()
        assert await said(llm, "x") == "a"

        # Facts and key order are no change of the registration.
        await fiber.update({"providers": {"y": profile, "x": {**profile, "max_tokens": 9}}})
        assert changes == []
        assert (await llm.resolve_model_info("x", "m")).default_max_tokens == 9
        assert await said(llm, "x") == "b"

        await fiber.update({"providers": {"z": profile}})
        assert len(changes) == 2  # of the routes, then of the directory (L52)
        assert [info.id for info in llm.list_providers()] == ["z"]

        await fiber.update({"providers": {"z": {**profile, "retry": {"mode": "always"}}}})
        assert len(changes) == 3
        assert await said(llm, "z") == "c"

        await fiber.update({"providers": {}})
        assert llm.list_providers() == []
        await fiber.dispose()


@pytest.mark.parametrize("plugin", [dsh_llm_openai, dsh_llm_anthropic])
async def test_L153_an_invalid_later_snapshot_keeps_the_last_good_one(
    ctx: Context, plugin: Any
) -> None:
    async with running(ctx) as (llm, changes), MockServer([Speech(text="a")]) as server:
        profile = {"base_url": server.base_url}
        llm.register_adapter(["taken"], OpenAiAdapter({"taken": profile}))
        fiber = ctx.plugin(plugin, {"providers": {"x": profile}})
        await ctx.settled()
        changes.clear()
        wrong: list[dict[str, object]] = [{"x": {"base_url": "no"}}, {"x": {}}, {"taken": profile}]
        for providers in wrong:
            with pytest.raises(Exception):  # noqa: B017, PT011  # of configuration, profile, service
                await fiber.update({"providers": providers})
            assert [info.id for info in llm.list_providers()] == ["taken", "x"]
        assert changes == []
        assert await said(llm, "x") == "a"
        await fiber.dispose()


async def test_L153_routes_may_come_later(ctx: Context) -> None:
    async with running(ctx) as (llm, _):
        fiber = ctx.plugin(dsh_llm_openai)
        await ctx.settled()
        await fiber.update({"providers": {"ollama": {}}})
        assert [info.id for info in llm.list_providers()] == ["ollama"]
        await fiber.dispose()
        assert llm.list_providers() == []


async def test_L53_the_plugin_offers_its_discovery(ctx: Context) -> None:
    async with running(ctx) as (llm, _):
        ctx.plugin(dsh_llm_openai)
        ctx.plugin(dsh_llm_anthropic)
        await ctx.settled()
        for namespace in ("llm-openai", "llm-anthropic"):
            request = LlmModelDiscoveryRequest(base_url="ftp://h")
            with pytest.raises(LlmError) as caught:
                await llm.discover_models(namespace, request)
            assert caught.value.code == "DISCOVERY_FAILED"
