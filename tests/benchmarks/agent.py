"""What an agent costs, in ratios of one run: `python tests/benchmarks/agent.py [--once]`.

The baselines are loops that somebody writes by hand: a list of messages, `async for` over the
model, a dictionary of functions as tools; over HTTP, httpx and json. Times are CPU times of this
process, sides are interleaved and the best round counts. `--once` makes everything small, to see
that it works.
"""

import gc
import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import AsyncExitStack, contextmanager
from itertools import pairwise

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx
from typing_extensions import override

import dsh_llm_openai
import dsh_session_jsonl
from dsh_agent import Agent
from dsh_brand import JsonValue
from dsh_cordis import Context
from dsh_llm import (
    AbortSignal,
    BlockEnd,
    BlockStart,
    CallId,
    FinishChunk,
    GenerateOptions,
    LlmModelInfo,
    LlmProviderInfo,
    LlmResolvedModelInfo,
    StopFinish,
    StreamChunk,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallsFinish,
)
from dsh_llm_scripted import MockServer, text_reply
from dsh_spine import spine
from dsh_tools import ToolDefinition, ToolOutput, ToolRunContext

ONCE = "--once" in sys.argv
ROUNDS = 1 if ONCE else 5
TURNS = 20 if ONCE else 400
AGENTS = 20 if ONCE else 1000
LONG = 40 if ONCE else 2000


class BenchModel:
    """Answers at once: with text of `deltas` deltas, or with a tool call, `calls` times in a row."""

    def __init__(self, deltas: int = 1, calls: int = 0) -> None:
        self.deltas = deltas
        self.calls = calls
        self._made = 0

    async def stream(self, options: GenerateOptions) -> AsyncIterator[StreamChunk]:
        """One answer."""
        if self.calls:
            self.calls -= 1
            self._made += 1
            block = ToolCallBlock(id=CallId(f"c{self._made}"), name="add", arguments='{"n": 1}')
            yield BlockStart(0, "tool-call")
            yield BlockEnd(0, block)
            yield FinishChunk(ToolCallsFinish())
            return
        yield BlockStart(0, "text")
        for _ in range(self.deltas):
            yield TextDelta(0, "word ")
        yield BlockEnd(0, TextBlock("word " * self.deltas))
        yield FinishChunk(StopFinish())

    async def list_models(
        self, provider: str, signal: AbortSignal | None = None
    ) -> list[LlmModelInfo]:
        """None."""
        return []

    async def resolve_model(
        self, provider: str, model: str, signal: AbortSignal | None = None
    ) -> LlmResolvedModelInfo:
        """Any."""
        return LlmResolvedModelInfo(provider=provider, id=model, name=model)

    def provider_info(self, provider: str) -> LlmProviderInfo:
        """The route."""
        return LlmProviderInfo(id=provider, name=provider)

    def provider_retry_policy(self, provider: str) -> None:
        """None."""


# ---- the loop that somebody writes by hand ---------------------------------------------------


class HandWritten:
    """A loop over the same model with an append-only log: a JSON line per event, ids and times."""

    def __init__(self, model: BenchModel) -> None:
        self.model = model
        self.lines: list[str] = []
        self.messages: list[dict[str, object]] = []
        self.tools: Mapping[str, Callable[[JsonValue], Awaitable[str]]] = {"add": add}

    def log(self, kind: str, **data: object) -> None:
        """Append an event."""
        event = {"seq": len(self.lines), "time": time.time(), "type": kind, "data": data}
        self.lines.append(json.dumps(event))

    def say(self, role: str, **data: object) -> None:
        """Append a message."""
        message: dict[str, object] = {"id": str(uuid.uuid4()), "role": role, **data}
        self.messages.append(message)
        self.log("message", message=message)

    async def turn(self, text: str) -> None:
        """One turn, with as many rounds of tools as the model wants."""
        self.log("turn/start")
        self.say("user", content=text)
        while True:
            options = GenerateOptions(provider="test", model="m", messages=())
            parts: list[str] = []
            times: list[float] = []
            calls: list[ToolCallBlock] = []
            async for chunk in self.model.stream(options):
                times.append(time.time())
                if isinstance(chunk, TextDelta):
                    parts.append(chunk.text)
                elif isinstance(chunk, BlockEnd) and isinstance(chunk.block, ToolCallBlock):
                    calls.append(chunk.block)
            asked = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in calls]
            self.say("assistant", content="".join(parts), calls=asked, times=times)
            for call in calls:
                self.log("tool/call", id=call.id)
                result = await self.tools[call.name](json.loads(call.arguments))
                self.say("tool", call=call.id, content=result)
            await anyio.lowlevel.checkpoint()
            if not calls:
                self.log("turn/end")
                return


