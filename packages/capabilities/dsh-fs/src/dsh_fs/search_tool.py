"""The tools `glob` and `grep`, on ripgrep. Mountable on their own.

Upstream: packages/fs/tool-glob/src/index.ts and packages/fs/tool-grep/src/index.ts.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Final

from dsh_cordis import Context
from dsh_system_prompt import SystemPrompt, section_order
from dsh_tools import (
    CallView,
    ResultView,
    ToolDefinition,
    ToolExecutionResult,
    ToolRegistry,
    ToolRunContext,
    tool,
)
from dsh_tools.presentation import GenericCall, SearchResult

from . import texts
from ._ripgrep import DISTRIBUTION, TIMEOUT_MS, ripgrep_program, search
from ._ripgrep import RunsCommands as RunsCommands  # the seam for runtimes
from ._ripgrep import search_alone as search_alone  # used where there is no runtime
from ._search_values import (
    GlobValue,
    GrepValue,
    Match,
    is_over_cap,
    read_matches,
    read_paths,
    render_glob,
    render_grep,
)
from ._settings import SearchSettings
from ._spilling import SavesText, spill_over_cap
from .errors import FsError, SearchError
from .service import FsService
from .tools import resolve
from .types import FsTarget

_PROCESSES: Final = {"/": "--glob=!/proc/[0-9]*", "/proc": "--glob=!/[0-9]*"}
"""By the folder of the search: what running programs keep to themselves is not searched."""
VERSION_CONTROL: Final = (".git", ".svn", ".hg", ".bzr", ".jj", ".sl")


class Needs(Context):
    """What the search tools work with."""

    fs: FsService
    tools: ToolRegistry
    system_prompt: SystemPrompt
    subprocess: RunsCommands | None = None
    spill_store: SavesText | None = None


def search_tools(ctx: Needs, config: SearchSettings) -> None:
    """Register the tools and their prompt sections; without ripgrep there are none."""
    if ripgrep_program() is None:
        ctx.log.warning("fs.search_unavailable", missing=DISTRIBUTION)
        return
    definitions = (
        glob_tool(ctx, sample=config.sample_over_cap_glob_results),
        grep_tool(ctx),
    )
    for definition in definitions:
        ctx.tools.register(definition)
    for label, text in (("glob", texts.GLOB_SECTION), ("grep", texts.GREP_SECTION)):
        section = f"tool:{label}"
        ctx.system_prompt.section(section, section_order(section), text, interpolate=False)
    spill_over_cap(ctx, ctx.tools, definitions, lambda: ctx.spill_store)


apply = search_tools


def __getattr__(attribute: str) -> object:
    if attribute == "Config":  # of this module as a plugin; see `_settings`
        from .config import Config

        return Config
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")


def glob_tool(ctx: Needs, *, sample: bool) -> ToolDefinition:
    """The definition of `glob`."""

    @tool(
        description=texts.GLOB,
        render=lambda _, value: render_glob(value, sample=sample),
        presentation_meta=_meta,
        timeout_ms=TIMEOUT_MS,
        cancel="cooperative",
        present_call=_titled("Find"),
        present_result=_present,
    )
    async def glob(
        run: ToolRunContext,
        pattern: Annotated[str, texts.GLOB_PATTERN],
        path: Annotated[str, texts.GLOB_PATH] = ".",
    ) -> GlobValue:
        if not pattern.strip("/"):
            raise _malformed(pattern, "it names nothing")
        base, target = await _places(ctx, run, path)
        await _check_kind(ctx, run, target, directories_only=True)
        # A leading exclamation mark would turn the pattern round.
        plain = f"\\{pattern}" if pattern.startswith("!") else pattern
        options = [
            *("--files", "--null", "--sort=modified", "--no-ignore", "--hidden"),
            f"--glob={plain}",
            *(f"--glob=!**/{name}" for name in VERSION_CONTROL),
        ]
        found = await search(ctx.subprocess, options, ".", cwd=target.target_key, signal=run.signal)
        shown = _shower(base, target.target_key)
        return GlobValue([shown(each) for each in read_paths(found.output)], found.skipped or None)

    return glob


def grep_tool(ctx: Needs) -> ToolDefinition:
    """The definition of `grep`."""

    @tool(
        description=texts.GREP,
        render=lambda _, value: render_grep(value),
        presentation_meta=_meta,
        timeout_ms=TIMEOUT_MS,
        cancel="cooperative",
        present_call=_titled("Search for"),
        present_result=_present,
    )
    async def grep(
        run: ToolRunContext,
        pattern: Annotated[str, texts.GREP_PATTERN],
        path: Annotated[str, texts.GREP_PATH] = ".",
        include: Annotated[str | None, texts.GREP_INCLUDE] = None,
    ) -> GrepValue:
        if not pattern:
            raise _malformed(pattern, "it is empty and would match every line")
        options = ["--json", f"--regexp={pattern}"]
        if include is not None:
            options.append(f"--glob={_checked_include(include)}")
        base, target = await _places(ctx, run, path)
        folder, operand = target.target_key, "."
        if not await _check_kind(ctx, run, target, directories_only=False):
            folder, name = os.path.split(target.target_key)
            operand = f"./{name}"
        if folder in _PROCESSES:
            options.append(_PROCESSES[folder])
        found = await search(ctx.subprocess, options, operand, cwd=folder, signal=run.signal)
        shown = _shower(base, folder)
        matches = [
            Match(shown(each.path), each.line, each.text) for each in read_matches(found.output)
        ]
        return GrepValue(matches, found.skipped or None)

    return grep


# ---- arguments ------------------------------------------------------------------------------


async def _places(ctx: Needs, run: ToolRunContext, path: str) -> tuple[str, FsTarget]:
    """Real path of the working directory, and where to search."""
    base = await resolve(ctx.fs, run, ".")
    return base.target_key, await resolve(ctx.fs, run, path)


async def _check_kind(
    ctx: Needs, run: ToolRunContext, target: FsTarget, *, directories_only: bool
) -> bool:
    """True for a directory, false for a file.

    Raises:
        FsError: It is neither; opening a pipe or a device could wait for ever.
    """
    status = await ctx.fs.stat(target, signal=run.signal)
    shown = target.display_path
    if status is None:
        raise FsError(f"{shown} does not exist", "FS_NOT_FOUND", shown)
    if status.kind == "directory":
        return True
    if directories_only:
        raise FsError(f"{shown} is no directory", "FS_NOT_DIRECTORY", shown)
    if status.kind != "file":
        raise FsError(f"{shown} is no regular file", "FS_NOT_REGULAR_FILE", shown)
    return False


def _checked_include(include: str) -> str:
    if not include.strip() or include.startswith("!"):
        raise _malformed(include, "include is one glob of the files to search, such as `*.py`")
    depth = 0
    for character in include:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth <= 0:
            raise _malformed(include, "include is one glob; join several as `*.{py,md}`")
    return include


def _malformed(pattern: str, reason: str) -> SearchError:
    return SearchError(f"the pattern {pattern!r} is malformed: {reason}", "SEARCH_INVALID_PATTERN")


# ---- paths and views ------------------------------------------------------------------------


def _shower(base: str, folder: str) -> Callable[[str], str]:
    """Turns what ripgrep calls a file into a path relative to the working directory."""
    inside = folder == base or folder.startswith(base.rstrip(os.sep) + os.sep)
    prefix = os.path.relpath(folder, base) if inside else folder
    # A name that is not UTF-8 cannot go to a model as it is.
    readable = os.fsencode(prefix).decode("utf-8", "replace")

    def shown(path: str) -> str:
        return str(PurePosixPath(readable, path))

    return shown


def _titled(verb: str) -> Callable[[Mapping[str, Any]], CallView]:
    return lambda arguments: GenericCall(f"{verb} {arguments['pattern']}", kind="search")


def _meta(arguments: object, value: Mapping[str, Any]) -> dict[str, Any]:
    shape = "paths" if "paths" in value else "matches"
    return {"shape": shape, "truncated": is_over_cap(value), "total": len(value[shape])}


def _present(arguments: object, result: ToolExecutionResult) -> ResultView | None:
    meta = result.meta
    if not isinstance(meta, Mapping) or meta.keys() != {"shape", "truncated", "total"}:
        return None
    known: Mapping[str, Any] = meta
    return SearchResult(shape=known["shape"], truncated=known["truncated"], total=known["total"])
