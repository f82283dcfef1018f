"""What a streamed answer costs: `python tests/benchmarks/llm.py [--once]`.

CPU seconds of this process (the server is another one), interleaved, best of several rounds, printed
as ratios to a yardstick measured in the same run. `--once` runs each case once, to see that it works.
"""

import gc
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import httpx
import msgspec

from dsh_cordis import Context
from dsh_llm import (
    AssistantStreamAccumulator,
    BlockAssembler,
    CallId,
    FinishChunk,
    GenerateOptions,
    LlmService,
    Message,
    ModelSource,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    create_assistant_message,
    create_tool_result_message,
    create_user_message,
)
from dsh_llm_anthropic import AnthropicAdapter
from dsh_llm_http import Engine
from dsh_llm_http.transport import HttpxEngine
from dsh_llm_openai import OpenAiAdapter

CHUNKS = 20_000
SMALL = 5
REQUESTS = 200
ABORTS = 100
MANY = 5_000
ROUNDS = 7

# -- the server: its own process, plain sockets, every event an HTTP chunk of its own -----------------


def _chat_events(count: int) -> Iterator[bytes]:
    head = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
    for number in range(count):
        delta = b'[{"index":0,"delta":{"content":"word%d "},"finish_reason":null}]}\n\n' % number
        yield head + delta
    yield head + b'[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    yield b"data: [DONE]\n\n"


def _message_events(count: int) -> Iterator[bytes]:
    yield b'event: message_start\ndata: {"type":"message_start","message":{"id":"m"}}\n\n'
    for number in range(count):
        yield (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
            b'"delta":{"type":"text_delta","text":"word%d "}}\n\n' % number
        )
    yield b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\n'
    yield b'event: message_stop\ndata: {"type":"message_stop"}\n\n'


_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-request-id: r\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


def _answer(path: str) -> bytes:
    _, kind, count, *_ = path.split("/")
    events = _message_events if path.endswith("/messages") else _chat_events
    body = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events(int(count)))
    return _HEAD + body + (b"" if kind == "stall" else b"0\r\n\r\n")


def _converse(connection: socket.socket) -> None:
    answers: dict[str, bytes] = {}
    buffer = b""
    with connection:
        while True:
            while b"\r\n\r\n" not in buffer:
                data = connection.recv(65536)
                if not data:
                    return
                buffer += data
            head, _, buffer = buffer.partition(b"\r\n\r\n")
            lines = head.decode("latin-1").lower().split("\r\n")
            length = next((int(x[15:]) for x in lines if x.startswith("content-length:")), 0)
            while len(buffer) < length:
                buffer += connection.recv(65536)
            buffer = buffer[length:]
            path = head.split(b" ")[1].decode()
            if path not in answers:
                answers[path] = _answer(path)
            connection.sendall(answers[path])


def _serve() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    while True:
        accepted, _ = listener.accept()
        threading.Thread(target=_quiet, args=(accepted,), daemon=True).start()


def _quiet(accepted: socket.socket) -> None:
    with suppress(OSError):  # an aborted answer
        _converse(accepted)