async def add(arguments: JsonValue) -> str:
    """The tool."""
    return "2"


async def execute(arguments: JsonValue, run: ToolRunContext) -> str:
    """The tool as a body."""
    return await add(arguments)


TOOL = ToolDefinition(
    name="add",
    description="Add one.",
    parameters={"type": "object", "properties": {"n": {"type": "integer"}}},
    output=ToolOutput(schema={"type": "string"}, render=lambda arguments, value: value),
    execute=execute,
)


async def mounted(
    stack: AsyncExitStack,
    model: BenchModel,
    store: str | None = None,
    config: Mapping[str, object] | None = None,
) -> Context:
    """The spine over a model, with a store of plain logs in a folder if one is named."""
    ctx = await stack.enter_async_context(Context())
    _ = ctx.plugin(spine, config)
    if store is not None:
        _ = ctx.plugin(dsh_session_jsonl, {"root": store, "compression": "none"})
    await ctx.settled()
    ctx.llm.register_adapter(["test"], model)
    ctx.tools.register(TOOL)
    return ctx


async def turn(agent: Agent, text: str = "Say something.") -> None:
    """One turn of an agent."""
    agent.followup(text)
    await agent.when_idle()


async def best(sides: Mapping[str, Callable[[], Awaitable[float]]]) -> dict[str, float]:
    """The best of several interleaved rounds of each side, in seconds."""
    found = dict.fromkeys(sides, float("inf"))
    for _ in range(ROUNDS):
        for name, side in sides.items():
            gc.collect()
            gc.disable()
            try:
                found[name] = min(found[name], await side())
            finally:
                gc.enable()
    return found


def say(name: str, value: float, unit: str, ratio: float | None = None) -> None:
    """One row of the table."""
    compared = "" if ratio is None else f"{ratio:.2f}"
    sys.stdout.write(f"| {name} | {value:.4g} {unit} | {compared} |\n")
    sys.stdout.flush()


# ---- in process ------------------------------------------------------------------------------


async def per_turn() -> None:
    """A short plain turn."""

    async def ours() -> float:
        async with AsyncExitStack() as stack:
            ctx = await mounted(stack, BenchModel())
            agent = (await ctx.agents.create(provider="test", model="m")).agent
            await turn(agent)
            began = time.process_time()
            for _ in range(TURNS):
                await turn(agent)
            return (time.process_time() - began) / TURNS

    async def theirs() -> float:
        loop = HandWritten(BenchModel())
        began = time.process_time()
        for _ in range(TURNS):
            await loop.turn("Say something.")
        return (time.process_time() - began) / TURNS

    took = await best({"ours": ours, "theirs": theirs})
    say("a plain turn", took["ours"] * 1e6, "us", took["ours"] / took["theirs"])


