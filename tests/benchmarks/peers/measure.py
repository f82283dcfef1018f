"""One side in a process of its own; `compare.py` starts it and reads the line it prints.

    python -m tests.benchmarks.peers.measure SIDE CASE [URL] [--once]

The cases are `http`, which takes the URL, `process` and `creation`; all times are CPU seconds of
this process, with the collector of garbage as Python sets it. Without arguments: the names of the
sides, and which are installed.
"""

import gc
import importlib
import json
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import NamedTuple

import anyio

from .script import ANSWER, QUESTION, New, Script, Source, Talk

ONCE = "--once" in sys.argv
TURNS = 4 if ONCE else 200
WINDOW = 2 if ONCE else 20
"""Turns of which the median counts."""
ROUNDS = 3 if ONCE else 20
"""Tool calls of a turn with tools."""
REPEATS = 1 if ONCE else 7
AGENTS = 5 if ONCE else 1_000
WEIGHED = 5 if ONCE else 200
"""Agents whose memory is counted, which makes everything several times as slow."""

Figures = dict[str, float]


Opener = Callable[[Source], AbstractAsyncContextManager[New]]


class Side(NamedTuple):
    """One row of the tables."""

    name: str
    module: str
    """Beside this one; loaded in the process that measures it only, so that no other has it."""
    opener: str
    needs: tuple[str, ...] = ()
    """Modules of peers, outermost first."""
    only_http: bool = False

    def open(self, source: Source) -> AbstractAsyncContextManager[New]:
        """Ready to make agents."""
        opener: Opener = getattr(
            importlib.import_module(f".{self.module}", __package__), self.opener
        )
        return opener(source)

    def there(self) -> bool:
        """Whether it is installed."""
        return all(find_spec(module) is not None for module in self.needs)


SIDES = (
    Side("by hand", "hand", "bare"),
    Side("ours", "ours", "in_memory"),
    Side("ours, each event on the disk", "ours", "on_disk"),
    Side("`openai` client by hand", "hand", "openai_client", ("openai",), only_http=True),
    Side("pydantic-ai", "others", "pydantic_ai", ("pydantic_ai", "openai")),
    Side("LangGraph", "others", "langgraph", ("langgraph", "langgraph.graph", "langchain_openai")),
    Side("OpenAI Agents SDK", "others", "agents_sdk", ("agents", "agents.memory")),
    Side("smolagents", "others", "smolagents", ("smolagents", "openai")),
    Side("Strands", "others", "strands", ("strands", "openai")),
    Side("Agno", "others", "agno", ("agno", "openai")),
)


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """CPU seconds of one call."""
    began = time.process_time()
    await work()
    return time.process_time() - began


async def conversation(talk: Talk, check: Callable[[str, int], bool]) -> Figures:
    """A long conversation: the first turns, and the last."""
    spent: list[float] = []
    for turn in range(1, TURNS + 1):
        said = ""

        async def ask(number: int = turn) -> None:
            nonlocal said
            said = await talk(QUESTION.format(number))

        spent.append(await timed(ask))
        assert check(said, turn), f"turn {turn}: {said!r}"
    return {"early": median(spent[:WINDOW]), "late": median(spent[-WINDOW:])}


def counted(said: str, turn: int) -> bool:
    """The server tells how many messages it was sent: at least the whole conversation."""
    number, _, rest = said.strip().partition(" ")
    return rest.endswith(ANSWER) and int(number) >= 2 * turn - 1


def recited(said: str, _: int) -> bool:
    """The answer of the script."""
    return said.strip() == ANSWER


async def over_http(side: Side, url: str) -> Figures:
    """Plain turns."""
    async with side.open(url) as new:
        await (await new())(QUESTION.format(0))  # connections and whatever is made late
        return await conversation(await new(), counted)


async def in_process(side: Side) -> Figures:
    """Plain turns, and rounds of one tool call in a fresh conversation."""
    script = Script()

    async def with_tools(talk: Talk, calls: int) -> None:
        script.calls = calls
        assert recited(await talk(QUESTION.format(1)), 1)
        assert not script.calls

    async with side.open(script) as new:
        await with_tools(await new(), 1)
        figures = await conversation(await new(), recited)
        rounds: list[float] = []
        for _ in range(REPEATS):
            without = await timed(partial(with_tools, await new(), 0))
            rounds.append(await timed(partial(with_tools, await new(), ROUNDS)) - without)
        return {**figures, "round": median(rounds) / ROUNDS}


async def creation(side: Side) -> Figures:
    """Time of making agents, then the memory of some, before a turn and after it."""
    async with side.open(Script()) as new:
        await (await new())(QUESTION.format(0))
        began = time.process_time()
        agents = [await new() for _ in range(AGENTS)]
        took = (time.process_time() - began) / AGENTS
    async with side.open(Script()) as new:
        await (await new())(QUESTION.format(0))
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        agents = [await new() for _ in range(WEIGHED)]
        idle = traced() - before
        for talk in agents:
            await talk(QUESTION.format(1))
        used = traced() - before
        tracemalloc.stop()
    return {"create": took, "idle": idle / WEIGHED, "used": used / WEIGHED}


def traced() -> int:
    """Bytes that are in use."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def main(arguments: list[str]) -> object:
    """Measure one side in one case; nothing where it has no such case."""
    if not arguments:
        return {side.name: side.there() for side in SIDES}
    name, case, *rest = arguments
    (side,) = (side for side in SIDES if side.name == name)
    if side.only_http and case != "http":
        return None
    if case == "http":
        return anyio.run(over_http, side, rest[0])
    measure: Mapping[str, Callable[[Side], Awaitable[Figures]]] = {
        "process": in_process,
        "creation": creation,
    }
    return anyio.run(measure[case], side)


if __name__ == "__main__":
    found = main([argument for argument in sys.argv[1:] if argument != "--once"])
    sys.stdout.write(f"\n{json.dumps(found)}\n")
