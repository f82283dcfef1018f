"""Configuration: there is none, and a key that somebody expects is refused."""

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """Nothing can be set here: each tool declares its own limit (`timeout_ms`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)
