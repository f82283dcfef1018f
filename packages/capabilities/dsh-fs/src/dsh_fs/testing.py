"""For tests of what works with files: an agent in a folder. Needs no test framework."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

import anyio

from dsh_agent import Agent
from dsh_tools import ToolExecutionResult
from dsh_tools.testing import ToolBench, tool_bench

from . import _plugin
from .config import Config
from .service import FsService

_LIMIT_S: Final = 20


class FileBench:
    """An agent that works in a folder.

    Attributes:
        tools: The bench below, with ``tools.ctx`` as the root context.
        agent: Its working directory is the folder.
    """

    def __init__(self, tools: ToolBench, root: Path) -> None:
        self.tools = tools
        self.agent: Agent = tools.agent(cwd=str(root))

    @property
    def fs(self) -> FsService:
        """The service."""
        return cast("FsService", self.tools.ctx.fs)

    async def run(self, name: str, /, **arguments: object) -> ToolExecutionResult:
        """Call a tool for the agent; bounded."""
        with anyio.fail_after(_LIMIT_S):
            return await self.tools.run_as(self.agent, name, **arguments)


@asynccontextmanager
async def file_bench(root: Path, **config: object) -> AsyncIterator[FileBench]:
    """The whole capability on a root of its own.

    Args:
        root: The workspace, and the working directory of the agent.
        **config: More of the configuration.
    """
    async with tool_bench() as tools:
        settings = Config.model_validate({"root": root, **config})
        await tools.ctx.plugin(_plugin.apply, settings)
        await tools.ctx.settled()
        yield FileBench(tools, root)


def no_staging_left(root: Path) -> bool:
    """True if no write below `root` left its staging directory behind."""
    return not any(root.rglob(".dsh-stage-*"))
