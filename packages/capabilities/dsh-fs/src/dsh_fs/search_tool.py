"""The tool `glob`. Mountable on its own.

It walks the tree in a worker thread, with the rules ripgrep has for globs.
"""

import os
from typing import Annotated

from dsh_cordis import Context
from dsh_system_prompt import SystemPrompt, section_order
from dsh_tools import ToolDefinition, ToolRegistry, ToolRunContext, tool
from dsh_tools.presentation import GenericCall

from . import texts
from ._values import GlobValue, render_glob
from .service import FsService

TIMEOUT_MS = 30_000


class Needs(Context):
    """What the search tool works with."""

    fs: FsService
    tools: ToolRegistry
    system_prompt: SystemPrompt


def search_tools(ctx: Needs) -> None:
    """Register the tool and its prompt section."""
    ctx.tools.register(glob_tool(ctx))
    section = "tool:glob"
    ctx.system_prompt.section(
        section, section_order(section), texts.GLOB_SECTION, interpolate=False
    )


apply = search_tools


def glob_tool(ctx: Needs) -> ToolDefinition:
    """The definition of `glob`."""

    @tool(
        description=texts.GLOB,
        render=render_glob,
        timeout_ms=TIMEOUT_MS,
        cancel="cooperative",
        present_call=lambda arguments: GenericCall(f"Find {arguments['pattern']}", kind="search"),
    )
    async def glob(
        run: ToolRunContext,
        pattern: Annotated[str, texts.GLOB_PATTERN],
        path: Annotated[str, texts.GLOB_PATH] = ".",
    ) -> GlobValue:
        cwd = None if run.agent is None else run.agent.session.header.cwd
        base = await ctx.fs.resolve(".", cwd, signal=run.signal)
        directory = await ctx.fs.resolve(path, cwd, signal=run.signal)
        found = await ctx.fs.find(pattern, directory, signal=run.signal)
        return GlobValue([_shown(each, base.target_key) for each in found])

    return glob


def _shown(path: str, base: str) -> str:
    # A name that is not UTF-8 cannot go to a model as it is.
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return os.path.relpath(text, base) if text.startswith(base + os.sep) else text
