"""For tests of what starts processes. Needs no test framework."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio

from dsh_cordis import Context

from ._group import ProcessGroup
from .collector import Collector
from .process import ChildProcess
from .runtime import SubprocessRuntime
from .types import Collect, Finished, Input, SpawnSpec


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
