"""What a streamed answer costs in clients of others: `python -m tests.benchmarks.llm_peers [--once]`.

The same answers, from the server of `llm.py`, go through a loop by hand, through our adapter with all
that a log needs of a stream, and through the clients of others. Each side runs in a process of its
own, so that nobody pays for what another one imports; CPU time of that process counts, and the best
of interleaved rounds, as a ratio to the loop by hand. A client that is not installed has a row that
says so.
"""

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import httpx
from tests.benchmarks import llm

from dsh_llm import AssistantStreamAccumulator, BlockAssembler, TextDelta
from dsh_llm_http.transport import HttpxEngine
from dsh_llm_openai import OpenAiAdapter

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 3
REQUESTS = 100
HAND = "httpx lines + msgspec"
HEAD = "| client | a chunk | a request | first text | |\n|---|---|---|---|---|\n"

Ask = Callable[[], AsyncIterator[str]]
"""Sends one request and gives the texts of its answer as they come."""
Figures = Mapping[str, float]


def by_hand(url: str) -> Ask:
    """The yardstick: httpx, its line iterator, msgspec."""
    client = httpx.AsyncClient(timeout=None, trust_env=False)

    async def ask() -> AsyncIterator[str]:
        async with client.stream("POST", f"{url}/chat/completions", json=llm.BODY) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    yield llm.text_of(line[6:])

    return ask


def ours(url: str, *, fast: bool) -> Ask:
    """The whole adapter: typed chunks, assembler, compact stream."""
    adapter = OpenAiAdapter({"x": {"base_url": url}}, engine=HttpxEngine(fast=fast))

    async def ask() -> AsyncIterator[str]:
        assembler, recorder = BlockAssembler(), AssistantStreamAccumulator()
        async with aclosing(adapter.stream(llm.OPTIONS)) as stream:
            async for chunk in stream:
                assembler.push(chunk)
                recorder.push(1, chunk)
                if isinstance(chunk, TextDelta):
                    yield chunk.text
        assembler.blocks()
        recorder.snapshot()

    return ask


def peer(module: str) -> Any:
    """A module of a peer; `Any`, since the type checker runs where no peer is installed."""
    return import_module(module)


def openai_client(url: str) -> Ask:
    """The client of OpenAI."""
    client = peer("openai").AsyncOpenAI(api_key="k", base_url=url, max_retries=0)

    async def ask() -> AsyncIterator[str]:
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        async for chunk in stream:
            yield chunk.choices[0].delta.content or ""

    return ask


def langchain(url: str) -> Ask:
    """`ChatOpenAI` of LangChain."""
    model = peer("langchain_openai").ChatOpenAI(
        model="m", base_url=url, api_key="k", max_retries=0, stream_usage=False
    )

    async def ask() -> AsyncIterator[str]:
        async for chunk in model.astream("hi"):
            yield chunk.content

    return ask


def pydantic_ai(url: str) -> Ask:
    """An agent of Pydantic AI without tools."""
    provider = peer("pydantic_ai.providers.openai").OpenAIProvider(base_url=url, api_key="k")
    model = peer("pydantic_ai.models.openai").OpenAIChatModel("m", provider=provider)
    agent = peer("pydantic_ai").Agent(model)

    async def ask() -> AsyncIterator[str]:
        async with agent.run_stream("hi") as run:
            async for text in run.stream_text(delta=True, debounce_by=None):
                yield text

    return ask


SIDES: Mapping[str, tuple[str, Callable[[str], Ask]]] = {
    HAND: ("httpx", by_hand),
    "dsh-llm-openai": ("dsh_llm_openai", lambda url: ours(url, fast=False)),
    "dsh-llm-openai, `fast`": ("httpx_aiohttp", lambda url: ours(url, fast=True)),
    "openai": ("openai", openai_client),
    "langchain-openai": ("langchain_openai", langchain),
    "pydantic-ai": ("pydantic_ai", pydantic_ai),
}
"""The module that each side needs, and how it asks."""


async def figures(name: str, base: str, chunks: int, requests: int) -> Figures:
    """CPU us a chunk and a request, and ms to the first text."""
    make = SIDES[name][1]
    short, long = make(f"{base}/stream/{llm.SMALL}/v1"), make(f"{base}/stream/{chunks}/v1")
    for ask in (short, long):
        assert len([text async for text in ask() if text]) > 1  # connections, imports, caches
    gc.collect()
    started = time.process_time()
    async for _ in long():
        pass
    chunk = (time.process_time() - started) / chunks
    first: list[float] = []
    gc.collect()
    started = time.process_time()
    for _ in range(requests):
        asked, waited = time.perf_counter(), 0.0
        async for text in short():
            if text and not waited:
                waited = time.perf_counter() - asked
        first.append(waited)
    request = (time.process_time() - started) / requests
    return {
        "chunk": chunk * 1e6,
        "request": request * 1e6,
        "first": statistics.median(first) * 1e3,
    }


def measured(name: str, base: str, *, once: bool) -> Figures:
    """The figures of one side, from a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.llm_peers", "--side", name, base]
    if once:
        command.append("--once")
    kept = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
    done = subprocess.run(command, cwd=ROOT, env=kept, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(base: str, *, once: bool) -> None:
    """Measure every side and print the table."""
    best: dict[str, dict[str, float]] = {}
    for _ in range(1 if once else ROUNDS):
        for name, (module, _) in SIDES.items():
            if find_spec(module) is None:
                continue
            found = measured(name, base, once=once)
            kept = best.setdefault(name, dict(found))
            kept.update({key: min(kept[key], value) for key, value in found.items()})
    sys.stdout.write(HEAD)
    for name in SIDES:
        if name not in best:
            sys.stdout.write(f"| {name} | not installed | | | |\n")
            continue
        own, hand = best[name], best[HAND]
        ratios = [f"{own[key] / hand[key]:.2f}" for key in ("chunk", "request", "first")]
        shown = f"{own['chunk']:.1f} us, {own['request'] / 1e3:.2f} ms, {own['first']:.2f} ms"
        sys.stdout.write(f"| {' | '.join([name, *ratios])} | {shown} |\n")


def main() -> None:
    """Measure one side, or all of them beside each other."""
    once = "--once" in sys.argv
    if "--side" in sys.argv:
        name, base = sys.argv[sys.argv.index("--side") + 1 :][:2]
        sizes = (50, 2) if once else (llm.CHUNKS, REQUESTS)
        found = anyio.run(figures, name, base, *sizes)
        sys.stdout.write(json.dumps(found) + "\n")
        return
    with llm.server() as base:
        compare(base, once=once)


if __name__ == "__main__":
    main()
