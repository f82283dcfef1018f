"""The way over the network (L90-L94, L100-L104, L111, L45, L160)."""

import traceback
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint

from dsh_llm import (
    AbortController,
    AbortSignal,
    FinishChunk,
    GenerateOptions,
    LlmError,
    StreamChunk,
    TextDelta,
    create_user_message,
)
from dsh_llm.outbound import is_loopback
from dsh_llm_http.engine import shown_endpoint
from dsh_llm_openai import OpenAiAdapter
from dsh_llm_scripted import (
    MockServer,
    Part,
    Step,
    bytewise,
    closing,
    delta_event,
    error_reply,
    opening,
    raw_reply,
    reset,
    stall,
    stream_reply,
    text_events,
    text_reply,
)


def options(signal: AbortSignal | None = None) -> GenerateOptions:
    return GenerateOptions(
        provider="x", model="m", messages=[create_user_message("hi")], signal=signal
    )


@asynccontextmanager
async def served(
    *script: Step,
    key: str | None = None,
    **profile: Any,  # any settings of a profile
) -> AsyncIterator[tuple[MockServer, OpenAiAdapter]]:
    async def lookup(reference: str) -> str | None:
        return {"KEY": key}.get(reference)

    async with MockServer(script, api_key=key.strip() if key else None) as server:
        settings = {"base_url": server.base_url + "//", **profile}
        adapter = OpenAiAdapter({"x": settings}, credentials=lookup)
        try:
            with anyio.fail_after(5):
                yield server, adapter
        finally:
            await adapter.aclose()


async def collect(adapter: OpenAiAdapter, signal: AbortSignal | None = None) -> list[StreamChunk]:
    async with aclosing(adapter.stream(options(signal))) as stream:
        return [chunk async for chunk in stream]


async def failing(adapter: OpenAiAdapter, signal: AbortSignal | None = None) -> LlmError:
    with pytest.raises(LlmError) as caught:
        await collect(adapter, signal)
    return caught.value


def texts(chunks: Sequence[StreamChunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))


async def test_L90_L91_endpoint_and_headers() -> None:
    async with served(text_reply("a"), headers={"X-Team": "7"}) as (server, adapter):
        await collect(adapter)
        request = server.requests[0]
    assert request.path == "/v1/chat/completions"
    headers = request.headers
    assert headers["user-agent"].startswith("dsh-llm-openai/")
    assert headers["content-type"] == "application/json"
    assert headers["accept"] == "text/event-stream"
    assert headers["accept-encoding"] == "identity"
    assert headers["x-team"] == "7"
    assert "authorization" not in headers


async def test_L90_redirects_are_not_followed() -> None:
    moved = error_reply("moved", 307, "elsewhere", code="c", kind="k", headers={"location": "/v2"})
    async with served(moved, text_reply("a")) as (server, adapter):
        error = await failing(adapter)
        assert len(server.requests) == 1
    assert (error.code, error.failure.status) == ("HTTP_307", 307)


async def test_L92_silence_on_the_network_times_out() -> None:
    async with served(stall([opening()]), stream_idle_timeout_ms=50) as (server, adapter):
        assert (await failing(adapter)).code == "TIMEOUT"
        assert await server.requests[0].ended() == "client_closed"


async def test_L92_a_slow_consumer_costs_nothing() -> None:
    slow = stream_reply([opening(), *text_events(["a", "b"]), *closing("stop")])
    found = []
    async with (
        served(slow, stream_idle_timeout_ms=50) as (_, adapter),
        aclosing(adapter.stream(options())) as stream,
    ):
        async for chunk in stream:
            found.append(chunk)
            await anyio.sleep(0.06)  # longer than the limit: the consumer's time does not count
    assert texts(found) == "ab"


async def test_L92_L107_comments_are_activity() -> None:
    pings = [Part(b": ping\n\n", 0.04)] * 4
    reply = raw_reply([opening(), *pings, delta_event({"content": "a"}), *closing("stop")])
    async with served(reply, stream_idle_timeout_ms=120) as (_, adapter):
        assert texts(await collect(adapter)) == "a"


async def test_L93_an_aborted_signal_causes_no_request() -> None:
    controller = AbortController()
    controller.abort()
    async with served(text_reply("a")) as (server, adapter):
        assert (await failing(adapter, controller.signal)).code == "ABORTED"
        assert server.requests == []


