"""Configuration of the todo list."""

from pydantic import BaseModel, ConfigDict, StrictBool


class Config(BaseModel):
    """How the list is kept; a deployment has to say."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    allow_parallel_in_progress: StrictBool
    """Let more than one entry be in progress: for agents that delegate or run things in the
    background."""
