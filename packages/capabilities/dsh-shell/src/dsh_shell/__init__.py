"""Subprocess runtime, the bash tool, background jobs, spill store and the sandbox seam.

The package is a plugin: `ctx.plugin(dsh_shell, {"sandbox": {"mode": "workspace-write"}})`. Its
parts mount alone too: `SubprocessRuntime` (`ctx.subprocess`), `JobRegistry` (`ctx.jobs`),
`SpillStore` (`ctx.spill_store`), `Sandbox` (`ctx.sandbox`), `bash_tool`, `job_tools`,
`spill_policy`.
"""

from typing import TYPE_CHECKING

from ._plugin import apply
from .collector import Collector, Piece
from .env import child_environment
from .errors import JobError, SandboxError, SpillError, SubprocessError
from .jobs import Job, JobBody, JobEnd, JobRegistry, JobRun, JobState
from .notices import ToolJobsSource
from .pipes import PipeReader, PipeWriter
from .process import ChildProcess
from .runtime import SubprocessRuntime
from .sandbox import (
    Confinement,
    Mechanism,
    Sandbox,
    SandboxMode,
    SandboxModeEvent,
    SandboxPolicy,
)
from .spill import SavedText, SpillStore
from .types import Collect, ExitStatus, Finished, Input, Output, SpawnSpec, Spill

if TYPE_CHECKING:  # pydantic is loaded when somebody mounts or configures the plugin, not before
    from .config import BashConfig as BashConfig
    from .config import Config as Config
    from .config import SandboxConfig as SandboxConfig

name = "shell"


def __getattr__(attribute: str) -> object:
    if attribute in {"BashConfig", "Config", "SandboxConfig"}:
        from . import config

        return getattr(config, attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")


__all__ = [
    "BashConfig",
    "ChildProcess",
    "Collect",
    "Collector",
    "Config",
    "Confinement",
    "ExitStatus",
    "Finished",
    "Input",
    "Job",
    "JobBody",
    "JobEnd",
    "JobError",
    "JobRegistry",
    "JobRun",
    "JobState",
    "Mechanism",
    "Output",
    "Piece",
    "PipeReader",
    "PipeWriter",
    "Sandbox",
    "SandboxConfig",
    "SandboxError",
    "SandboxMode",
    "SandboxModeEvent",
    "SandboxPolicy",
    "SavedText",
    "SpawnSpec",
    "Spill",
    "SpillError",
    "SpillStore",
    "SubprocessError",
    "SubprocessRuntime",
    "ToolJobsSource",
    "apply",
    "child_environment",
    "name",
]
