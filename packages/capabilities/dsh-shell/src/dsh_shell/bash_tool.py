"""The tool `bash`. Upstream: packages/shell/tool-bash/src/index.ts."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from dsh_brand import JsonValue
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
from dsh_tools.presentation import TerminalCall

from . import texts
from ._bash_runner import BashRunner, Request, Services
from ._bash_values import BashValue, present_bash, render_bash
from ._settings import BashSettings
from .runtime import SubprocessRuntime

_ESCALATION: Final = ("sandbox_permissions", "justification")


class Needs(Services):
    """What the tool works with."""

    subprocess: SubprocessRuntime
    tools: ToolRegistry
    system_prompt: SystemPrompt


def bash_tool(ctx: Needs, config: BashSettings) -> None:
    """Register the tool and its prompt section."""
    offer_by_service(
        ctx, ctx.tools, "sandbox", lambda sandboxed: bash_definition(ctx, config, sandboxed)
    )
    text = texts.BASH_SECTION
    if config.enable_run_in_background:
        text = f"{text} {texts.BASH_BACKGROUND_SECTION}"
    order = section_order("tool:bash")
    ctx.system_prompt.section("tool:bash", order, text, interpolate=False)


apply = bash_tool


def __getattr__(attribute: str) -> object:
    if attribute == "Config":  # of this module as a plugin; see `_settings`
        from .config import BashConfig

        return BashConfig
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")


def bash_definition(ctx: Needs, config: BashSettings, sandboxed: bool) -> ToolDefinition:
    """The definition of `bash`. Parameters for what is not there are not shown."""
    definition = _full_definition(BashRunner(ctx, config), config)
    hidden: list[str] = []
    if not config.enable_run_in_background:
        hidden.append("run_in_background")
    if not sandboxed:
        hidden += _ESCALATION
    return dataclasses.replace(definition, parameters=_without(definition.parameters, hidden))


def _without(schema: Mapping[str, JsonValue], hidden: list[str]) -> dict[str, JsonValue]:
    properties = schema["properties"]
    assert isinstance(properties, Mapping)
    return {**schema, "properties": {k: v for k, v in properties.items() if k not in hidden}}


def _full_definition(runner: BashRunner, config: BashSettings) -> ToolDefinition:
    limits = texts.BASH_TIMEOUT.format(
        default=config.default_timeout_ms, maximum=config.max_timeout_ms
    )

    @tool(
        description=texts.BASH,
        render=render_bash,
        cancel="cooperative",
        present_call=_present_call,
        present_result=present_bash,
    )
    async def bash(
        run: ToolRunContext,
        command: Annotated[str, texts.BASH_COMMAND],
        description: Annotated[str, texts.BASH_DESCRIPTION],
        timeoutMs: Annotated[Number | None, limits] = None,  # noqa: N803  # the name on the wire
        workdir: Annotated[str | None, texts.BASH_WORKDIR] = None,
        run_in_background: Annotated[bool, texts.BASH_BACKGROUND] = False,
        sandbox_permissions: Annotated[
            Literal["workspace-write", "danger-full-access"] | None, texts.BASH_PERMISSIONS
        ] = None,
        justification: Annotated[str | None, texts.BASH_JUSTIFICATION] = None,
    ) -> BashValue:
        request = Request(
            command=command,
            description=description,
            timeout_ms=timeoutMs,
            workdir=workdir,
            permissions=sandbox_permissions,
            justification=justification,
        )
        if "run_in_background" in _sent(run) and not config.enable_run_in_background:
            raise ValueError(texts.BACKGROUND_DISABLED)
        if run_in_background:
            return await runner.background(run, request)
        return await runner.foreground(run, request)

    return bash


def _sent(run: ToolRunContext) -> Mapping[str, Any]:
    return run.arguments if isinstance(run.arguments, Mapping) else {}


def _present_call(arguments: Mapping[str, Any]) -> CallView:
    return TerminalCall(
        arguments["command"], description=arguments["description"], cwd=arguments.get("workdir")
    )
