"""Configuration of the loop."""

from pydantic import BaseModel, ConfigDict, Field


class Config(BaseModel):
    """How agents run their tools, and how patient the loop is after an abort."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_parallel_tool_calls: int = Field(default=10, ge=1)
    """How many tool bodies of one agent may overlap."""
    cancel_grace_ms: int | None = Field(default=10_000, ge=0)
    """How long work may take to end by itself after an abort; `None` waits without bound."""
    abandon_grace_ms: int = Field(default=5_000, ge=0)
    """How long work may take to end once it was cancelled natively; then it is given up."""
    listener_grace_ms: int = Field(default=5_000, ge=0)
    """How long listener tasks may go on after an agent went idle; then they are cancelled."""
