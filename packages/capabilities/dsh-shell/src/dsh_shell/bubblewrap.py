"""Confining commands with bubblewrap. Upstream: packages/sandbox/sandbox-local/src/bubblewrap.ts.

The command sees the whole file system, read-only but for what its mode allows, and only its own
processes: through those of others it could reach file systems that are not read-only.
"""

import os
import shutil
from collections.abc import Sequence
from typing import Final, Literal

from ._confining import Policy, is_out_of_reach, works, writable_folders
from .types import Finished

PROGRAM: Final = "bwrap"
_PLACES: Final = ("/usr/bin", "/bin", "/usr/local/bin")
"""Looked into before all others."""
_DENIALS: Final = (b"Read-only file system", b"read-only file system", b"EROFS")
_PREFIX: Final = b"bwrap: "
_KERNEL_SETTINGS: Final = (
    *("/proc/acpi", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/mtrr", "/proc/scsi"),
    *("/proc/sys", "/proc/sysrq-trigger"),
)


class Bubblewrap:
    """Uses `bwrap` where it is installed and may make namespaces."""

    enforcement: Literal["full", "partial"] = "full"

    def __init__(self) -> None:
        self._program: str | None = None

    async def usable(self, policy: Policy) -> bool:
        """True if it can confine; a failure is not remembered, since it may be installed later."""
        program = self._program or _find()
        # What a command may have put there is not even tried: it would run unconfined.
        if program is None or not is_out_of_reach(program, policy):
            return False
        if self._program is None and await works([*_frame(program, ()), "--", "/bin/true"]):
            self._program = program
        return self._program is not None

    def confine(self, argv: Sequence[str], policy: Policy) -> "WrappedCommand":
        """Wrap a command; `usable` was asked before."""
        folders = writable_folders(policy)
        return WrappedCommand([*_frame(self._program or PROGRAM, folders), "--", *argv])


class WrappedCommand:
    """A command behind bubblewrap."""

    enforcement: Literal["full", "partial"] = "full"

    def __init__(self, argv: Sequence[str]) -> None:
        self.argv = argv

    def runner_failed(self, end: Finished) -> str | None:
        """The mechanism's own message, if it could not start the command."""
        if end.exit_code != 1 or end.stdout or not end.stderr.startswith(_PREFIX):
            return None
        return end.stderr.splitlines()[0].decode("utf-8", "replace")

    def denied(self, end: Finished) -> bool:
        """True if it failed and says that a file system is read-only."""
        failed = end.exit_code != 0
        return failed and any(text in end.stderr + end.stdout for text in _DENIALS)


def _find() -> str | None:
    searched = os.environ.get("PATH", "").split(os.pathsep)
    places = (*_PLACES, *(place for place in searched if place.startswith(os.sep)))
    return shutil.which(PROGRAM, path=os.pathsep.join(places))


def _frame(program: str, folders: Sequence[str]) -> list[str]:
    # Root may write settings of the kernel without any capability, and bubblewrap covers those only
    # where their folders are writable.
    covered = [("--ro-bind-try", path, path) for path in _KERNEL_SETTINGS]
    # Devices and processes come behind the whole and before its writable parts, so that none of
    # these covers another.
    whole = "--bind" if "/" in folders else "--ro-bind"
    parts = [("--bind", folder, folder) for folder in folders if folder != "/"]
    return [
        program,
        # No session of its own: the command stays in the group that is signalled, and so does the
        # first process of the namespace, with which all of it ends. Nor does it die with its
        # parent: that follows the thread that started it, and threads come and go.
        *("--unshare-pid", "--unshare-ipc"),
        # Where the host runs as root, the command would be free to mount all of it writable again.
        *("--unshare-user-try", "--cap-drop", "ALL"),
        *(whole, "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *(argument for mount in (*covered, *parts) for argument in mount),
    ]
