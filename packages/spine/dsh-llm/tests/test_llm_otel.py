"""Spans after the conventions for generative AI."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import anyio
import pytest
from typing_extensions import override

from dsh_cordis import Context
from dsh_llm import (
    FinishChunk,
    GenerateOptions,
    LlmError,
    LlmService,
    StreamChunk,
    TextDelta,
    TokenUsage,
    ToolCallsFinish,
    UsageChunk,
    create_user_message,
)
from dsh_llm.testing import FakeAdapter

pytest.importorskip("opentelemetry.sdk", reason="the SDK of OpenTelemetry keeps the spans")
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import dsh_llm.otel

USAGE = TokenUsage(10, 4, 20, cache_read_tokens=6, reasoning_tokens=3)


@pytest.fixture
async def ctx() -> AsyncIterator[Context]:
    async with Context() as root:
        yield root


async def spans_of(ctx: Context, script: Sequence[StreamChunk | Exception]) -> list[ReadableSpan]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    await ctx.plugin(LlmService)
    await ctx.plugin(dsh_llm.otel, dsh_llm.otel.SpanConfig(tracer_provider=provider))
    llm = ctx.get(LlmService)
    assert llm is not None
    llm.register_adapter(["a"], FakeAdapter(script))
    options = GenerateOptions(
        provider="a",
        model="m",
        messages=[create_user_message("hi")],
        max_tokens=50,
        temperature=0.5,
        session_id="s1",
    )
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("outer"), anyio.fail_after(5):
        async for _ in llm.stream(options):
            assert trace.get_current_span().get_span_context().is_valid
    return list(exporter.get_finished_spans())


async def test_an_answer_is_one_span_below_the_callers(ctx: Context) -> None:
    script: list[StreamChunk] = [
        TextDelta(0, "x"),
        UsageChunk(USAGE),
        FinishChunk(ToolCallsFinish()),
    ]
    span, outer = await spans_of(ctx, script)
    attributes = dict(span.attributes or {})
    first = attributes.pop("gen_ai.response.time_to_first_chunk")
    assert isinstance(first, float)
    assert 0 < first < 5
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "a",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": 50,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.conversation.id": "s1",
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.usage.input_tokens": 16,
        "gen_ai.usage.output_tokens": 4,
        "gen_ai.usage.cache_read.input_tokens": 6,
        "gen_ai.usage.reasoning.output_tokens": 3,
    }
    assert (span.name, span.kind.name) == ("chat m", "CLIENT")
    assert span.status.status_code.name == "UNSET"
    assert span.parent == outer.get_span_context()


async def test_a_failure_is_an_error_with_its_code_only(ctx: Context) -> None:
    error = LlmError("told secret", "SERVER", status=503, request_id="r1")
    span, _ = await spans_of(ctx, [TextDelta(0, "secret"), error])
    attributes = dict(span.attributes or {})
    assert attributes["error.type"] == "SERVER"
    assert attributes["http.response.status_code"] == 503
    assert attributes["dsh.provider.request_id"] == "r1"
    assert (span.status.status_code.name, span.status.description) == ("ERROR", None)
    assert "secret" not in span.to_json()


async def test_the_span_is_current_while_the_request_opens_and_not_between_chunks(
    ctx: Context,
) -> None:
    seen: list[trace.Span] = []

    class Looking(FakeAdapter):
        @override
        def stream(self, options: GenerateOptions) -> AsyncGenerator[StreamChunk, None]:
            seen.append(trace.get_current_span())
            return super().stream(options)

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    await ctx.plugin(LlmService)
    await ctx.plugin(dsh_llm.otel, dsh_llm.otel.SpanConfig(tracer_provider=provider))
    llm = ctx.get(LlmService)
    assert llm is not None
    llm.register_adapter(["a"], Looking())
    options = GenerateOptions(provider="a", model="m", messages=[create_user_message("hi")])
    with anyio.fail_after(5):
        async for _ in llm.stream(options):
            assert not trace.get_current_span().get_span_context().is_valid
    [span] = exporter.get_finished_spans()
    assert [current.get_span_context() for current in seen] == [span.get_span_context()]
