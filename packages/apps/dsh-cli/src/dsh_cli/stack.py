"""The stack of plugins behind a command: spine, store, the user's rows, a provider, file tools."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

import dsh_fs
import dsh_llm_retry
import dsh_session_jsonl
from dsh_agent import Agent
from dsh_cli.errors import CliError
from dsh_cli.providers import ProviderChoice, load_plugin
from dsh_session_persistence import SessionPersistence
from dsh_spine import SpineContext, spine
from dsh_system_prompt import section_order

PERSONA = (
    "You work for a person at a terminal, in the folder {{cwd}}. Use the file tools to look at "
    "the files before you speak about them, make the changes that were asked for, and end with "
    "a short account of what you did."
)
SMALL_PERSONA = "You are a helpful assistant. Answer shortly."


class CliContext(SpineContext):
    """The services that the commands use."""

    session_persistence: SessionPersistence


@asynccontextmanager
async def mounted_stack(
    sessions: Path, config_file: Path | None = None
) -> AsyncIterator[CliContext]:
    """Mount spine, session store and the rows of `config_file`; leaving unmounts in order."""
    async with CliContext() as ctx:
        ctx.plugin(spine)
        ctx.plugin(dsh_llm_retry)
        # Plain text: people look into their logs, and any tool reads them.
        ctx.plugin(dsh_session_jsonl, {"root": sessions, "compression": "none"})
        await ctx.settled()
        if config_file is not None:
            # Imported here: rows bring pydantic, and most runs have none.
            from dsh_loader import load_rows, mount_rows

            await mount_rows(ctx, load_rows(config_file))
        yield ctx


async def mount_provider(ctx: CliContext, choice: ProviderChoice) -> ProviderChoice:
    """Mount the plugin of `choice`, see that its route is served, and settle the model.

    Raises:
        CliError: Nothing mounted serves the route, or it lists no model and none was named.
    """
    plugin = load_plugin(choice)
    if plugin is not None:
        ctx.plugin(plugin, dict(choice.config or {}))
        await ctx.settled()
    routes = [info.id for info in ctx.llm.list_providers()]
    if choice.route not in routes:
        served = ", ".join(repr(route) for route in routes) or "none"
        raise CliError(
            f"the provider {choice.route!r} is unknown: built in are 'deepseek', 'openai' and "
            f"'local'; plugin rows of dsh.toml serve {served}",
            "UNKNOWN_PROVIDER",
        )
    if choice.model is not None and not choice.small:
        return choice  # what a service lists is advice: it may serve more
    listed = await ctx.llm.list_models(choice.route)
    if choice.model is not None:
        known = [model.id for model in listed]
        if choice.model not in known:
            raise CliError(
                f"the provider {choice.route!r} has no model {choice.model!r}: it serves "
                f"{', '.join(map(repr, known))}",
                "UNKNOWN_MODEL",
            )
        return choice
    if not listed:
        raise CliError(
            f"the provider {choice.route!r} lists no models: name one with --model", "NO_MODEL"
        )
    return msgspec.structs.replace(choice, model=listed[0].id)


async def equip(ctx: CliContext, agent: Agent, choice: ProviderChoice, *, tools: bool) -> None:
    """Give the agent its persona and, with `tools`, the file tools on its session's folder."""
    prompt = agent.ctx.system_prompt
    order = section_order("deployment:persona")
    if choice.small:
        prompt.section("deployment:persona", order, SMALL_PERSONA)
        prompt.section("harness:identity", section_order("harness:identity"), "")
        prompt.suppress_runtime_context()
    else:
        prompt.section("deployment:persona", order, PERSONA)
    if tools:
        ctx.plugin(dsh_fs, {"root": agent.session.header.cwd, "confine": True})
        await ctx.settled()