@pytest.mark.parametrize("sent", [[], [opening(), *text_events("a")]], ids=["head", "body"])
async def test_L93_a_later_abort_interrupts_the_wait_and_closes(sent: list[bytes]) -> None:
    controller = AbortController()
    async with served(stall(sent)) as (server, adapter):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_abort_when_waiting, controller)
            assert (await failing(adapter, controller.signal)).code == "ABORTED"
        assert await server.requests[0].ended() == "client_closed"


async def _abort_when_waiting(controller: AbortController) -> None:
    await wait_all_tasks_blocked()
    controller.abort("enough")


async def test_L93_abort_between_chunks_ends_the_stream() -> None:
    controller = AbortController()
    async with served(stall([opening(), *text_events(["a"])])) as (_, adapter):
        stream = adapter.stream(options(controller.signal))
        async with aclosing(stream):
            assert (await anext(stream)).__struct_config__.tag == "block-start"
            assert texts([await anext(stream)]) == "a"
            controller.abort()
            with pytest.raises(LlmError) as caught:
                await anext(stream)
            assert caught.value.code == "ABORTED"
            with pytest.raises(StopAsyncIteration):
                await anext(stream)


async def test_cancelling_the_task_passes_and_closes_the_connection() -> None:
    async with served(stall([opening()])) as (server, adapter):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(collect, adapter)
                while not server.requests:
                    await checkpoint()
                await wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught
        assert await server.requests[0].ended() == "client_closed"


@pytest.mark.parametrize("step", ["connection_reset", "stream_disconnect", "partial_disconnect"])
async def test_L94_broken_connections_are_transport_failures(step: str) -> None:
    async with served(step) as (_, adapter):
        error = await failing(adapter)
    assert error.code == "TRANSPORT"
    assert error.__cause__ is not None


async def test_L94_the_message_names_the_endpoint_without_user_info() -> None:
    async with served(reset()) as (server, adapter):
        error = await failing(adapter)
    assert f"http://127.0.0.1:{server.port}/v1/chat/completions" in error.message
    assert shown_endpoint("https://user:secret@h:1/v1?key=a#b") == "https://h:1/v1"


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://127.0.0.1:1/v1", True),
        ("http://[::1]/v1", True),
        ("http://localhost:11434", True),
        ("https://api.deepseek.com", False),
        ("http://10.0.0.1", False),
    ],
)
def test_no_proxy_stands_before_this_machine(url: str, loopback: bool) -> None:
    assert is_loopback(url) is loopback


async def test_L94_a_refused_connection_is_a_transport_failure() -> None:
    async with served(text_reply("a")) as (server, adapter):
        await server.close()
        assert (await failing(adapter)).code == "TRANSPORT"


async def test_L99_request_ids_of_failures() -> None:
    headers = {"x-request-id": "r-1"}
    refused = error_reply("no", 400, "bad", code="c", kind="k", headers=headers)
    fault = raw_reply([b'data: {"error":"down"}\n\n'], headers=headers)
    async with served(refused, fault) as (_, adapter):
        assert (await failing(adapter)).failure.request_id == "r-1"
        finish = (await collect(adapter))[-1]
    assert isinstance(finish, FinishChunk)
    assert getattr(finish.reason, "failure").request_id == "r-1"  # noqa: B009  # open union


async def test_L100_L101_the_key_is_looked_up_and_trimmed() -> None:
    async with served(text_reply("a"), key="sk-1\n", api_key_env="KEY") as (server, adapter):
        await collect(adapter)
        assert server.requests[0].headers["authorization"] == "Bearer sk-1"


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (None, "MISSING_CREDENTIAL"),
        ("", "MISSING_CREDENTIAL"),
        ("\ufeff ", "INVALID_CREDENTIAL"),
        ("sk 1", "INVALID_CREDENTIAL"),
        ("sk\x85", "INVALID_CREDENTIAL"),
        ("skü", "INVALID_CREDENTIAL"),
    ],
)
async def test_L100_L101_missing_and_invalid_keys(key: str | None, code: str) -> None:
    async with served(text_reply("a"), key=key, api_key_env="KEY") as (server, adapter):
        error = await failing(adapter)
        assert server.requests == []
    assert error.code == code
    assert "KEY" in error.message
    assert not key or key not in error.message


