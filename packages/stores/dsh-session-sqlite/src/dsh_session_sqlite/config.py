"""Configuration of the SQLite store."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class Config(BaseModel):
    """Where the database lies."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Path = Field(description="The database of all sessions; made at the first write.")
