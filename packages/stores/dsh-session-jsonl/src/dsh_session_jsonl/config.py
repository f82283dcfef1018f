"""Configuration of the JSONL store."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from dsh_session_jsonl.layout import Compression


class Config(BaseModel):
    """Where the logs lie and how they are encoded."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    root: Path = Field(description="Folder of all session logs; made at the first write.")
    compression: Compression = Field(
        default="zstd",
        description="Encoding of every log below the root: 'zstd', or 'none' for plain text.",
    )
