"""What must not leak: planted in every place, looked for in everything that is written (L102-L104).

Keys and headers must appear nowhere. Texts of prompts, answers, tool calls and error bodies must
not appear in logs and spans; an error body may stand in the failure, which is for the caller.
"""

import json
import logging  # noqa: TID251  # libraries below log through it, and that output is searched too
import traceback
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

import dsh_llm_openai
from dsh_cordis import Context
from dsh_llm import (
    AbortedFinish,
    CallId,
    ErrorFinish,
    FinishChunk,
    GenerateOptions,
    LlmCallConfig,
    LlmError,
    LlmService,
    ModelSource,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolSchema,
    create_assistant_message,
    create_system_message,
    create_tool_result_message,
    create_user_message,
    telemetry,
)
from dsh_llm_openai import OpenAiAdapter
from dsh_llm_scripted import (
    Call,
    MockServer,
    Reply,
    Step,
    error_reply,
    raw_reply,
    text_reply,
    tool_call_reply,
)

KEY = "sk-planted-key-0123456789"
HEADER = "planted-header"
TEXTS = {
    name: f"planted-{name}"
    for name in ("system", "prompt", "thought", "argument", "result", "tool", "answer", "body")
}
CREDENTIALS = [KEY, HEADER]


@pytest.fixture
async def ctx() -> AsyncIterator[Context]:
    async with Context() as root:
        yield root


def request() -> GenerateOptions:
    arguments = json.dumps({"path": TEXTS["argument"]})
    calls = [
        ReasoningBlock(TEXTS["thought"]),
        ToolCallBlock(CallId("c1"), "read", arguments),
    ]
    result = [TextBlock(TEXTS["result"])]
    return GenerateOptions(
        provider="x",
        model="m",
        session_id="s1",
        tools=[ToolSchema("read", TEXTS["tool"], {"type": "object"})],
        messages=[
            create_system_message(TEXTS["system"]),
            create_user_message(TEXTS["prompt"]),
            create_assistant_message(calls, ModelSource(provider="x", model="m")),
            create_tool_result_message(CallId("c1"), result, False),
        ],
    )


def refused(status: int, message: str) -> Reply:
    return error_reply("refused", status, message, code="code", kind="kind")


STEPS: list[Step] = [
    text_reply(TEXTS["answer"]),
    tool_call_reply(Call("read", {"path": TEXTS["answer"]})),
    refused(401, f"bad key {KEY}: {TEXTS['body']}"),
    refused(400, f"cannot take {TEXTS['body']}"),
    refused(500, TEXTS["body"]),
    "rate_limit",
    "connection_reset",
    "partial_disconnect",
    raw_reply([f"data: not json {KEY} {TEXTS['body']}\n\n".encode()]),
    raw_reply([f'data: {{"error": {{"message": "{KEY} {TEXTS["body"]}"}}}}\n\n'.encode()]),
    raw_reply([f"<html>{KEY} {TEXTS['body']}</html>".encode()]),
]


class Traces:
    """The spans of a test, if the SDK is there; the API alone keeps none."""

    def __init__(self) -> None:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def text(self) -> str:
        return "\n".join(span.to_json() for span in self.exporter.get_finished_spans())


def assert_absent(secrets: list[str], where: str, text: str) -> None:
    assert [secret for secret in secrets if secret in text] == [], where


async def test_L102_L103_L104_nothing_planted_is_logged_traced_shown_or_raised(
    ctx: Context, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="the SDK of OpenTelemetry keeps the spans")
    from dsh_llm import otel

    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("PLANTED_KEY", f" {KEY}\n")
    traces = Traces()
    shown: list[object] = []
    async with MockServer(STEPS, api_key=KEY) as server:
        profile: dict[str, Any] = {  # any settings of a profile
            "base_url": server.base_url,
            "api_key_env": "PLANTED_KEY",
            "headers": {"x-planted": HEADER},
        }
        with capture_logs() as logs, anyio.fail_after(5):
            await ctx.plugin(LlmService)
            await ctx.plugin(telemetry)
            await ctx.plugin(otel, otel.SpanConfig(tracer_provider=traces.provider))
            fiber = ctx.plugin(dsh_llm_openai, {"providers": {"x": profile}})
            await ctx.settled()
            llm = ctx.get(LlmService)
            assert llm is not None
            prepared = await llm.prepare_call(LlmCallConfig(provider="x", model="m"))
            shown += [llm, fiber, prepared, prepared.config, server.requests]
            for step in range(len(STEPS)):
                async with aclosing(llm.stream(request())) as stream:
                    shown.append(stream)
                    async for chunk in stream:
                        if isinstance(chunk, FinishChunk):
                            shown.append(_kept(chunk, step))
            adapter = OpenAiAdapter({"x": profile})
            shown += [adapter, adapter.stream(request())]
            await adapter.aclose()
    assert len(logs) >= len(STEPS)
    assert len(traces.exporter.get_finished_spans()) == len(STEPS)
    everything = [KEY, HEADER, *TEXTS.values()]
    assert_absent(everything, "log", "\n".join(map(repr, logs)))
    assert_absent(everything, "spans", traces.text())
    assert_absent(everything, "logs of libraries", caplog.text)
    for value in shown:
        assert_absent(CREDENTIALS, type(value).__name__, f"{value!r} {value!s}")


def _kept(chunk: FinishChunk, step: int) -> object:
    if step > 1:
        assert isinstance(chunk.reason, ErrorFinish | AbortedFinish)
        return chunk.reason.failure
    return chunk


async def test_L102_L104_exceptions_show_no_key_with_all_their_causes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PLANTED_KEY", KEY)
    monkeypatch.setenv("SPOILED_KEY", f"{KEY} with a space")
    shown: list[str] = []
    async with MockServer(STEPS, api_key=KEY) as server:
        profile = {"base_url": server.base_url, "headers": {"x-planted": HEADER}}
        adapter = OpenAiAdapter(
            {
                "x": {**profile, "api_key_env": "PLANTED_KEY"},
                "spoiled": {**profile, "api_key_env": "SPOILED_KEY"},
                "missing": {**profile, "api_key_env": "NO_KEY"},
            }
        )
        for provider in [*["x"] * len(STEPS), "spoiled", "missing"]:
            options = msgspec.structs.replace(request(), provider=provider)
            try:
                with anyio.fail_after(5):
                    shown += [repr(chunk) async for chunk in adapter.stream(options)]
            except LlmError as error:
                shown += traceback.format_exception(error)
                shown += [repr(error), repr(error.failure)]
        await adapter.aclose()
    assert sum(line.startswith("Traceback") for line in shown) >= len(STEPS) - 3
    assert_absent(CREDENTIALS, "failures", "".join(shown))
