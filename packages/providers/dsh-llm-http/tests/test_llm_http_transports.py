"""Each transport behaves alike (L92-L94, L111, L118, L160)."""

import gc
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from importlib.util import find_spec

import anyio
import pytest
from anyio.lowlevel import checkpoint

from dsh_cordis import Context
from dsh_llm import (
    AbortController,
    AbortSignal,
    GenerateOptions,
    LlmError,
    LlmService,
    TextDelta,
    create_user_message,
)
from dsh_llm_http import Attempt
from dsh_llm_http.transport import HttpxEngine
from dsh_llm_openai import OpenAiAdapter
from dsh_llm_scripted import (
    MockServer,
    Step,
    bytewise,
    closing,
    opening,
    reset,
    stall,
    stream_reply,
    text_events,
    text_reply,
)


@pytest.fixture(params=["default", "fast", "proxies"])
def engine(
    request: pytest.FixtureRequest, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> HttpxEngine:
    if request.param == "fast":
        if find_spec("httpx_aiohttp") is None:
            pytest.skip("the extra `fast` is not installed")
        if anyio_backend != "asyncio":
            pytest.skip("the extra `fast` works on asyncio only")
    if request.param == "proxies":
        # Loopback goes around proxies; the transport for what goes through one is tried here.
        monkeypatch.setattr("dsh_llm_http.transport.is_loopback", lambda url: False)
        monkeypatch.setattr("dsh_llm_http.transport.getproxies", lambda: {"no": "127.0.0.1"})
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return HttpxEngine(fast=request.param == "fast")


@asynccontextmanager
async def served(
    engine: HttpxEngine, *script: Step, **profile: object
) -> AsyncIterator[tuple[MockServer, OpenAiAdapter]]:
    async with MockServer(script) as server:
        adapter = OpenAiAdapter({"x": {"base_url": server.base_url, **profile}}, engine=engine)
        try:
            with anyio.fail_after(5):
                yield server, adapter
        finally:
            await adapter.aclose()


async def said(adapter: OpenAiAdapter, signal: AbortSignal | None = None) -> str:
    options = GenerateOptions(
        provider="x", model="m", messages=[create_user_message("hi")], signal=signal
    )
    async with aclosing(adapter.stream(options)) as stream:
        return "".join([chunk.text async for chunk in stream if isinstance(chunk, TextDelta)])


async def failing(adapter: OpenAiAdapter, signal: AbortSignal | None = None) -> LlmError:
    with pytest.raises(LlmError) as caught:
        await said(adapter, signal)
    return caught.value


async def test_answers_arrive_whole_and_over_kept_connections(engine: HttpxEngine) -> None:
    words = [f"word {number}" for number in range(2000)]
    long = stream_reply([opening(), *text_events(words), *closing("stop")])
    script = [long, bytewise(text_reply("one byte at a time")), text_reply("end")]
    async with served(engine, *script) as (server, adapter):
        assert await said(adapter) == "".join(words)
        assert await said(adapter) == "one byte at a time"
        assert await said(adapter) == "end"
        assert len({request.client_port for request in server.requests}) == 1


async def test_L118_a_profile_may_use_each_connection_once(engine: HttpxEngine) -> None:
    script = [text_reply("a"), text_reply("b")]
    async with served(engine, *script, keep_alive=False) as (server, adapter):
        assert await said(adapter) + await said(adapter) == "ab"
        assert len({request.client_port for request in server.requests}) == 2


async def test_L92_silence_times_out(engine: HttpxEngine) -> None:
    async with served(engine, stall([opening()]), stream_idle_timeout_ms=80) as (server, adapter):
        assert (await failing(adapter)).code == "TIMEOUT"
        assert await server.requests[0].ended() == "client_closed"


@pytest.mark.parametrize("step", [reset(), reset([opening()]), "partial_disconnect"])
async def test_L94_broken_connections_are_transport_failures(
    engine: HttpxEngine, step: Step
) -> None:
    async with served(engine, step) as (_, adapter):
        error = await failing(adapter)
    assert error.code == "TRANSPORT"
    assert error.__cause__ is not None


async def test_L94_a_refused_connection_is_a_transport_failure(engine: HttpxEngine) -> None:
    async with served(engine, text_reply("a")) as (server, adapter):
        await server.close()
        assert (await failing(adapter)).code == "TRANSPORT"


@pytest.mark.parametrize("sent", [[], [opening()]], ids=["head", "body"])
async def test_L93_an_abort_closes_the_connection(engine: HttpxEngine, sent: list[bytes]) -> None:
    controller = AbortController()
    async with served(engine, stall(sent)) as (server, adapter), anyio.create_task_group() as tasks:

        async def abort() -> None:
            while not server.requests:
                await checkpoint()
            controller.abort()

        tasks.start_soon(abort)
        assert (await failing(adapter, controller.signal)).code == "ABORTED"
        assert await server.requests[0].ended() == "client_closed"


async def test_L92_many_streams_at_once_need_no_pool(engine: HttpxEngine) -> None:
    count = 120
    async with (
        served(engine, *[stall([opening()])] * count) as (server, adapter),
        anyio.create_task_group() as tasks,
    ):
        for _ in range(count):
            tasks.start_soon(said, adapter)
        while len(server.requests) < count:
            await checkpoint()
        tasks.cancel_scope.cancel()


def attempts() -> list[Attempt]:
    return [each for each in gc.get_objects() if isinstance(each, Attempt)]


async def test_L160_half_of_many_streams_can_be_cancelled_and_nothing_is_left(
    engine: HttpxEngine,
) -> None:
    count = 60
    answers: list[str] = []
    others = attempts()  # that earlier tests left

    async def ask(llm: LlmService) -> None:
        options = GenerateOptions(provider="x", model="m", messages=[create_user_message("hi")])
        async with aclosing(llm.stream(options)) as stream:
            texts = [chunk.text async for chunk in stream if isinstance(chunk, TextDelta)]
        answers.append("".join(texts))

    held = stall([opening(), *text_events("never ends")])
    script = [held, text_reply("a whole answer")] * count
    async with served(engine, *script) as (server, adapter), Context() as ctx:
        ctx.plugin(LlmService)
        await ctx.settled()
        ctx.llm.register_adapter(adapter.providers, adapter)
        async with anyio.create_task_group() as tasks:
            for _ in range(2 * count):
                tasks.start_soon(ask, ctx.llm)
            while len(answers) < count:
                await checkpoint()
            tasks.cancel_scope.cancel()
        assert answers == ["a whole answer"] * count
        ends = [await request.ended() for request in server.requests]
        assert ends == ["client_closed", "completed"] * count
        await adapter.aclose()
        gc.collect()
        assert {id(each) for each in attempts()} <= {id(each) for each in others}
