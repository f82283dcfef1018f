"""Opening the session of a folder: a new one, a named one, the latest one."""

from pathlib import Path
from typing import Final

from dsh_agent import Agent, AgentHandle
from dsh_brand import HarnessError
from dsh_cli.errors import CliError
from dsh_cli.output import Output
from dsh_cli.providers import ProviderChoice
from dsh_cli.stack import CliContext
from dsh_session import SessionId, SessionMeta

LATEST: Final = "@latest"
"""What `--resume` without an id stands for."""


async def create_agent(ctx: CliContext, folder: Path, choice: ProviderChoice) -> AgentHandle:
    """Create an agent with a new session for `folder`."""
    return await ctx.agents.create(
        provider=choice.route, model=choice.model, meta=SessionMeta(cwd=str(folder))
    )


async def resume_agent(ctx: CliContext, folder: Path, session: str) -> AgentHandle:
    """Continue a stored session; `LATEST` names the newest one of `folder`.

    Raises:
        CliError: It does not exist, is damaged, of a newer format, or written by another process.
    """
    session_id = await latest_session(ctx, folder) if session == LATEST else session
    try:
        return await ctx.agents.resume(SessionId(session_id))
    except HarnessError as error:
        raise CliError(
            f"session {session_id!r} cannot be continued: {error}", error.code
        ) from error


async def latest_session(ctx: CliContext, folder: Path) -> str:
    """The id of the newest session of `folder`.

    Raises:
        CliError: There is none.
    """
    listing = await ctx.session_persistence.list()
    own = [entry for entry in listing.sessions if entry.header.cwd == str(folder)]
    if not own:
        raise CliError(
            f"there is no session of {str(folder)!r} to continue: start one without --resume",
            "NO_SESSION",
        )
    return max(own, key=lambda entry: entry.header.created_at).header.id


def show_session(ctx: CliContext, agent: Agent, output: Output, *, resumed: bool) -> None:
    """Tell which session is open and where its log lies."""
    session_id = agent.session.id
    output.session(session_id, ctx.session_persistence.path_of(session_id), resumed=resumed)
