"""What the parts are told; the models in `dsh_shell.config` are such.

Those are loaded when somebody mounts or configures the plugin: pydantic is a large part of what
importing this package would cost.
"""

from pathlib import Path
from typing import Literal, Protocol, Self


class SandboxSettings(Protocol):
    """What commands may change unless their session says otherwise."""

    mode: Literal["read-only", "workspace-write", "danger-full-access"]
    root: Path | None
    accept_partial: bool


class BashSettings(Protocol):
    """Limits of the `bash` tool."""

    default_timeout_ms: int
    max_timeout_ms: int
    max_output_bytes: int
    max_spill_bytes: int
    grace_ms: int
    enable_run_in_background: bool
    require_sandbox: bool
    home: Path | None

    def model_copy(self, *, update: dict[str, object]) -> Self:
        """The same but for some fields."""
        ...


class Settings(Protocol):
    """Of the whole capability."""

    @property
    def bash(self) -> BashSettings:
        """Limits of the `bash` tool."""
        ...

    @property
    def sandbox(self) -> SandboxSettings | None:
        """Confine commands."""
        ...

    jobs: bool
    spill_root: Path | None
    max_inline_tokens: int | None
