"""Facts about attempts: what the log says, and what it never says."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

import anyio
import pytest
from structlog.testing import capture_logs
from typing_extensions import override

import dsh_llm.telemetry
from dsh_cordis import Context
from dsh_llm import (
    AbortController,
    BlockEnd,
    BlockStart,
    FinishChunk,
    GenerateOptions,
    LlmError,
    LlmService,
    LlmStreamEvent,
    StopFinish,
    StreamChunk,
    TextBlock,
    TextDelta,
    TokenUsage,
    UsageChunk,
    create_user_message,
)
from dsh_llm.telemetry import AttemptFacts, LogWatch, watch_attempts
from dsh_llm.testing import FakeAdapter, text_script

USAGE = TokenUsage(10, 4, 20, cache_read_tokens=6)
SCRIPT = (
    BlockStart(0, "text"),
    TextDelta(0, "Hello."),
    BlockEnd(0, TextBlock("Hello.")),
    UsageChunk(USAGE),
    FinishChunk(StopFinish()),
)
Inner = Callable[[], AsyncIterator[StreamChunk]]


@pytest.fixture
async def ctx() -> AsyncIterator[Context]:
    async with Context() as root:
        yield root


async def mounted(ctx: Context, adapter: FakeAdapter) -> LlmService:
    await ctx.plugin(LlmService)
    await ctx.plugin(dsh_llm.telemetry)
    service = ctx.get(LlmService)
    assert service is not None
    service.register_adapter(["a"], adapter)
    return service


def options(**changes: str) -> GenerateOptions:
    return GenerateOptions(
        provider="a",
        model="m",
        messages=[create_user_message("hi")],
        session_id=changes.get("session_id"),
    )


async def told(llm: LlmService, request: GenerateOptions | None = None) -> list[dict[str, object]]:
    """The lines of one call, without the times, which must be there."""
    with capture_logs() as logs, anyio.fail_after(5):
        async with aclosing(llm.stream(request or options())) as stream:
            async for _ in stream:
                pass
    lines = [line for line in logs if line["event"] == LogWatch.event]
    for line in lines:
        assert line.pop("total_ms") >= line.pop("first_token_ms", 0) >= 0
    return [dict(line) for line in lines]


async def test_an_answer_is_one_line_of_facts(ctx: Context) -> None:
    llm = await mounted(ctx, FakeAdapter(SCRIPT))
    assert await told(llm, options(session_id="s1")) == [
        {
            "event": "llm.attempt",
            "log_level": "info",
            "provider": "a",
            "model": "m",
            "outcome": "stop",
            "input_tokens": 10,
            "output_tokens": 4,
            "total_tokens": 20,
            "cache_read_tokens": 6,
            "session_id": "s1",
        }
    ]


async def test_the_first_token_is_timed_from_the_first_read(ctx: Context) -> None:
    kept: list[AttemptFacts] = []

    class Keep(LogWatch):
        @override
        def ended(self, facts: AttemptFacts) -> None:
            kept.append(facts)

    llm = await mounted(ctx, FakeAdapter(SCRIPT))
    watch_attempts(ctx, lambda request: Keep())
    stream = llm.stream(options())
    with anyio.fail_after(5):
        chunks = [chunk async for chunk in stream]
    assert len(chunks) == len(SCRIPT)
    [facts] = kept
    assert facts.first_token_ms is not None
    assert 0 < facts.first_token_ms < facts.total_ms


async def test_a_failure_is_a_warning_with_its_code_and_without_its_text(ctx: Context) -> None:
    error = LlmError("the provider says: secret", "RATE_LIMIT", status=429, request_id="req-1")
    llm = await mounted(ctx, FakeAdapter([TextDelta(0, "secret"), error]))
    [line] = await told(llm)
    assert line == {
        "event": "llm.attempt",
        "log_level": "warning",
        "provider": "a",
        "model": "m",
        "outcome": "error",
        "code": "RATE_LIMIT",
        "status": 429,
        "request_id": "req-1",
    }


async def test_an_abort_is_no_failure(ctx: Context) -> None:
    controller = AbortController()
    controller.abort()
    llm = await mounted(ctx, FakeAdapter())
    request = GenerateOptions(
        provider="a", model="m", messages=[create_user_message("hi")], signal=controller.signal
    )
    [line] = await told(llm, request)
    assert (line["outcome"], line["code"], line["log_level"]) == ("aborted", "ABORTED", "info")


async def test_a_reader_that_leaves_is_told_once_and_the_adapter_is_closed(ctx: Context) -> None:
    adapter = FakeAdapter(SCRIPT)
    llm = await mounted(ctx, adapter)
    with capture_logs() as logs, anyio.fail_after(5):
        stream = llm.stream(options())
        await anext(stream)
        await stream.aclose()
        await stream.aclose()
        unread = llm.stream(options())
        await unread.aclose()
    assert [line["outcome"] for line in logs] == ["left"]
    assert adapter.closed == 1


async def test_a_cancelled_reader_has_left(ctx: Context) -> None:
    llm = await mounted(ctx, FakeAdapter(SCRIPT))
    with capture_logs() as logs, anyio.fail_after(5):
        with anyio.CancelScope() as scope:
            scope.cancel()
            async with aclosing(llm.stream(options())) as stream:
                await anext(stream)
    assert [(line["outcome"], line["log_level"]) for line in logs] == [("left", "info")]


async def test_an_error_of_a_listener_and_a_missing_finish_are_told(ctx: Context) -> None:
    llm = await mounted(ctx, FakeAdapter([]))

    async def broken() -> AsyncGenerator[StreamChunk, None]:
        yield TextDelta(0, "x")
        raise KeyError("secret")

    assert [line["outcome"] for line in await told(llm)] == ["unfinished"]
    ctx.on(LlmStreamEvent, lambda event, inner: broken())
    with capture_logs() as logs, anyio.fail_after(5), pytest.raises(KeyError):
        async for _ in llm.stream(options()):
            pass
    [line] = logs
    assert (line["outcome"], line["code"], line["log_level"]) == ("raised", "KeyError", "warning")
    assert "secret" not in repr(line)


async def test_each_attempt_of_a_listener_is_a_line_of_its_own(ctx: Context) -> None:
    class Twice:
        def __init__(self, inner: Inner) -> None:
            self.inner = inner

        async def run(self) -> AsyncGenerator[StreamChunk, None]:
            async with aclosing(self.inner()) as first:  # type: ignore[type-var]  # it has aclose
                async for _ in first:
                    pass
            async for chunk in self.inner():
                yield chunk

    await ctx.plugin(LlmService)
    ctx.on(LlmStreamEvent, lambda event, inner: Twice(inner).run())
    await ctx.plugin(dsh_llm.telemetry)
    llm = ctx.get(LlmService)
    assert llm is not None
    llm.register_adapter(["a"], FakeAdapter(text_script("x")))
    assert [line["outcome"] for line in await told(llm)] == ["stop", "stop"]


async def test_a_watch_that_fails_changes_nothing_for_the_reader(ctx: Context) -> None:
    class Broken(LogWatch):
        @override
        def ended(self, facts: AttemptFacts) -> None:
            raise RuntimeError("no disk")

    llm = await mounted(ctx, FakeAdapter(SCRIPT))
    watch_attempts(ctx, lambda request: Broken())
    with capture_logs() as logs, anyio.fail_after(5):
        chunks = [chunk async for chunk in llm.stream(options())]
    assert len(chunks) == len(SCRIPT)
    assert {line["event"] for line in logs} == {"llm.attempt", "llm.watch_failed"}


async def test_watching_ends_with_the_plugin(ctx: Context) -> None:
    llm = await mounted(ctx, FakeAdapter(SCRIPT))
    fiber = ctx.plugin(dsh_llm.telemetry)
    await fiber
    assert len(await told(llm)) == 2
    await fiber.dispose()
    assert len(await told(llm)) == 1
