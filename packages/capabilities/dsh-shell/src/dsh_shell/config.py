"""Configuration of the shell capability."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

PositiveInt = Annotated[int, Field(gt=0, strict=True)]
_MAX_TIMER_MS = 2_147_483_647


class SandboxConfig(BaseModel):
    """What commands may change unless their session says otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["read-only", "workspace-write", "danger-full-access"] = "read-only"
    """What may be changed."""
    root: Path | None = None
    """The workspace of agents whose session names none; the working directory if left out."""
    accept_partial: bool = True
    """Use mechanisms that do not govern modes, times and owners of files, rather than refuse."""


class BashConfig(BaseModel):
    """Limits of the `bash` tool."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    default_timeout_ms: PositiveInt = 120_000
    """Of a command that asks for none."""
    max_timeout_ms: PositiveInt = 600_000
    """Larger requests are cut down to it."""
    max_output_bytes: PositiveInt = 64_000
    """Kept of each stream, the end of it."""
    max_spill_bytes: PositiveInt = 64 * 1024 * 1024
    """A stream up to this size is kept whole in a file; a larger one is not."""
    grace_ms: Annotated[int, Field(gt=0, le=_MAX_TIMER_MS, strict=True)] = 3000
    """Between asking a command to end and killing it."""
    enable_run_in_background: bool = True
    """Offer background jobs."""
    require_sandbox: bool = False
    """Refuse commands while there is no sandbox service."""
    home: Path | None = None
    """What commands see as `DSH_HOME`; that of the host if left out."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.default_timeout_ms > self.max_timeout_ms:
            raise ValueError(
                f"default_timeout_ms {self.default_timeout_ms} is larger than max_timeout_ms "
                f"{self.max_timeout_ms}"
            )
        return self


class Config(BaseModel):
    """The shell capability: runtime, `bash`, jobs, spill store and sandbox."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bash: BashConfig = BashConfig()
    """Limits of the `bash` tool."""
    jobs: bool = True
    """Mount background jobs and their tools."""
    sandbox: SandboxConfig | None = None
    """Confine commands; left out, they run with the rights of the host."""
    spill_root: Path | None = None
    """Where large outputs go; a private folder for temporary files if left out."""
    max_inline_tokens: PositiveInt | None = None
    """Tool results above it are cut, with the whole in a file; off if left out."""
