"""The default agent driver: turns, steps, requests and tool scheduling."""

from typing import TYPE_CHECKING

from dsh_cordis import Context

from .checkpoint import Checkpoint, checkpoint
from .configured import ConfiguredAgents, LoopPlan
from .grace import CensusEntry
from .invariant import RequestInvariantError, invariant
from .runtime import LoopContext, LoopSettings
from .service import AgentLoop

if TYPE_CHECKING:  # pydantic is loaded when somebody mounts or configures the loop, not before
    from .config import Config as Config

name = "agent_loop"


def __getattr__(attribute: str) -> object:
    if attribute == "Config":
        from .config import Config

        return Config
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")


def apply(ctx: Context, config: LoopPlan) -> None:
    """Mount the loop and the agents that its configuration names; see `Config`."""
    _ = ctx.plugin(AgentLoop, config)
    launches = config.launches()
    if launches:
        _ = ctx.plugin(ConfiguredAgents(launches))


__all__ = [
    "AgentLoop",
    "CensusEntry",
    "Checkpoint",
    "Config",
    "ConfiguredAgents",
    "LoopContext",
    "LoopSettings",
    "RequestInvariantError",
    "apply",
    "checkpoint",
    "invariant",
    "name",
]
