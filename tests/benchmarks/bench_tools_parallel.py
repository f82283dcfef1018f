"""Fifty overlapping tool calls with bodies of 20 ms against one such call.

The ratio is what the other forty-nine add; 1.5 means that all of them are through after 30 ms.
"""

import atexit
from collections.abc import Callable, Mapping
from contextlib import ExitStack

import anyio
import anyio.from_thread

from dsh_tools import tool
from dsh_tools.testing import ToolBench, tool_bench

BASELINE = "one call"
BODY_S = 0.02


@tool(concurrency_safe=True)
async def sleeps() -> str:
    """Take twenty milliseconds."""
    await anyio.sleep(BODY_S)
    return ""


def cases() -> Mapping[str, Callable[[], object]]:
    """One call, and fifty at once."""
    stack = ExitStack()
    atexit.register(stack.close)
    portal = stack.enter_context(anyio.from_thread.start_blocking_portal())
    bench = stack.enter_context(portal.wrap_async_context_manager(tool_bench(sleeps)))
    return {
        "one call": lambda: portal.call(_overlapping, bench, 1),
        "fifty calls at once": lambda: portal.call(_overlapping, bench, 50),
    }


async def _overlapping(bench: ToolBench, count: int) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(bench.run, "sleeps")
