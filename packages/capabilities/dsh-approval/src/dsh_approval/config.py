"""Configuration of approval."""

import re
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, field_validator

from dsh_brand import freeze_object

from .events import ApprovalPolicy
from .rules import ApprovalRule, RuleAction

_TOOL_PATTERN: Final = re.compile(r"[\w.*?!\[\]-]+")


class RuleConfig(BaseModel):
    """A rule about calls; see `ApprovalRule`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tool: Annotated[str, Field(min_length=1)]
    """Pattern of tool names, such as `bash` or `mcp__*`."""
    action: RuleAction
    """What happens to the call."""
    arguments: dict[str, str] = {}
    """Patterns by argument name; all must match."""
    reason: str | None = None
    """For the model where it denies, for the person where it asks."""

    @field_validator("tool")
    @classmethod
    def _can_match(cls, tool: str) -> str:
        # A rule that denies and never matches would be worse than none.
        if not _TOOL_PATTERN.fullmatch(tool):
            raise ValueError(
                f"{tool!r} matches no name of a tool; use letters, digits, '_', '-', '*', '?' and "
                "'[...]', and one rule for each name"
            )
        return tool


class Config(BaseModel):
    """What a deployment says about approval."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy: ApprovalPolicy = "ask"
    """Of sessions that have set none."""
    rules: tuple[RuleConfig, ...] = ()
    """The first that matches decides. Those that deny stand above the rules of a session."""

    def approval_rules(self) -> tuple[ApprovalRule, ...]:
        """The rules as the service keeps them."""
        return tuple(
            ApprovalRule(
                tool=rule.tool,
                action=rule.action,
                arguments=freeze_object(dict(rule.arguments)) if rule.arguments else None,
                reason=rule.reason,
            )
            for rule in self.rules
        )
