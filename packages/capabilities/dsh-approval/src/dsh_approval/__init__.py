"""Asks before a tool runs: rules, answerers, durable decisions.

The package is a plugin: `ctx.plugin(dsh_approval, {"policy": "ask", "rules": [...]})` provides
`ctx.approval` (`ApprovalService`). Importing it registers the session events `approval/asked`,
`approval/decided` and `approval/policy`. Upstream: packages/approval/user-approval/src/index.ts.
"""

from typing import TYPE_CHECKING

from .errors import ApprovalError
from .events import (
    OUTCOMES,
    ApprovalAsked,
    ApprovalDecided,
    ApprovalOutcome,
    ApprovalPolicy,
    ApprovalPolicyEvent,
    ApprovalRequest,
    ApprovalSource,
)
from .rules import ApprovalRule, RuleAction, first_match
from .service import ApprovalService, ApprovalSettings, Needs
from .state import APPROVAL_KEY, ApprovalState, OpenQuestion, approval_unit

if TYPE_CHECKING:  # pydantic is loaded when somebody mounts or configures the plugin, not before
    from .config import Config as Config
    from .config import RuleConfig as RuleConfig

name = "approval"


def __getattr__(attribute: str) -> object:
    if attribute in {"Config", "RuleConfig"}:
        from . import config

        return getattr(config, attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")


def apply(ctx: Needs, config: ApprovalSettings) -> None:
    """Provide `ctx.approval` and let the rules judge calls; see `Config`."""
    ApprovalService(ctx, config)


__all__ = [
    "APPROVAL_KEY",
    "OUTCOMES",
    "ApprovalAsked",
    "ApprovalDecided",
    "ApprovalError",
    "ApprovalOutcome",
    "ApprovalPolicy",
    "ApprovalPolicyEvent",
    "ApprovalRequest",
    "ApprovalRule",
    "ApprovalService",
    "ApprovalSettings",
    "ApprovalSource",
    "ApprovalState",
    "Config",
    "Needs",
    "OpenQuestion",
    "RuleAction",
    "RuleConfig",
    "apply",
    "approval_unit",
    "first_match",
    "name",
]
