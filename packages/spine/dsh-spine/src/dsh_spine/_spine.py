"""The parts of the spine and their order."""

from collections.abc import Mapping
from typing import Final

import dsh_agent_loop
from dsh_agent import AgentRegistry
from dsh_agent_loop import AgentLoop, checkpoint
from dsh_brand import HarnessError
from dsh_cordis import Context, Plugin
from dsh_llm import LlmService
from dsh_session import SessionStore
from dsh_session_projection import SessionProjectionRegistry
from dsh_system_prompt import SystemPrompt
from dsh_tools import ToolRegistry

PARTS: Final[Mapping[str, Plugin]] = {
    "sessions": SessionStore,
    "session_projections": SessionProjectionRegistry,
    "llm": LlmService,
    "system_prompt": SystemPrompt,
    "tools": ToolRegistry,
    "agents": AgentRegistry,
    "agent_loop": dsh_agent_loop,
    "checkpoint": checkpoint,
}
"""What `spine` mounts, by configuration key, lowest first."""


class SpineConfigError(HarnessError):
    """The configuration of the spine names a part that does not exist."""


class SpineContext(Context):
    """A context with every service of the spine, for plugins and editors that want all of them."""

    sessions: SessionStore
    session_projections: SessionProjectionRegistry
    llm: LlmService
    system_prompt: SystemPrompt
    tools: ToolRegistry
    agents: AgentRegistry
    agent_loop: AgentLoop


def spine(ctx: Context, config: Mapping[str, object] | None = None) -> None:
    """Mount the whole spine: `ctx.plugin(spine)`.

    Args:
        ctx: Where to mount it.
        config: Configuration of each part by its key. `False` leaves a part out, so that another
            plugin can take its place.

    Raises:
        SpineConfigError: A key names no part.
    """
    given = dict(config or {})
    unknown = sorted(given.keys() - PARTS.keys())
    if unknown:
        raise SpineConfigError(
            f"the spine has no part {unknown[0]!r}; its parts are {', '.join(PARTS)}",
            "UNKNOWN_PART",
        )
    for key, part in PARTS.items():
        settings = given.get(key)
        if settings is not False:
            _ = ctx.plugin(part, settings)
