"""A turn over HTTP beside other harnesses: `agent_peers.py [PEER_PYTHON [TURNS]]`.

One conversation of 200 turns or more against one mock server, which is a process of its own. Every row is
the CPU time of a turn at turn 20 and at the last one (the median of the twenty turns before it),
as ratios to a bare loop of httpx and json in the same run. Each side runs in a process of its own;
those of others in `PEER_PYTHON`, the interpreter of a throwaway environment that holds them.
"""

import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import anyio

PROMPT: Final = "Say something."
One = Callable[[], Awaitable[object]]
Side = Callable[[str, AsyncExitStack], Awaitable[One]]


async def bare(base_url: str, stack: AsyncExitStack) -> One:
    """httpx and json."""
    import httpx

    client = await stack.enter_async_context(httpx.AsyncClient())
    messages: list[dict[str, str]] = []

    async def one() -> None:
        messages.append({"role": "user", "content": PROMPT})
        body = {"model": "m", "messages": messages, "stream": True}
        parts: list[str] = []
        async with client.stream("POST", f"{base_url}/chat/completions", json=body) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    choices = json.loads(line[6:])["choices"]
                    parts.extend(c["delta"].get("content") or "" for c in choices)
        messages.append({"role": "assistant", "content": "".join(parts)})

    return one


async def ours(base_url: str, stack: AsyncExitStack) -> One:
    """The whole spine over dsh-llm-openai."""
    import dsh_llm_openai
    from dsh_cordis import Context
    from dsh_spine import ask, spine

    ctx = await stack.enter_async_context(Context())
    profile = {"preset": "generic", "base_url": base_url, "anonymous": True}
    _ = ctx.plugin(spine)
    _ = ctx.plugin(dsh_llm_openai, {"providers": {"mock": profile}})
    await ctx.settled()
    agent = (await ctx.agents.create(provider="mock", model="m")).agent
    return lambda: ask(agent, PROMPT)


def _peer(module: str) -> Any:  # packages that are not installed where this is checked
    return importlib.import_module(module)


async def openai_client(base_url: str, stack: AsyncExitStack) -> One:
    """The `openai` client and a list of messages."""
    client = _peer("openai").AsyncOpenAI(base_url=base_url, api_key="none")
    messages: list[dict[str, str]] = []

    async def one() -> None:
        messages.append({"role": "user", "content": PROMPT})
        stream = await client.chat.completions.create(model="m", messages=messages, stream=True)
        parts = [c.delta.content or "" async for chunk in stream for c in chunk.choices]
        messages.append({"role": "assistant", "content": "".join(parts)})

    return one


async def openai_agents(base_url: str, stack: AsyncExitStack) -> One:
    """The OpenAI Agents SDK, streamed, over chat completions."""
    agents, openai = _peer("agents"), _peer("openai")
    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=base_url, api_key="none")
    model = agents.OpenAIChatCompletionsModel(model="m", openai_client=client)
    agent = agents.Agent(name="a", model=model)
    history: list[object] = []

    async def one() -> None:
        nonlocal history
        history = [*history, {"role": "user", "content": PROMPT}]
        result = agents.Runner.run_streamed(agent, history)
        async for _ in result.stream_events():
            pass
        history = result.to_input_list()

    return one


async def langgraph(base_url: str, stack: AsyncExitStack) -> One:
    """A LangGraph agent with an in-memory checkpointer, streamed."""
    model = _peer("langchain_openai").ChatOpenAI(base_url=base_url, api_key="none", model="m")
    memory = _peer("langgraph.checkpoint.memory").InMemorySaver()
    graph_module = _peer("langgraph.graph")

    async def call(state: Mapping[str, Any]) -> dict[str, list[Any]]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder = graph_module.StateGraph(graph_module.MessagesState)
    builder.add_node("model", call)
    builder.add_edge(graph_module.START, "model")
    graph = builder.compile(checkpointer=memory)
    config = {"configurable": {"thread_id": "one"}}

    async def one() -> None:
        given = {"messages": [{"role": "user", "content": PROMPT}]}
        async for _ in graph.astream(given, config, stream_mode="messages"):
            pass

    return one


async def pydantic_ai(base_url: str, stack: AsyncExitStack) -> One:
    """A pydantic-ai agent, streamed."""
    models, providers = _peer("pydantic_ai.models.openai"), _peer("pydantic_ai.providers.openai")
    provider = providers.OpenAIProvider(base_url=base_url, api_key="none")
    agent = _peer("pydantic_ai").Agent(models.OpenAIChatModel("m", provider=provider))
    history: list[object] = []

    async def one() -> None:
        nonlocal history
        async with agent.run_stream(PROMPT, message_history=history) as result:
            async for _ in result.stream_text(delta=True):
                pass
            history = result.all_messages()

    return one


OWN: Final[Mapping[str, Side]] = {"bare httpx and json": bare, "dsh-spine, dsh-llm-openai": ours}
PEERS: Final[Mapping[str, tuple[str, Side]]] = {
    "`openai` client, list of messages": ("openai", openai_client),
    "OpenAI Agents SDK": ("agents", openai_agents),
    "pydantic-ai": ("pydantic_ai", pydantic_ai),
    "LangGraph, `InMemorySaver`": ("langgraph", langgraph),
}


async def measured(side: Side, base_url: str, turns: int) -> list[float]:
    """CPU seconds of a turn early and at the end."""
    spent: list[float] = []
    async with AsyncExitStack() as stack:
        one = await side(base_url, stack)
        for _ in range(turns):
            began = time.process_time()
            await one()
            spent.append(time.process_time() - began)
    return [statistics.median(window) for window in (spent[:20], spent[-20:])]


def measured_there(python: str, name: str, base_url: str, turns: int) -> list[float] | None:
    """The same in a process of its own; `None` where the side is not installed."""
    command = [python, __file__, "--side", name, base_url, str(turns)]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    answer: list[float] | None = json.loads(found.splitlines()[-1])
    return answer


def side_process(name: str, base_url: str, turns: str) -> None:
    """Be that process."""
    needed, side = PEERS.get(name, ("anyio", OWN.get(name, bare)))
    found = None
    if find_spec(needed) is not None:
        found = anyio.run(measured, side, base_url, int(turns))
    sys.stdout.write(f"\n{json.dumps(found)}\n")


def main() -> None:
    """The table."""
    if sys.argv[1:2] == ["--side"]:
        side_process(*sys.argv[2:5])
        return
    sys.path.insert(0, str(Path(__file__).parent))
    serving = importlib.import_module("agent").serving
    there = sys.argv[1] if len(sys.argv) > 1 else sys.executable
    turns = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    sys.stdout.write(f"| a turn over HTTP | turn 20 | turn {turns} | | |\n|---|---|---|---|---|\n")
    with serving() as base_url:
        yardstick: list[float] = []
        for name in (*OWN, *PEERS):
            python = there if name in PEERS else sys.executable
            found = measured_there(python, name, base_url, turns)
            if found is None:
                sys.stdout.write(f"| {name} | not installed | | | |\n")
                continue
            yardstick = yardstick or found
            ratios = [took / base for took, base in zip(found, yardstick, strict=True)]
            cells = [*(f"{ratio:.2f}" for ratio in ratios), *(f"{t * 1e3:.2f} ms" for t in found)]
            sys.stdout.write(f"| {name} | {' | '.join(cells)} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
