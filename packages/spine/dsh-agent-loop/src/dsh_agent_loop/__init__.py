"""The default agent driver: turns, steps, requests and tool scheduling."""

from typing import TYPE_CHECKING

from dsh_cordis import Context

from .checkpoint import Checkpoint, checkpoint
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


def apply(ctx: Context, config: LoopSettings) -> None:
    """Mount the loop; see `Config`."""
    _ = ctx.plugin(AgentLoop, config)


__all__ = [
    "AgentLoop",
    "CensusEntry",
    "Checkpoint",
    "Config",
    "LoopContext",
    "LoopSettings",
    "RequestInvariantError",
    "apply",
    "checkpoint",
    "invariant",
    "name",
]
