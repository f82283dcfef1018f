"""The chat-completions adapter against servers that others wrote: a second reading of the protocol.

`llmock` imitates several providers and breaks on demand. It is a development dependency only, and
is looked for beside the running Python.
"""

import json
import re
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteReceiveStream
from anyio.streams.text import TextReceiveStream

from dsh_llm import (
    GenerateOptions,
    LlmError,
    Message,
    TextBlock,
    ToolSchema,
    collect,
    create_tool_result_message,
    create_user_message,
)
from dsh_llm_openai import OpenAiAdapter

LLMOCK = shutil.which("llmock", path=Path(sys.executable).parent)
pytestmark = pytest.mark.skipif(
    LLMOCK is None, reason="llmock is not installed: pip install llmock"
)
LIMIT_S = 60
TOOL = ToolSchema(
    "weather",
    "The weather at a place.",
    {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
)


@asynccontextmanager
async def llmock(*settings: str, path: str = "/v1") -> AsyncIterator[OpenAiAdapter]:
    """An adapter of a server that was started with these settings."""
    command = [str(LLMOCK), "serve", "--host", "127.0.0.1", "--port", "0", *settings]
    with anyio.fail_after(LIMIT_S):
        async with await anyio.open_process(command, stdin=None) as process:
            try:
                assert process.stderr is not None
                base_url = await _address(process.stderr)
                profile = {"base_url": base_url + path, "api_key_env": "KEY"}
                async with aclosing(OpenAiAdapter({"x": profile}, credentials=_key)) as adapter:
                    yield adapter
            finally:
                process.kill()


async def _key(reference: str) -> str:
    return "sk-test"


async def _address(output: ByteReceiveStream) -> str:
    text = ""
    async for piece in TextReceiveStream(output):
        text += piece
        if found := re.search(r"running on (http://127\.0\.0\.1:\d+) ", text):
            return found[1]
    raise AssertionError(f"llmock ended:\n{text}")


def options(messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> GenerateOptions:
    return GenerateOptions(
        provider="x", model="gpt-4o", messages=messages, tools=tools, max_tokens=500
    )


@pytest.mark.parametrize("path", ["/v1", "/groq/openai/v1", "/mistral/v1", "/together/v1"])
async def test_an_answer_streams_with_usage(path: str) -> None:
    async with llmock("--response-style", "echo", path=path) as adapter:
        pieces: list[str] = []
        stream = adapter.stream(options([create_user_message("Say that again, please.")]))
        answer = await collect(stream, on_text=pieces.append)
    assert "Say that again, please." in answer.text
    assert len(pieces) > 1
    assert answer.finish.kind == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.output_tokens


async def test_a_tool_is_called_and_answered() -> None:
    history = [create_user_message("What is the weather in Oslo?")]
    async with llmock() as adapter:
        asked = await collect(adapter.stream(options(history, [TOOL])))
        [call] = asked.tool_calls
        history.append(asked.message("x", "gpt-4o"))
        history.append(create_tool_result_message(call.id, [TextBlock("snow")], False))
        answer = await collect(adapter.stream(options(history, [TOOL])))
    assert call.name == "weather"
    assert isinstance(json.loads(call.arguments), dict)
    assert asked.finish.kind == "tool-calls"
    assert (answer.finish.kind, answer.tool_calls) == ("stop", ())
    assert answer.text


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (["--error-rate", "400=1"], "INVALID_REQUEST"),
        (["--error-rate", "401=1"], "AUTH"),
        (["--error-rate", "429=1"], "RATE_LIMIT"),
        (["--error-rate", "500=1"], "SERVER"),
        (["--error-rate", "503=1"], "SERVER"),
        (["--context-window", "1"], "CONTEXT_WINDOW_EXCEEDED"),
        (["--stream-fault", "disconnect=1"], "TRANSPORT"),
        (["--stream-fault", "truncate=1"], "STREAM_CLOSED"),
        (["--stream-fault", "malformed=1"], "MALFORMED_RESPONSE"),
    ],
)
async def test_faults_have_their_codes(settings: list[str], code: str) -> None:
    # Long enough for a fault at a random place to lie before the end.
    long = create_user_message("Hello over there. " * 40)
    async with llmock("--response-style", "echo", *settings) as adapter:
        with pytest.raises(LlmError) as caught:
            await collect(adapter.stream(options([long])))
    assert caught.value.code == code
