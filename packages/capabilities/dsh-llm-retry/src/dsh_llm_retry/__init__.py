"""Retries failed model requests by the policy of their provider.

The package is a plugin without settings: `ctx.plugin(dsh_llm_retry)`. Importing it registers the
session events `llm/retry` and `llm/retry-started`. Upstream: packages/llm/llm-retry/src/index.ts.
"""

from typing import TYPE_CHECKING

from dsh_cordis import Context

from .checks import RetryRules, check_retries
from .errors import RetryLogError
from .events import LlmRetry, LlmRetryStarted
from .executor import mount
from .policy import local_delay_ms, policy_key, provider_delay_ms

if TYPE_CHECKING:  # pydantic is loaded when somebody mounts or configures the plugin, not before
    from .config import Config as Config

name = "llm-retry"


def __getattr__(attribute: str) -> object:
    if attribute == "Config":
        from .config import Config

        return Config
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")


def apply(ctx: Context) -> None:
    """Retry the failed requests of every agent that this context hears of."""
    mount(ctx)


__all__ = [
    "Config",
    "LlmRetry",
    "LlmRetryStarted",
    "RetryLogError",
    "RetryRules",
    "apply",
    "check_retries",
    "local_delay_ms",
    "mount",
    "name",
    "policy_key",
    "provider_delay_ms",
]
