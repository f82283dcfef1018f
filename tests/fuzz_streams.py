"""Damaged streams through both adapters: `python tests/fuzz_streams.py [BODIES] [--http N] [--seed N]`.

Recorded and scripted answers are mutated byte by byte, cut into reads at random, and read by the core
of an adapter: framer, translator, assembler, recorder. A share of them travels over real HTTP and
through `ctx.llm`. Whatever arrives, a stream has exactly one end, no other exception escapes, nothing
hangs, and what is kept of a body is bounded by its size.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import anyio
import msgspec

from dsh_brand import to_json
from dsh_cordis import Context
from dsh_llm import (
    AssistantStreamAccumulator,
    BlockAssembler,
    ErrorFinish,
    FinishChunk,
    GenerateOptions,
    LlmError,
    LlmService,
    StreamChunk,
    create_user_message,
)
from dsh_llm.testing import check_stream
from dsh_llm_anthropic import AnthropicAdapter
from dsh_llm_anthropic.stream import ChunkTranslator as MessagesTranslator
from dsh_llm_http import Framer, StreamFinishes, Translator
from dsh_llm_openai import OpenAiAdapter
from dsh_llm_openai.stream import ChunkTranslator as ChatTranslator
from dsh_llm_scripted import (
    Call,
    MockServer,
    message_error_reply,
    message_event,
    message_opening,
    message_text_reply,
    message_tool_reply,
    raw_reply,
    text_reply,
    tool_call_reply,
)

_CASES = Path(__file__).resolve().parents[1].parent / "shared" / "field-cases"
_TOKENS = (
    *(
        b"data:",
        b"data: ",
        b"event: error\n",
        b"id: 1\n",
        b"retry: 1\n",
        b":",
        b"\n",
        b"\n\n",
        b"\r",
    ),
    *(
        b"\r\n",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\xe2\x82",
        b"\\ud83d",
        b"\\u0000",
        b"null",
        b"true",
        b"{}",
    ),
    *(
        b"[]",
        b'""',
        b'"',
        b"-1",
        b"0",
        b"1e999",
        b"99999999999999999999",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
    ),
    *(
        b"[DONE]",
        b'"error"',
        b'{"error":"x"}',
        b'"index":7',
        b'"type":"error"',
        b'"finish_reason":"x"',
    ),
    b"[" * 300,
)
LIMIT_S = 2.0
"""One body must never take longer."""

Judge = Callable[[], Translator]


def chat() -> Translator:
    """The core of the chat-completions adapter."""
    return ChatTranslator(StreamFinishes("Mock", str))


def messages() -> Translator:
    """The core of the Messages adapter."""
    return MessagesTranslator(StreamFinishes("Mock", str), "m")


def recordings() -> list[bytes]:
    """Answers as services send them, in both dialects."""
    call = Call("read", {"path": "ü.txt", "lines": [1, 2.5, None, True]})
    scripted = [
        text_reply("Hello there, wörld 😀.", reasoning="Let me see."),
        tool_call_reply(call, call, text="I look."),
        text_reply("cut", finish="length"),
        message_text_reply("Hello there, wörld 😀.", reasoning="Let me see."),
        message_tool_reply(call, call, text="I look.", reasoning="Hm."),
        message_error_reply("e", 200, "down", kind="overloaded_error"),
    ]
    fault = message_opening() + message_event("error", error={"type": "api_error", "message": "x"})
    recorded = [path.read_bytes() for path in sorted(_CASES.glob("*.sse"))]
    return [*(reply.body for reply in scripted), fault, *recorded]


def mutated(body: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    """The body with some damage, from none to much."""
    data = bytearray(body)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3, 5, 8, 13))):
        at = chance.randrange(len(data) + 1)
        to = min(len(data), at + chance.choice((1, 1, 2, 4, 16, 64)))
        match chance.randrange(8):
            case 0 if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                del data[at:to]
            case 2:
                data[at:at] = chance.choice(_TOKENS)
            case 3:
                data[at:to] = chance.choice(_TOKENS)
            case 4:
                data[at:at] = data[at:to]
            case 5:
                del data[at:]
            case 6:
                other = chance.choice(others)
                start = chance.randrange(len(other) + 1)
                data[at:at] = other[start : start + 200]
            case _:
                data[at:to] = chance.randbytes(to - at)
    return bytes(data)


def cut(body: bytes, chance: random.Random) -> list[bytes]:
    """The body in reads: whole, byte by byte, or at random places."""
    match chance.randrange(6):
        case 0:
            return [body[at : at + 1] for at in range(len(body))]
        case 1 | 2:
            edges = sorted({0, len(body), *(chance.randrange(len(body) + 1) for _ in range(8))})
            return [body[a:b] for a, b in pairwise(edges)]
        case _:
            return [body] if body else []


def judge(reads: Sequence[bytes], make: Judge) -> str:
    """Read a body through an adapter's core; how it ended.

    Raises:
        AssertionError: The stream broke a rule.
    """
    framer, translator = Framer("text/event-stream"), make()
    assembler, recorder = BlockAssembler(), AssistantStreamAccumulator()
    chunks: list[StreamChunk] = []
    size = sum(map(len, reads))
    started = time.monotonic()
    try:
        for read in (*reads, None):
            for events in framer.finish() if read is None else framer.feed(read):
                if not translator.finished:
                    translator.events(events, chunks)
        if not translator.finished:
            translator.end(chunks)
    except LlmError as error:
        chunks.append(FinishChunk(ErrorFinish(error.failure)))
    assert time.monotonic() - started < LIMIT_S, "took too long"
    check_stream(chunks)
    for chunk in chunks:
        assembler.push(chunk)
        recorder.push(0, chunk)
    kept = len(msgspec.json.encode([to_json(chunk) for chunk in chunks]))
    assert kept < 1000 + 40 * size, f"{kept} bytes are kept of {size}"
    assembler.interrupted_blocks()
    recorder.snapshot()
    reason = assembler.finish
    return reason.failure.code if isinstance(reason, ErrorFinish) else reason.kind


def _core(count: int, chance: random.Random, bodies: Sequence[bytes]) -> Counter[str]:
    ends: Counter[str] = Counter()
    for number in range(count):
        body = mutated(chance.choice(bodies), chance, bodies)
        reads = cut(body, chance)
        for make in (chat, messages):
            try:
                ends[judge(reads, make)] += 1
            except BaseException:
                sys.stdout.write(f"body {number}, {make.__name__}: {reads!r}\n")
                raise
        if number and number % 20_000 == 0:
            sys.stdout.write(f"{number} bodies\n")
            sys.stdout.flush()
    return ends


async def over_http(count: int, chance: random.Random, bodies: Sequence[bytes]) -> Counter[str]:
    """Damaged bodies over a real connection and through the service."""
    ends: Counter[str] = Counter()
    replies = []
    for _ in range(count):
        reads = cut(mutated(chance.choice(bodies), chance, bodies), chance)
        ending = chance.choice(("complete", "complete", "complete", "disconnect", "reset"))
        # A reset may overtake what was sent: an empty read would be a reply of its own.
        replies.append(raw_reply([read for read in reads if read], ending=ending))  # type: ignore[arg-type]  # a choice of literals
    async with MockServer(replies) as server, Context() as ctx:
        ctx.plugin(LlmService)
        await ctx.settled()
        llm: LlmService = ctx.llm
        adapters = (
            OpenAiAdapter({"chat": {"base_url": server.base_url}}),
            AnthropicAdapter({"messages": {"base_url": server.base_url}}),
        )
        for adapter in adapters:
            llm.register_adapter(adapter.providers, adapter)
        for number in range(count):
            options = GenerateOptions(
                provider=("chat", "messages")[number % 2],
                model="m",
                messages=[create_user_message("hi")],
            )
            with anyio.fail_after(5):
                chunks = [chunk async for chunk in llm.stream(options)]
            check_stream(chunks)
            last = chunks[-1]
            assert isinstance(last, FinishChunk)
            reason = last.reason
            ends[reason.failure.code if isinstance(reason, ErrorFinish) else reason.kind] += 1
        for adapter in adapters:
            await adapter.aclose()
    return ends


def _option(name: str, default: int) -> int:
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default


def main() -> None:
    """Run the shares that the command line names."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 200_000
    seed = _option("--seed", 1)
    bodies = recordings()
    started = time.monotonic()
    ends = _core(count, random.Random(seed), bodies)
    sys.stdout.write(f"{count} bodies, each through both cores: {dict(ends.most_common())}\n")
    share = _option("--http", 4000)
    found = anyio.run(over_http, share, random.Random(seed), bodies)
    sys.stdout.write(f"{share} over HTTP: {dict(found.most_common())}\n")
    sys.stdout.write(f"{time.monotonic() - started:.0f} s\n")


if __name__ == "__main__":
    main()
