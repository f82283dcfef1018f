"""`dsh run`: one prompt in one folder."""

import os
from pathlib import Path

import msgspec

from dsh_agent import Agent, AgentHandle, ModelSelection
from dsh_cli import paths
from dsh_cli.errors import CliError, ExitCode
from dsh_cli.output import Output
from dsh_cli.providers import RETRIES, ProviderChoice, choose_provider
from dsh_cli.sessions import create_agent, resume_agent, show_session
from dsh_cli.stack import CliContext, equip, mount_provider, mounted_stack
from dsh_cli.turn import run_turn


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `dsh run`."""

    prompt: str
    folder: Path
    provider: str | None = None
    model: str | None = None
    resume: str | None = None
    retries: int = RETRIES
    """How often a request that failed in passing is repeated."""
    tools: bool | None = None
    """`None`: on, except with a small model."""
    config_file: Path | None = None


async def run(options: RunOptions, output: Output) -> ExitCode:
    """Run one turn and return the exit code.

    Raises:
        CliError: Usage or configuration; no turn was begun.
    """
    sessions = paths.ensure_writable(paths.sessions_root())
    choice = None
    if options.resume is None:
        choice = _choose(options, options.provider, options.model)
    async with mounted_stack(sessions, options.config_file) as ctx:
        handle, choice = await _open(ctx, options, choice)
        agent = handle.agent
        tools = options.tools if options.tools is not None else not choice.small
        await equip(ctx, agent, choice, tools=tools)
        show_session(ctx, agent, output, resumed=options.resume is not None)
        return await run_turn(agent, options.prompt, output)


async def _open(
    ctx: CliContext, options: RunOptions, choice: ProviderChoice | None
) -> tuple[AgentHandle, ProviderChoice]:
    if choice is not None:
        choice = await mount_provider(ctx, choice)
        return await create_agent(ctx, options.folder, choice), choice
    handle = await resume_agent(ctx, options.folder, options.resume or "")
    choice = await mount_provider(ctx, _choice_for(handle.agent, options))
    current = handle.agent.model.current()
    if current is None or (current.provider, current.model) != (choice.route, choice.model):
        handle.agent.model.select(ModelSelection(provider=choice.route, model=choice.model or ""))
    return handle, choice


def _choice_for(agent: Agent, options: RunOptions) -> ProviderChoice:
    """The flags count, then what the session used last, then what the environment offers."""
    recorded = agent.model.current()
    if options.provider is None and recorded is not None:
        try:
            return _choose(options, recorded.provider, options.model or recorded.model)
        except CliError:
            pass  # its key or package is gone; another provider may carry the session on
    return _choose(options, options.provider, options.model)


def _choose(options: RunOptions, provider: str | None, model: str | None) -> ProviderChoice:
    return choose_provider(provider, model, os.environ, retries=options.retries)
