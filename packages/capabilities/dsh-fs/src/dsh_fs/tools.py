"""The tools `read`, `write` and `edit`. Mountable without the observation policy."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal, Protocol

from dsh_agent import Agent
from dsh_cordis import Context
from dsh_llm import AbortSignal
from dsh_system_prompt import SystemPrompt, section_order
from dsh_tools import (
    CallView,
    Number,
    ToolDefinition,
    ToolRegistry,
    ToolRunContext,
    offer_by_service,
    tool,
)
from dsh_tools.presentation import Diff, DiffCall, GenericCall, Location

from . import texts
from ._cards import change_meta, present_change
from ._values import (
    MAX_LINES,
    ChangeValue,
    ReadLine,
    ReadValue,
    render_edit,
    render_read,
    render_write,
)
from ._writing import Edit
from .errors import FsError
from .events import FsEditIntent, FsObserved, FsWriteIntent
from .service import FsService
from .types import (
    Change,
    EditExpectation,
    FilePolicy,
    FsTarget,
    FsVersion,
    WriteExpectation,
)

MAX_LINE_CHARS: Final = 2000
MAX_READ_BYTES: Final = 51_200
_ESCALATION: Final = ("sandbox_permissions", "justification")


Permissions = Literal["workspace-write", "danger-full-access"]


class GovernsFiles(Protocol):
    """The sandbox service, as far as it is used here."""

    async def decide(
        self,
        agent: Agent | None,
        tool_name: str,
        *,
        call_id: str,
        permissions: Permissions | None,
        justification: str | None,
        signal: AbortSignal,
    ) -> FilePolicy:
        """The policy of one call, which may ask for wider access than its session has."""
        ...


class Needs(Context):
    """What the file tools work with."""

    fs: FsService
    tools: ToolRegistry
    system_prompt: SystemPrompt
    sandbox: GovernsFiles | None = None


def file_tools(ctx: Needs) -> None:
    """Register the tools and their prompt sections."""
    ctx.tools.register(read_tool(ctx))
    for define in (write_tool, edit_tool):
        offer_by_service(ctx, ctx.tools, "sandbox", partial(define, ctx))
    sections = (("read", texts.READ_SECTION), ("write", texts.WRITE_SECTION))
    for label, text in (*sections, ("edit", texts.EDIT_SECTION)):
        section = f"tool:{label}"
        if label == "read" and ctx.fs.confined:
            text = f"{text} {texts.CONFINED}"
        ctx.system_prompt.section(section, section_order(section), text, interpolate=False)


apply = file_tools


def read_tool(ctx: Needs) -> ToolDefinition:
    """The definition of `read`."""

    @tool(
        description=texts.READ,
        render=render_read,
        concurrency_safe=True,
        present_call=lambda arguments: _view(arguments, "Read"),
    )
    async def read(
        run: ToolRunContext,
        file_path: Annotated[str, texts.READ_FILE_PATH],
        offset: Annotated[Number, texts.READ_OFFSET] = 1,
        limit: Annotated[Number, texts.READ_LIMIT] = MAX_LINES,
    ) -> ReadValue:
        first, most = _positive("offset", offset), _positive("limit", limit)
        target = await resolve(ctx.fs, run, file_path)
        try:
            window = await ctx.fs.read_lines(
                target,
                offset=first,
                limit=min(most, MAX_LINES),
                max_bytes=MAX_READ_BYTES,
                max_chars=MAX_LINE_CHARS,
                signal=run.signal,
            )
        except FsError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                _observed(ctx, run, target, None)
            raise
        _observed(ctx, run, target, window.version)
        lines = [ReadLine(first + index, text) for index, text in enumerate(window.lines)]
        return ReadValue(target.display_path, first, lines, window.total_lines)

    return read


def write_tool(ctx: Needs, sandboxed: bool = False) -> ToolDefinition:
    """The definition of `write`; in a sandbox a call may ask for wider access."""

    @tool(
        description=texts.WRITE,
        render=render_write,
        presentation_meta=change_meta,
        cancel="cooperative",
        present_call=_pending,
        present_result=present_change,
    )
    async def write(
        run: ToolRunContext,
        file_path: Annotated[str, texts.WRITE_FILE_PATH],
        content: Annotated[str, texts.WRITE_CONTENT],
        sandbox_permissions: Annotated[Permissions | None, texts.PERMISSIONS] = None,
        justification: Annotated[str | None, texts.JUSTIFICATION] = None,
    ) -> ChangeValue:
        policy = await _policy(ctx, run, sandbox_permissions, justification)
        target = await resolve(ctx.fs, run, file_path)

        async def unconditional() -> WriteExpectation | None:
            return None

        event = FsWriteIntent(target=target, actor=_actor(run))
        expected = await ctx.waterfall(event, unconditional)
        change = await ctx.fs.write_text(
            target, content, expected, policy=policy, signal=run.signal
        )
        return _done(ctx, run, target, change)

    return _for_sandbox(write, sandboxed)


def edit_tool(ctx: Needs, sandboxed: bool = False) -> ToolDefinition:
    """The definition of `edit`; in a sandbox a call may ask for wider access."""

    @tool(
        description=texts.EDIT,
        render=render_edit,
        presentation_meta=change_meta,
        cancel="cooperative",
        present_call=_diff,
        present_result=present_change,
    )
    async def edit(
        run: ToolRunContext,
        file_path: Annotated[str, texts.EDIT_FILE_PATH],
        old_string: Annotated[str, texts.EDIT_OLD],
        new_string: Annotated[str, texts.EDIT_NEW],
        replace_all: Annotated[bool, texts.EDIT_ALL] = False,
        sandbox_permissions: Annotated[Permissions | None, texts.PERMISSIONS] = None,
        justification: Annotated[str | None, texts.JUSTIFICATION] = None,
    ) -> ChangeValue:
        if not old_string:
            raise ValueError("old_string is empty; use write to create or replace a whole file")
        if old_string == new_string:
            raise ValueError("old_string and new_string are the same; nothing would change")
        policy = await _policy(ctx, run, sandbox_permissions, justification)
        target = await resolve(ctx.fs, run, file_path)

        async def unconditional() -> EditExpectation | None:
            return None

        event = FsEditIntent(target=target, actor=_actor(run))
        expected = await ctx.waterfall(event, unconditional)
        request = Edit(old_string, new_string, replace_all)
        change = await ctx.fs.edit_text(target, request, expected, policy=policy, signal=run.signal)
        return _done(ctx, run, target, change)

    return _for_sandbox(edit, sandboxed)


# ---- shared ---------------------------------------------------------------------------------


async def resolve(fs: FsService, run: ToolRunContext, path: str) -> FsTarget:
    """The file a model means: relative paths start at its session's working directory."""
    cwd = None if run.agent is None else run.agent.session.header.cwd
    return await fs.resolve(path, cwd, signal=run.signal)


