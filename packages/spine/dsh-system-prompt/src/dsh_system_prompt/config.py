"""Configuration of the prompt service."""

from pydantic import BaseModel, ConfigDict, field_validator

from .tool_order import UNLISTED


class Config(BaseModel):
    """What a deployment says about its prompts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    include_harness_identity: bool = True
    """Say that the agent runs on DeepSeek Harness."""
    persona: str = ""
    """Text of the section ``deployment:persona``; variables are filled."""
    tool_order: tuple[str, ...] | None = None
    """Tool names in order, with ``<unlisted-tools>`` once for all others; by name if left out."""
    include_runtime_context: bool = True
    """Give the facts of the moment to the model."""

    @field_validator("tool_order")
    @classmethod
    def _check_tool_order(cls, order: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if order is None:
            return None
        if order.count(UNLISTED) != 1:
            raise ValueError(f"tool_order must hold {UNLISTED!r} exactly once")
        twice = sorted({name for name in order if order.count(name) > 1})
        if twice:
            raise ValueError(f"tool_order names {', '.join(twice)} more than once")
        return order