@contextmanager
def server() -> Iterator[str]:
    """The base URL of a server that runs."""
    command = [sys.executable, str(Path(__file__)), "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


# -- the cases: each takes the base URL and a size, and does its work once -----------------------------

Work = Callable[[str, int], Awaitable[None]]


class Delta(msgspec.Struct):
    """What the yardsticks decode."""

    content: str | None = None


class Choice(msgspec.Struct):
    """As above."""

    delta: Delta


class Payload(msgspec.Struct):
    """As above."""

    choices: list[Choice]


_DECODER = msgspec.json.Decoder(Payload)
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
OPTIONS = GenerateOptions(provider="x", model="m", messages=[create_user_message("hi")])


async def raw_socket(base: str, count: int) -> None:
    """A blocking socket, chunks cut by their line ends, msgspec."""
    port = int(base.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(
            b"POST /stream/%d/v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
            % count
        )
        buffer = b""
        texts: list[str] = []
        while not buffer.endswith(b"0\r\n\r\n"):
            buffer += connection.recv(65536)
            *lines, buffer = buffer.split(b"\n")
            texts += _texts(lines)
            if buffer == b"" and lines[-2:] == [b"0\r", b"\r"]:
                break
    assert len("".join(texts)) > count


def _texts(lines: Sequence[bytes]) -> list[str]:
    events = [line[6:] for line in lines if line.startswith(b"data: {")]
    return [text_of(event) for event in events]


def text_of(event: str | bytes) -> str:
    """The text of an event's data."""
    return _DECODER.decode(event).choices[0].delta.content or ""


def httpx_lines(client: httpx.AsyncClient) -> Work:
    """The yardstick: httpx, its line iterator, msgspec."""

    async def work(base: str, count: int) -> None:
        texts: list[str] = []
        url = f"{base}/stream/{count}/v1/chat/completions"
        async with client.stream("POST", url, json=BODY) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    texts.append(text_of(line[6:]))  # noqa: PERF401  # as people write it
        assert len("".join(texts)) > count

    return work


def adapter_stream(adapter_class: Callable[..., Any], engine: Engine) -> Work:
    """The whole adapter: typed chunks, assembler, compact stream."""
    adapters: dict[tuple[str, int], Any] = {}  # either of the two

    async def work(base: str, count: int) -> None:
        key = (base, count)
        if key not in adapters:
            adapters[key] = adapter_class(
                {"x": {"base_url": f"{base}/stream/{count}/v1"}}, engine=engine
            )
        assembler = BlockAssembler()
        recorder = AssistantStreamAccumulator()
        async with aclosing(adapters[key].stream(OPTIONS)) as stream:
            async for chunk in stream:
                assembler.push(chunk)
                recorder.push(1, chunk)
        assert len(assembler.blocks()) == 1
        assert recorder.snapshot()

    return work


def bare_request(client: httpx.AsyncClient) -> Work:
    """The yardstick of a request: httpx posts and reads the answer to its end."""

    async def work(base: str, count: int) -> None:
        url = f"{base}/stream/{SMALL}/v1/chat/completions"
        body = msgspec.json.encode(BODY)
        for _ in range(count):
            response = await client.post(url, content=body)
            assert response.status_code == 200

    return work


def adapter_requests(engine: Engine) -> Work:
    """As many small answers through the adapter."""
    adapters: dict[str, OpenAiAdapter] = {}

    async def work(base: str, count: int) -> None:
        if base not in adapters:
            adapters[base] = OpenAiAdapter(
                {"x": {"base_url": f"{base}/stream/{SMALL}/v1"}}, engine=engine
            )
        for _ in range(count):
            async with aclosing(adapters[base].stream(OPTIONS)) as stream:
                async for _chunk in stream:
                    pass

    return work


def through_a_context(engine: Engine, *, keep_alive: bool, tasks: int) -> Work:
    """Small answers through one context, by so many tasks that run together."""

    async def ask(service: LlmService, count: int) -> None:
        for _ in range(count):
            async with aclosing(service.stream(OPTIONS)) as stream:
                async for _chunk in stream:
                    pass

    async def work(base: str, count: int) -> None:
        profile = {"base_url": f"{base}/stream/{SMALL}/v1", "keep_alive": keep_alive}
        async with Context() as ctx:
            ctx.plugin(LlmService)
            await ctx.settled()
            adapter = OpenAiAdapter({"x": profile}, engine=engine)
            ctx.llm.register_adapter(adapter.providers, adapter)
            each = max(1, count // tasks)
            async with anyio.create_task_group() as group:
                for _ in range(count // each):
                    group.start_soon(ask, ctx.llm, each)

    return work


def abort_by_hand(client: httpx.AsyncClient) -> Work:
    """A loop that leaves after some lines."""

    async def work(base: str, count: int) -> None:
        url = f"{base}/stall/{SMALL}/v1/chat/completions"
        for _ in range(count):
            async with client.stream("POST", url, json=BODY) as response:
                seen = 0
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        _DECODER.decode(line[6:])
                        seen += 1
                        if seen == 3:
                            break

    return work


def abort_adapter(engine: Engine) -> Work:
    """The adapter's stream, left after some chunks."""
    adapters: dict[str, OpenAiAdapter] = {}

    async def work(base: str, count: int) -> None:
        if base not in adapters:
            adapters[base] = OpenAiAdapter(
                {"x": {"base_url": f"{base}/stall/{SMALL}/v1"}}, engine=engine
            )
        for _ in range(count):
            async with aclosing(adapters[base].stream(OPTIONS)) as stream:
                seen = 0
                async for chunk in stream:
                    seen += isinstance(chunk, TextDelta)
                    assert not isinstance(chunk, FinishChunk)
                    if seen == 3:
                        break

    return work


# -- history: no network ------------------------------------------------------------------------------


def history(count: int) -> list[Message]:
    """A long conversation with calls and answers."""
    source = ModelSource("x", "m")
    messages: list[Message] = []
    for number in range(count // 4):
        call = CallId(f"call_{number}")
        block = ToolCallBlock(call, "read", f'{{"path":"src/main.py","from":{number}}}')
        messages += [
            create_user_message(f"Question {number}: " + "what is this? " * 10),
            create_assistant_message([TextBlock("Let me look. " * 5), block], source),
            create_tool_result_message(call, [TextBlock("line of a file\n" * 30)], False),
            create_assistant_message([TextBlock("It is a program. " * 20)], source),
        ]
    return messages


def history_cases() -> Mapping[str, Callable[[], object]]:
    """Building the body of a request whose messages were sent before."""
    options = GenerateOptions(provider="x", model="m", messages=history(2000))
    profile = {"x": {"base_url": "http://127.0.0.1:1"}}
    openai, anthropic = OpenAiAdapter(profile), AnthropicAdapter(profile)
    chat = openai.exchange(options, openai.route("x")).body
    messages = anthropic.exchange(options, anthropic.route("x")).body
    pieces = [piece + b"}" for piece in chat().split(b"}")]
    size = len(options.messages)
    step = max(1, len(pieces) // size)
    joined = [b"".join(pieces[at : at + step]) for at in range(0, len(pieces), step)]
    return {
        "joining its bytes": lambda: b",".join(joined),
        "chat completions": chat,
        "Messages": messages,
    }


# -- measuring ----------------------------------------------------------------------------------------


async def _measured(
    works: Mapping[str, Work], base: str, count: int, rounds: int
) -> dict[str, float]:
    best = dict.fromkeys(works, float("inf"))
    for work in works.values():
        await work(base, min(count, 200))  # connections, imports, caches
    for _ in range(rounds):
        for name, work in works.items():
            gc.collect()
            started = time.process_time()
            await work(base, count)
            best[name] = min(best[name], (time.process_time() - started) / count)
    return best


def _table(title: str, baseline: str, best: Mapping[str, float]) -> str:
    rows = [
        f"| {name} | {took / best[baseline]:.2f} | {took * 1e6:.1f} |"
        for name, took in best.items()
    ]
    head = [f"### {title}", "", f"| case | CPU / CPU of {baseline} | us |", "|---|---|---|"]
    return "\n".join([*head, *rows, "", ""])


Sizes = tuple[int, int, int, int]
"""How many chunks, requests, aborts and requests at once."""

LINES = "httpx lines + msgspec"
BARE = "bare httpx request"
ALONE = "one at a time"
HAND = "loop by hand"
JOIN = "joining its bytes"


async def _asyncio_cases(base: str, sizes: Sizes, rounds: int) -> None:
    chunks, requests, aborts, many = sizes
    async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
        engines = {"default": HttpxEngine(fast=False)}
        if find_spec("httpx_aiohttp") is not None:
            engines["fast"] = HttpxEngine(fast=True)
        works: dict[str, Work] = {"raw socket + msgspec": raw_socket, LINES: httpx_lines(client)}
        for name, engine in engines.items():
            works[f"chat completions, {name}"] = adapter_stream(OpenAiAdapter, engine)
            works[f"Messages, {name}"] = adapter_stream(AnthropicAdapter, engine)
        _say(_table("per chunk, asyncio", LINES, await _measured(works, base, chunks, rounds)))
        works = {BARE: bare_request(client)}
        works |= {f"adapter, {name}": adapter_requests(each) for name, each in engines.items()}
        _say(_table("per request, asyncio", BARE, await _measured(works, base, requests, rounds)))
        for name, engine in engines.items():
            works = {
                ALONE: through_a_context(engine, keep_alive=True, tasks=1),
                "1,000 at once": through_a_context(engine, keep_alive=True, tasks=1000),
                "one at a time, each connects": through_a_context(
                    engine, keep_alive=False, tasks=1
                ),
                "1,000 at once, each connects": through_a_context(
                    engine, keep_alive=False, tasks=1000
                ),
            }
            found = await _measured(works, base, many, min(rounds, 3))
            _say(_table(f"many requests, {name}, asyncio", ALONE, found))
        works = {HAND: abort_by_hand(client)}
        works |= {f"adapter, {name}": abort_adapter(each) for name, each in engines.items()}
        _say(_table("abort, asyncio", HAND, await _measured(works, base, aborts, rounds)))
        for engine in engines.values():
            await engine.aclose()


async def _trio_cases(base: str, sizes: Sizes, rounds: int) -> None:
    async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
        engine = HttpxEngine()
        works = {
            LINES: httpx_lines(client),
            "chat completions, default": adapter_stream(OpenAiAdapter, engine),
        }
        _say(_table("per chunk, trio", LINES, await _measured(works, base, sizes[0], rounds)))
        works = {BARE: bare_request(client), "adapter, default": adapter_requests(engine)}
        _say(_table("per request, trio", BARE, await _measured(works, base, sizes[1], rounds)))
        await engine.aclose()


def _history(rounds: int) -> None:
    best: dict[str, float] = {}
    cases = history_cases()
    for _ in range(rounds * 5):
        for name, case in cases.items():
            started = time.process_time()
            case()
            took = time.process_time() - started
            best[name] = min(best.get(name, took), took)
    _say(_table("body of a history of 2000 messages", JOIN, best))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measure everything."""
    once = "--once" in sys.argv
    sizes = (50, 2, 2, 10) if once else (CHUNKS, REQUESTS, ABORTS, MANY)
    rounds = 1 if once else ROUNDS
    for name in ("http_proxy", "all_proxy"):
        os.environ.pop(name, None)
    with server() as base:
        anyio.run(_asyncio_cases, base, sizes, rounds, backend="asyncio")
        anyio.run(_trio_cases, base, sizes, rounds, backend="trio")
    _history(rounds)


if __name__ == "__main__":
    if "--serve" in sys.argv:
        _serve()
    main()