async def _policy(
    ctx: Needs, run: ToolRunContext, permissions: Permissions | None, justification: str | None
) -> FilePolicy | None:
    sandbox = ctx.sandbox
    if sandbox is None:
        if permissions is not None or justification is not None:
            raise ValueError(
                "there is no sandbox here to be widened; leave sandbox_permissions out"
            )
        return None
    return await sandbox.decide(
        run.agent,
        run.name,
        call_id=run.call_id,
        permissions=permissions,
        justification=justification,
        signal=run.signal,
    )


def _for_sandbox(definition: ToolDefinition, sandboxed: bool) -> ToolDefinition:
    if sandboxed:
        return definition
    properties = definition.parameters["properties"]
    assert isinstance(properties, Mapping)
    shown = {k: v for k, v in properties.items() if k not in _ESCALATION}
    return dataclasses.replace(
        definition, parameters={**definition.parameters, "properties": shown}
    )


def _actor(run: ToolRunContext) -> object | None:
    return None if run.agent is None else run.agent.session


def _observed(
    ctx: Context,
    run: ToolRunContext,
    target: FsTarget,
    version: FsVersion | None,
) -> None:
    ctx.emit(FsObserved(target=target, version=version, actor=_actor(run)))


def _done(
    ctx: Context,
    run: ToolRunContext,
    target: FsTarget,
    change: Change,
) -> ChangeValue:
    _observed(ctx, run, target, change.version)
    return ChangeValue(target.display_path, change.operation, change.before, change.after)


def _positive(label: str, value: float) -> int:
    if value < 1 or int(value) != value:
        raise ValueError(f"{label} must be a positive whole number, not {value}")
    return int(value)


def _view(arguments: Mapping[str, Any], verb: str) -> CallView:
    path = arguments["file_path"]
    return GenericCall(f"{verb} {path}", kind="read", locations=(Location(path),))


def _pending(arguments: Mapping[str, Any]) -> CallView:
    path = arguments["file_path"]
    diff = Diff(path, None, arguments["content"])
    return DiffCall(f"Write {path}", (diff,), (Location(path),))


def _diff(arguments: Mapping[str, Any]) -> CallView:
    path = arguments["file_path"]
    diff = Diff(path, arguments["old_string"], arguments["new_string"])
    return DiffCall(f"Edit {path}", (diff,), (Location(path),))
