"""Errors of the process layer.

HarnessError
├── SubprocessError     a process was not started; `code` says why
├── JobError            a background job was refused, or is not visible
├── SandboxError        a command cannot be confined, or an escalation is malformed
└── SpillError          an output could not be saved
"""

from typing import Literal, TypeAlias

from dsh_brand import HarnessError

SubprocessCode: TypeAlias = Literal[
    "SPAWN_INVALID", "SPAWN_ABORTED", "SPAWN_FAILED", "SUBPROCESS_CLOSED"
]
JobCode: TypeAlias = Literal["JOBS_UNAVAILABLE", "JOB_LIMIT", "JOB_NOT_FOUND"]
SandboxCode: TypeAlias = Literal["SANDBOX_UNAVAILABLE", "SANDBOX_ESCALATION"]


class SubprocessError(HarnessError):
    """A process was not started; nothing of it runs."""

    def __init__(
        self, message: str, code: SubprocessCode, cause: BaseException | None = None
    ) -> None:
        super().__init__(message, code, cause)


class JobError(HarnessError):
    """A background job was not started, or the caller has no job of that id."""

    def __init__(self, message: str, code: JobCode) -> None:
        super().__init__(message, code)


class SandboxError(HarnessError):
    """A command was not run, because it cannot be confined as demanded."""

    def __init__(self, message: str, code: SandboxCode) -> None:
        super().__init__(message, code)


class SpillError(HarnessError):
    """A text could not be saved; the caller keeps its capped form."""

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message, "SPILL_FAILED", cause)
