"""Subprocess runtime, the bash tool, background jobs, spill store and the sandbox seam.

The package is a plugin: `ctx.plugin(dsh_shell, {"sandbox": {"mode": "workspace-write"}})`. Its
parts mount alone too: `SubprocessRuntime` (`ctx.subprocess`), `JobRegistry` (`ctx.jobs`),
`SpillStore` (`ctx.spill_store`), `Sandbox` (`ctx.sandbox`), `bash_tool`, `job_tools`,
`spill_policy`.
"""

from ._plugin import apply
from .collector import Collector, Piece
from .config import BashConfig, Config, SandboxConfig
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

name = "shell"

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