async def per_turn_stored() -> None:
    """A short plain turn with a store on disk: written behind, and flushed before each request."""

    async def cost(config: Mapping[str, object]) -> float:
        async with AsyncExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            ctx = await mounted(stack, BenchModel(), folder, config)
            agent = (await ctx.agents.create(provider="test", model="m")).agent
            await turn(agent)
            began = time.process_time()
            for _ in range(TURNS // 4):
                await turn(agent)
            return (time.process_time() - began) / (TURNS // 4)

    async def theirs() -> float:
        loop = HandWritten(BenchModel())
        began = time.process_time()
        for _ in range(TURNS):
            await loop.turn("Say something.")
        return (time.process_time() - began) / TURNS

    took = await best(
        {
            "behind": lambda: cost({"checkpoint": False}),
            "flushed": lambda: cost({}),
            "theirs": theirs,
        }
    )
    by_hand = took["theirs"]
    say("a plain turn, stored", took["behind"] * 1e6, "us", took["behind"] / by_hand)
    flushed = took["flushed"]
    say("a plain turn, flushed before each request", flushed * 1e6, "us", flushed / by_hand)


async def per_chunk() -> None:
    """What a further delta costs."""

    async def cost(run: Callable[[int], Awaitable[float]]) -> float:
        return (await run(4000) - await run(10)) / 3990

    async def ours(deltas: int) -> float:
        async with AsyncExitStack() as stack:
            ctx = await mounted(stack, BenchModel(deltas))
            agent = (await ctx.agents.create(provider="test", model="m")).agent
            began = time.process_time()
            await turn(agent)
            return time.process_time() - began

    async def theirs(deltas: int) -> float:
        loop = HandWritten(BenchModel(deltas))
        began = time.process_time()
        await loop.turn("Say something.")
        return time.process_time() - began

    took = await best({"ours": lambda: cost(ours), "theirs": lambda: cost(theirs)})
    say("a text delta", took["ours"] * 1e6, "us", took["ours"] / took["theirs"])


async def rounds(count: int, last: int) -> tuple[float, float]:
    """Seconds per round of some early and of the `last` rounds of one turn, ours."""
    async with AsyncExitStack() as stack:
        model = BenchModel(calls=count)
        ctx = await mounted(stack, model)
        agent = (await ctx.agents.create(provider="test", model="m")).agent
        times: list[float] = []
        inner = model.stream

        async def stamped(options: GenerateOptions) -> AsyncIterator[StreamChunk]:
            times.append(time.process_time())
            async for chunk in inner(options):
                yield chunk

        vars(model)["stream"] = stamped
        await turn(agent)
        gaps = [after - before for before, after in pairwise(times)]
        early, late = sorted(gaps[10 : 10 + last]), sorted(gaps[-last:])
        # The lower decile: what a busy machine adds to single rounds is no cost of theirs.
        return early[len(early) // 10], late[len(late) // 10]


async def per_round() -> None:
    """A round of one tool call."""

    async def theirs() -> float:
        loop = HandWritten(BenchModel(calls=TURNS))
        began = time.process_time()
        await loop.turn("Say something.")
        return (time.process_time() - began) / TURNS

    async def ours() -> float:
        return (await rounds(TURNS, TURNS // 4))[0]

    took = await best({"ours": ours, "theirs": theirs})
    say("a round of one tool call", took["ours"] * 1e6, "us", took["ours"] / took["theirs"])
    early, late = await rounds(LONG, LONG // 20)
    say(f"round {LONG} against round 20", late * 1e6, "us", late / early)


async def creation() -> None:
    """A thousand agents of one process: CPU time, the garbage collector's included, and memory."""
    async with AsyncExitStack() as stack:
        ctx = await mounted(stack, BenchModel())
        await ctx.agents.create(provider="test", model="m")
        took: list[float] = []
        for _ in range(ROUNDS):
            gc.collect()
            began = time.process_time()
            for _ in range(AGENTS // ROUNDS):
                await ctx.agents.create(provider="test", model="m")
            took.append((time.process_time() - began) / (AGENTS // ROUNDS))
        say("creating an agent", min(took) * 1e6, "us")
    async with AsyncExitStack() as stack:
        ctx = await mounted(stack, BenchModel())
        await turn((await ctx.agents.create(provider="test", model="m")).agent)
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        agents = [
            (await ctx.agents.create(provider="test", model="m")).agent for _ in range(AGENTS)
        ]
        say("an agent that did nothing yet", _kib_since(before), "KiB")
        for agent in agents:
            await turn(agent)
        say("an agent after a turn", _kib_since(before), "KiB")
        tracemalloc.stop()


def _kib_since(before: int) -> float:
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    return (after - before) / AGENTS / 1024


async def cancelling() -> None:
    """From `cancel()` in the middle of a reply until idle."""

    class Endless(BenchModel):
        @override
        async def stream(self, options: GenerateOptions) -> AsyncIterator[StreamChunk]:
            yield BlockStart(0, "text")
            yield TextDelta(0, "half ")
            reached.set()
            await anyio.sleep_forever()

    reached = anyio.Event()
    async with AsyncExitStack() as stack:
        ctx = await mounted(stack, Endless())
        agent = (await ctx.agents.create(provider="test", model="m")).agent

        async def one() -> float:
            nonlocal reached
            reached = anyio.Event()
            agent.followup("Say something.")
            await reached.wait()
            began = time.process_time()
            agent.cancel()
            await agent.when_idle()
            return time.process_time() - began

        took = min([await one() for _ in range(ROUNDS * 10)])
        say("from cancel to idle, in a reply", took * 1e6, "us")


# ---- over HTTP -------------------------------------------------------------------------------


async def over_http() -> None:
    """Turns over loopback against a bare loop of httpx and json; the server is another process."""
    marks = [TURNS // 2] if ONCE else [200, 2000]
    with serving() as base_url:
        ours = await _agent_over_http(base_url, marks)
        theirs = await _bare_over_http(base_url, marks)
    for mark, mine, bare in zip(marks, ours, theirs, strict=True):
        say(f"a turn over HTTP, at turn {mark}", mine * 1e6, "us CPU", mine / bare)


@contextmanager
def serving() -> Generator[str]:
    """A mock provider in a process of its own, so that what it costs counts for nobody."""
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the server has no pipes")
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


async def serve() -> None:
    """Be that process, until the other end of the pipe is closed."""
    async with MockServer(text_reply("Fine, thanks."), repeat_last=True) as server:
        sys.stdout.write(f"{server.base_url}\n")
        sys.stdout.flush()
        await anyio.to_thread.run_sync(sys.stdin.read)


async def _timed(marks: list[int], one: Callable[[], Awaitable[None]]) -> list[float]:
    spent: list[float] = []
    found: list[float] = []
    for number in range(1, max(marks) + 1):
        began = time.process_time()
        await one()
        spent.append(time.process_time() - began)
        if number in marks:
            window = sorted(spent[-100:])
            found.append(window[len(window) // 2])
    return found


async def _agent_over_http(base_url: str, marks: list[int]) -> list[float]:
    async with Context() as ctx:
        profile = {"preset": "generic", "base_url": base_url, "anonymous": True}
        _ = ctx.plugin(spine)
        _ = ctx.plugin(dsh_llm_openai, {"providers": {"mock": profile}})
        await ctx.settled()
        agent = (await ctx.agents.create(provider="mock", model="m")).agent
        return await _timed(marks, lambda: turn(agent))


async def _bare_over_http(base_url: str, marks: list[int]) -> list[float]:
    messages: list[dict[str, str]] = []
    async with httpx.AsyncClient() as client:

        async def one() -> None:
            messages.append({"role": "user", "content": "Say something."})
            body = {"model": "m", "messages": messages, "stream": True}
            parts: list[str] = []
            url = f"{base_url}/chat/completions"
            async with client.stream("POST", url, json=body) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        choices = json.loads(line[6:])["choices"]
                        parts += [c["delta"].get("content") or "" for c in choices]
            messages.append({"role": "assistant", "content": "".join(parts)})

        return await _timed(marks, one)


# ---- start-up --------------------------------------------------------------------------------


MINIMAL = """
import anyio
import dsh_llm_openai
from dsh_cordis import Context
from dsh_spine import spine
from dsh_tools import tool

@tool(description="Add two numbers.")
async def add(a: int, b: int) -> str:
    return str(a + b)

async def main():
    async with Context() as ctx:
        ctx.plugin(spine)
        ctx.plugin(dsh_llm_openai, {"providers": {"x": {"base_url": "http://127.0.0.1:9"}}})
        await ctx.settled()
        ctx.tools.register(add)
        await ctx.agents.create(provider="x", model="m")

anyio.run(main)
"""


def start_up() -> None:
    """Programs that import the spine or make an agent, against the import of what they use."""
    programs = {
        "theirs": "import anyio, msgspec, httpx",
        "import dsh_spine": "import dsh_spine",
        "import dsh_spine, dsh_llm_openai": "import dsh_spine, dsh_llm_openai",
        "a program up to its agent, with a tool and a provider": MINIMAL,
    }
    took = dict.fromkeys(programs, float("inf"))
    for _ in range(ROUNDS * 2):
        for name, program in programs.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True)
            took[name] = min(took[name], time.perf_counter() - began)
    theirs = took.pop("theirs")
    for name, seconds in took.items():
        say(name, seconds * 1e3, "ms", seconds / theirs)


async def main() -> None:
    """Everything."""
    if "--serve" in sys.argv:
        await serve()
        return
    sys.stdout.write("| case | best | against the baseline |\n|---|---|---|\n")
    only = [name for name in sys.argv[1:] if not name.startswith("-")]
    for measure in (
        per_turn,
        per_turn_stored,
        per_chunk,
        per_round,
        creation,
        cancelling,
        over_http,
    ):
        if not only or measure.__name__ in only:
            await measure()
    if not only or "start_up" in only:
        start_up()


if __name__ == "__main__":
    anyio.run(main)
