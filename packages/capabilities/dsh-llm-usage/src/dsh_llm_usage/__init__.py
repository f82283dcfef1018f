"""What the calls of a session used, in tokens and in money.

The package is a plugin: `ctx.plugin(dsh_llm_usage)` gives `ctx.llm_usage` and the projection
`llmUsage`. Prices of public providers need the extra `prices`.
"""

from typing import TYPE_CHECKING

from .attempts import Attempt, attempts_of
from .errors import PricesMissingError, UsageError
from .projection import USAGE_KEY, usage_unit
from .service import LlmUsage, Needs, SessionCost, UsageSettings
from .totals import ModelUsage, SessionUsage, merge_usage

if TYPE_CHECKING:  # pydantic is loaded when somebody mounts or configures the plugin, not before
    from .config import Config as Config

name = "llm-usage"


def __getattr__(attribute: str) -> object:
    if attribute == "Config":
        from .config import Config

        return Config
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")


def apply(ctx: Needs, config: UsageSettings) -> None:
    """Count what every session uses. See `Config`."""
    LlmUsage(ctx, config)


__all__ = [
    "USAGE_KEY",
    "Attempt",
    "Config",
    "LlmUsage",
    "ModelUsage",
    "Needs",
    "PricesMissingError",
    "SessionCost",
    "SessionUsage",
    "UsageError",
    "UsageSettings",
    "apply",
    "attempts_of",
    "merge_usage",
    "name",
    "usage_unit",
]
