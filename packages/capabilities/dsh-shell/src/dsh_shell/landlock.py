"""Confining commands with Landlock, where bubblewrap cannot be used.

Upstream: packages/sandbox/sandbox-local/src/landlock.ts. It governs contents and names, but neither
modes nor times nor owners of files, so its enforcement is partial.
"""

import inspect
import os
import sys
from collections.abc import Sequence
from typing import Final, Literal

from . import _landlock_run as runner
from ._confining import Policy, is_out_of_reach, works, writable_folders
from .types import Finished

_DENIALS: Final = (b"Permission denied", b"permission denied", b"EACCES")
_PREFIX: Final = runner.PREFIX.encode()


class Landlock:
    """Uses Landlock where the kernel has it."""

    enforcement: Literal["full", "partial"] = "partial"

    def __init__(self) -> None:
        self._works = False
        # Read once, when the host starts: later, a command may have changed the file.
        self._source = inspect.getsource(runner)

    async def usable(self, policy: Policy) -> bool:
        """True if the kernel lets a command confine itself."""
        if not sys.platform.startswith("linux") or not is_out_of_reach(sys.executable, policy):
            return False
        self._works = self._works or await works([*self._frame(()), "/bin/true"])
        return self._works

    def confine(self, argv: Sequence[str], policy: Policy) -> "LandlockCommand":
        """Wrap a command; `usable` was asked before."""
        return LandlockCommand([*self._frame(writable_folders(policy)), *argv])

    def _frame(self, folders: Sequence[str]) -> list[str]:
        # Isolated and without site packages: neither the environment nor the folder it is started
        # in decides what this program is.
        interpreter = os.path.realpath(sys.executable)
        return [interpreter, "-I", "-S", "-c", self._source, *folders, "--"]


class LandlockCommand:
    """A command behind Landlock."""

    enforcement: Literal["full", "partial"] = Landlock.enforcement

    def __init__(self, argv: Sequence[str]) -> None:
        self.argv = argv

    def runner_failed(self, end: Finished) -> str | None:
        """The runner's own message, if it could not start the command."""
        if end.exit_code != runner.FAILED or not end.stderr.startswith(_PREFIX):
            return None
        return end.stderr.splitlines()[0].decode("utf-8", "replace")

    def denied(self, end: Finished) -> bool:
        """True if it failed and says that permission was denied, for whatever reason."""
        failed = end.exit_code != 0
        return failed and any(text in end.stderr + end.stdout for text in _DENIALS)
