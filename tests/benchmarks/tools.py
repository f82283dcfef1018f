"""What a tool call and a prompt cost, in ratios of one run: `python tests/benchmarks/tools.py [--once]`.

The yardstick is an empty awaited function. Sides are interleaved, so that a busy machine slows all
of them, and the best round counts. Names of parts select. `--once` makes everything small, to see
that it works.
"""

import gc
import sys
import time
from collections.abc import Awaitable, Callable, Mapping

import anyio
import anyio.lowlevel

from dsh_cordis import Next
from dsh_system_prompt import render_prompt
from dsh_tools import (
    PostToolDecision,
    PreToolDecision,
    ToolDefinition,
    ToolExecutionInput,
    ToolExecutionResult,
    ToolOutput,
    ToolRegistry,
    ToolsExecute,
    ToolsPostExecute,
    ToolsPreExecute,
    ToolsResult,
    tool,
)
from dsh_tools.testing import ToolBench, tool_bench

ONCE = "--once" in sys.argv
ROUNDS = 1 if ONCE else 40
CALLS = 10 if ONCE else 1000
BODY_S = 0.02

Side = Callable[[int], Awaitable[object]]
"""Does its work as often as it is told."""


async def _empty(arguments: object = None, run: object = None) -> str:
    return ""


NOOP = ToolDefinition(
    name="noop",
    description="Do nothing.",
    parameters={"type": "object", "properties": {}},
    output=ToolOutput(schema={"type": "string"}, render=lambda arguments, value: value),
    execute=_empty,
)


@tool
async def typed(path: str, limit: int = 3) -> str:
    """Answer with a part of a text.

    Args:
        path: The text.
        limit: Length of the part.
    """
    return path[:limit]


@tool
async def waits() -> str:
    """Give way to others once."""
    await anyio.lowlevel.checkpoint()
    return ""


@tool(thread=True)
def blocks() -> str:
    """Run in a thread."""
    return ""


@tool(concurrency_safe=True)
async def sleeps() -> str:
    """Take twenty milliseconds."""
    await anyio.sleep(BODY_S)
    return ""


async def _plain(times: int) -> None:
    for _ in range(times):
        await _empty()


def _through(registry: ToolRegistry, call: ToolExecutionInput) -> Side:
    async def side(times: int) -> None:
        for _ in range(times):
            await registry.execute(call)

    return side


async def _best(sides: Mapping[str, Side], times: Mapping[str, int]) -> dict[str, float]:
    """Seconds of one time of each side, the best of several interleaved rounds."""
    found = dict.fromkeys(sides, float("inf"))
    gc.collect()
    gc.disable()
    try:
        for _ in range(ROUNDS):
            for name, side in sides.items():
                count = times.get(name, CALLS)
                began = time.perf_counter()
                await side(count)
                found[name] = min(found[name], (time.perf_counter() - began) / count)
    finally:
        gc.enable()
    return found


def _say(name: str, value: float, unit: str, ratio: float | None = None) -> None:
    compared = "" if ratio is None else f"{ratio:.0f}"
    sys.stdout.write(f"| {name} | {compared} | {value:.3g} {unit} |\n")
    sys.stdout.flush()


async def _rows(sides: Mapping[str, Side], times: Mapping[str, int] | None = None) -> None:
    took = await _best({"empty": _plain, **sides}, times or {})
    for name in sides:
        _say(name, took[name] * 1e6, "us", took[name] / took["empty"])


async def calls() -> None:
    """One call through all ten stages, of more and more demanding tools."""
    async with tool_bench(NOOP, typed, waits, blocks) as bench:
        agent = bench.agent()
        registry = bench.tools
        few = max(1, CALLS // 20)
        sides = {
            "a raw tool that does nothing": _through(registry, bench.call("noop", {})),
            "the same, called by an agent": _through(registry, bench.call("noop", {}, agent=agent)),
            "a typed function with an argument": _through(
                registry, bench.call("typed", {"path": "notes"})
            ),
            "a tool that waits, in a task of its own": _through(registry, bench.call("waits", {})),
            "a synchronous function in a thread": _through(registry, bench.call("blocks", {})),
        }
        names = list(sides)
        await _rows(sides, {names[3]: few, names[4]: few})


async def policies() -> None:
    """What takes part in a call, each alone."""

    async def ask(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
        return await next_()

    async def around(event: ToolsExecute, next_: Next[ToolExecutionResult]) -> ToolExecutionResult:
        return await next_()

    async def judge(event: ToolsPostExecute, next_: Next[PostToolDecision]) -> PostToolDecision:
        return await next_()

    async def with_(set_up: Callable[[ToolBench], object], name: str, count: int) -> None:
        async with tool_bench(NOOP) as bench:
            set_up(bench)
            await _rows({name: _through(bench.tools, bench.call("noop", {}))}, {name: count})

    few = max(1, CALLS // 20)
    await with_(
        lambda b: b.ctx.on(ToolsExecute, lambda event, next_: next_()),
        "with a wrapper that gives `next()` itself",
        CALLS,
    )
    await with_(
        lambda b: b.ctx.on(ToolsResult, lambda event: None), "with an observer of results", CALLS
    )
    await with_(lambda b: b.tools.guard(lambda run: None), "with a guard", few)
    await with_(lambda b: b.ctx.on(ToolsPreExecute, ask), "with a listener at the gate", few)
    await with_(lambda b: b.ctx.on(ToolsExecute, around), "with a wrapper", few)
    await with_(lambda b: b.ctx.on(ToolsPostExecute, judge), "with a judge", few)


async def overlapping() -> None:
    """Fifty bodies of 20 ms at once."""
    async with tool_bench(sleeps) as bench:
        best = float("inf")
        for _ in range(max(1, ROUNDS // 4)):
            began = time.perf_counter()
            async with anyio.create_task_group() as tasks:
                for _ in range(50):
                    tasks.start_soon(bench.run, "sleeps")
            best = min(best, time.perf_counter() - began)
        _say("fifty bodies of 20 ms at once", best * 1e3, "ms")


async def prompts() -> None:
    """An assembly in which nothing has changed, and one in which something has."""
    async with tool_bench(NOOP, typed, waits, blocks, sleeps) as bench:
        prompt = bench.ctx.system_prompt
        scope = bench.agent()
        for number in range(20):
            prompt.section(f"section {number}", number, f"Rule {number} for {{{{cwd}}}}.")
        prompt.variable("cwd", "/garden")
        turn = 0

        async def unchanged(times: int) -> None:
            for _ in range(times):
                render_prompt(await prompt.assemble(scope))

        async def changed(times: int) -> None:
            nonlocal turn
            for _ in range(times):
                turn += 1
                render_prompt(await prompt.assemble(scope, variables={"turn": str(turn)}))

        few = max(1, CALLS // 20)
        await _rows(
            {
                "20 sections and 5 tools, nothing changed": unchanged,
                "the same, a variable changed": changed,
            },
            {"the same, a variable changed": few},
        )


async def main() -> None:
    """Everything, or the parts that are named."""
    sys.stdout.write("| what | in empty awaited functions | |\n|---|---|---|\n")
    only = [name for name in sys.argv[1:] if not name.startswith("-")]
    parts = (calls, policies, overlapping, prompts)
    unknown = set(only) - {part.__name__ for part in parts}
    if unknown:
        raise SystemExit(f"no such part: {', '.join(sorted(unknown))}")
    for part in parts:
        if not only or part.__name__ in only:
            await part()


if __name__ == "__main__":
    anyio.run(main)
