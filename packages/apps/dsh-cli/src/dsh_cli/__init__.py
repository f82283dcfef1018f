"""The `dsh` command: run a turn in a folder, list sessions and plugins, play the demo."""

from dsh_cli.errors import CliError, ExitCode

__all__ = ["CliError", "ExitCode"]
