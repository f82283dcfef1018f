"""Ends tool calls that outlive the limit their definition declares.

The package is a plugin without settings: `ctx.plugin(dsh_tool_timeout)`. Without it a declared
`timeout_ms` does nothing. Upstream: packages/tools/tool-timeout/src/index.ts.
"""

from typing import TYPE_CHECKING

from .errors import ToolTimeoutError
from .policy import MAX_TIMEOUT_MS, Needs, mount

if TYPE_CHECKING:  # pydantic is loaded when somebody mounts or configures the plugin, not before
    from .config import Config as Config

name = "tool-timeout"


def __getattr__(attribute: str) -> object:
    if attribute == "Config":
        from .config import Config

        return Config
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")


def apply(ctx: Needs) -> None:
    """Hold every call that this context hears of to its limit."""
    mount(ctx)


__all__ = [
    "MAX_TIMEOUT_MS",
    "Config",
    "Needs",
    "ToolTimeoutError",
    "apply",
    "mount",
    "name",
]
