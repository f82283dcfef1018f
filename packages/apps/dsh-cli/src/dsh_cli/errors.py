"""Errors of the command line and the exit codes of `dsh`.

HarnessError
└── CliError (code per kind; `exit_code` tells the shell)
"""

from enum import IntEnum

from dsh_brand import HarnessError


class ExitCode(IntEnum):
    """What `dsh` tells the shell."""

    DONE = 0
    TURN_FAILED = 1
    USAGE = 2
    """Usage or configuration: nothing was asked of a model."""
    INTERRUPTED = 130


class CliError(HarnessError):
    """One clear sentence for the person at the terminal, before or instead of a turn."""

    def __init__(
        self, message: str, code: str = "USAGE", *, exit_code: ExitCode = ExitCode.USAGE
    ) -> None:
        super().__init__(message, code)
        self.exit_code = exit_code
