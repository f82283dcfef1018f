"""For tests of what starts processes: a runtime, or an agent with a shell. Needs no framework."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

import anyio

from dsh_agent import Agent
from dsh_cordis import Context
from dsh_tools import ToolExecutionResult
from dsh_tools.testing import ToolBench, tool_bench

from . import _plugin
from ._group import ProcessGroup
from .collector import Collector
from .config import Config
from .process import ChildProcess
from .runtime import SubprocessRuntime
from .sandbox import Sandbox
from .types import Collect, Finished, Input, SpawnSpec

_LIMIT_S: Final = 10


class ShellBench:
    """An agent with a shell.

    Attributes:
        tools: The bench below, with ``tools.ctx`` as the root context.
        agent: Its commands run in the folder of the bench.
    """

    def __init__(self, tools: ToolBench, root: Path) -> None:
        self.tools = tools
        self.agent: Agent = tools.agent(cwd=str(root))

    @property
    def runtime(self) -> SubprocessRuntime:
        """What runs the commands."""
        return cast("SubprocessRuntime", self.tools.ctx.subprocess)

    @property
    def sandbox(self) -> Sandbox:
        """What confines them, if the configuration asks for it."""
        return cast("Sandbox", self.tools.ctx.sandbox)

    async def bash(self, command: str, **arguments: object) -> ToolExecutionResult:
        """Call `bash` for the agent; bounded."""
        return await self.run("bash", command=command, description="test", **arguments)

    async def run(self, name: str, /, **arguments: object) -> ToolExecutionResult:
        """Call a tool for the agent; bounded."""
        with anyio.fail_after(_LIMIT_S):
            return await self.tools.run_as(self.agent, name, **arguments)


@asynccontextmanager
async def shell_bench(root: Path, **config: object) -> AsyncIterator[ShellBench]:
    """The whole capability on a root of its own.

    Args:
        root: Where commands run; outputs are saved below it.
        **config: More of the configuration.
    """
    settings = {"spill_root": root / "spill", "bash": {"grace_ms": 500}, **config}
    async with tool_bench() as tools:
        await tools.ctx.plugin(_plugin.apply, Config.model_validate(settings))
        await tools.ctx.settled()
        yield ShellBench(tools, root)


@asynccontextmanager
async def open_runtime() -> AsyncIterator[SubprocessRuntime]:
    """A runtime on a root of its own."""
    async with Context() as ctx:
        await ctx.plugin(SubprocessRuntime)
        yield cast("SubprocessRuntime", ctx.subprocess)


def bash_spec(
    command: str,
    *,
    cwd: Path | str = "/",
    grace_ms: int = 1000,
    max_bytes: int = 10_000,
    stdin: Input = "ignore",
) -> SpawnSpec:
    """A command whose both outputs are collected."""
    return SpawnSpec(
        argv=["bash", "-c", command],
        cwd=str(cwd),
        stdin=stdin,
        stdout=Collect(max_bytes),
        stderr=Collect(max_bytes),
        grace_ms=grace_ms,
    )


async def run_bash(
    runtime: SubprocessRuntime, command: str, *, timeout_ms: float = 5000, grace_ms: int = 1000
) -> Finished:
    """Run a command as `bash_spec` says."""
    return await runtime.run(bash_spec(command, grace_ms=grace_ms), timeout_ms=timeout_ms)


def is_alive(pid: int) -> bool:
    """True if a process runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")


def group_is_alive(group: int) -> bool:
    """True if any member of a process group runs."""
    watched = ProcessGroup(group)
    watched.leader_reaped = True
    return not watched.gone()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something outside this process, which tells nobody when it happens."""
    while not condition():  # noqa: ASYNC110  # see above
        await anyio.sleep(0.005)


async def until_output(child: ChildProcess) -> None:
    """Wait for the first byte on a collected stdout."""
    collector = child.stdout
    assert isinstance(collector, Collector)
    await until(lambda: collector.total_bytes > 0)


def open_descriptors() -> int:
    """How many descriptors this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
