"""A tool call through the whole pipeline against an empty awaited function.

All cases run in one event loop that is there already, each for `CALLS` calls.
"""

import atexit
from collections.abc import Callable, Mapping
from contextlib import ExitStack

import anyio.from_thread
import anyio.lowlevel

from dsh_tools import ToolDefinition, ToolOutput, tool
from dsh_tools.testing import ToolBench, tool_bench

BASELINE = "empty awaited functions"
CALLS = 10_000


async def _empty(arguments: object = None, run: object = None) -> str:
    return ""


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


NOOP = ToolDefinition(
    name="noop",
    description="Do nothing.",
    parameters={"type": "object", "properties": {}},
    output=ToolOutput(schema={"type": "string"}, render=lambda arguments, value: value),
    execute=_empty,
)


def cases() -> Mapping[str, Callable[[], object]]:
    """The same number of calls, through more and more of the pipeline."""
    stack = ExitStack()
    atexit.register(stack.close)
    portal = stack.enter_context(anyio.from_thread.start_blocking_portal())
    bench = stack.enter_context(portal.wrap_async_context_manager(tool_bench(NOOP, typed, waits)))

    async def plain() -> None:
        for _ in range(CALLS):
            await _empty()

    def through(name: str, **arguments: object) -> Callable[[], object]:
        return lambda: portal.call(_run, bench, name, arguments)

    return {
        "empty awaited functions": lambda: portal.call(plain),
        "raw tool that does nothing": through("noop"),
        "typed tool with arguments": through("typed", path="notes"),
        "tool that gives way once": through("waits"),
    }


async def _run(bench: ToolBench, name: str, arguments: Mapping[str, object]) -> None:
    registry = bench.tools
    call = bench.call(name, arguments)
    for _ in range(CALLS):
        await registry.execute(call)