async def test_L102_L104_the_key_is_in_no_failure() -> None:
    reply = error_reply("no", 403, "key sk-secret is not allowed", code="c", kind="k")
    fault = raw_reply([b'data: {"error":"sk-secret failed"}\n\n'])
    quoted = [raw_reply([b"<p>sk-secret"]), raw_reply([b'data: "sk-secret"\n\n'])]
    script = [reply, fault, *quoted]
    async with served(*script, key="sk-secret", api_key_env="KEY") as (_, adapter):
        error = await failing(adapter)
        chunks = await collect(adapter)
        for malformed in [await failing(adapter), await failing(adapter)]:
            assert malformed.code == "MALFORMED_RESPONSE"
            assert "[redacted]" in malformed.message
            assert "sk-secret" not in "".join(traceback.format_exception(malformed))
    assert error.message == "key [redacted] is not allowed"
    assert "sk-secret" not in "".join(traceback.format_exception(error))
    assert "sk-secret" not in repr(chunks)


async def test_L112_what_came_before_a_fault_is_delivered_however_the_body_is_cut() -> None:
    faulty = stream_reply([*text_events(["a", "b"]), b"data: {no}\n\n", *text_events("c")])
    async with served(faulty, bytewise(faulty)) as (_, adapter):
        for _ in range(2):
            async with aclosing(adapter.stream(options())) as stream:
                seen = [await anext(stream) for _ in range(3)]
                with pytest.raises(LlmError) as caught:
                    await anext(stream)
                with pytest.raises(StopAsyncIteration):
                    await anext(stream)
            assert (texts(seen), caught.value.code) == ("ab", "MALFORMED_RESPONSE")


async def test_L111_the_end_mark_ends_the_answer_and_the_connection_is_reused() -> None:
    endless = stream_reply([*text_events("a"), *closing("stop")], ending="stall")
    async with served(endless, text_reply("b"), text_reply("c")) as (server, adapter):
        assert texts(await collect(adapter)) == "a"
        assert await server.requests[0].ended() == "client_closed"
        await collect(adapter)
        await collect(adapter)
        ports = {request.client_port for request in server.requests}
    assert len(ports) == 2


async def test_L118_a_profile_may_use_each_connection_once() -> None:
    script = [text_reply("b"), text_reply("c")]
    async with served(*script, keep_alive=False) as (server, adapter):
        await collect(adapter)
        await collect(adapter)
        assert server.requests[0].headers["connection"] == "close"
        assert len({request.client_port for request in server.requests}) == 2


async def test_L45_another_task_may_close_a_stream_that_is_waited_for() -> None:
    async with served(stall([opening(), *text_events(["a"])])) as (server, adapter):
        stream = adapter.stream(options())
        await anext(stream)
        errors: list[LlmError] = []

        async def read_on() -> None:
            try:
                while True:
                    await anext(stream)
            except LlmError as error:
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read_on)
            await wait_all_tasks_blocked()
            await stream.aclose()
            await checkpoint()
        assert [error.code for error in errors] == ["ABORTED"]
        assert await server.requests[0].ended() == "client_closed"


async def test_leaving_early_closes_the_connection_once() -> None:
    async with served(stall([opening(), *text_events(["a"])])) as (server, adapter):
        stream = adapter.stream(options())
        async with aclosing(stream):
            async for _ in stream:
                break
        await stream.aclose()
        assert await server.requests[0].ended() == "client_closed"


async def test_L160_one_stalled_stream_does_not_delay_the_others() -> None:
    async with (
        served(stall([opening()]), text_reply("b")) as (server, adapter),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(collect, adapter)
        while not server.requests:
            await checkpoint()
        assert texts(await collect(adapter)) == "b"
        tasks.cancel_scope.cancel()


async def test_error_bodies_are_read_up_to_a_limit() -> None:
    huge = raw_reply([b"x" * 700_000, b"y" * 700_000, b"z"], status=500)
    async with served(huge) as (_, adapter):
        error = await failing(adapter)
    assert error.code == "SERVER"
    assert len(str(error.__cause__)) == 1024 * 1024
