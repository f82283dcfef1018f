"""Kills what the host leaves behind when it dies without cleaning up.

One small shell per runtime reads from a pipe which process groups live. The kernel closes the pipe
when the host ends, however it ends; then the shell kills the groups that are still listed. A
parent-death signal would not do: it follows the thread that forked, and threads come and go.
"""

import os
import subprocess
from typing import Final

import anyio
import structlog
from anyio.abc import Process
from structlog.typing import FilteringBoundLogger

log: FilteringBoundLogger = structlog.get_logger(__name__)

_SCRIPT: Final = """
set -f; ids=" "
while read -r op id; do
  case $op in
    +) ids="$ids$id " ;;
    -) ids="${ids%% $id *} ${ids#* $id }" ;;
  esac
done
for id in $ids; do kill -s KILL -- "-$id"; done
"""


class HostGuard:
    """Lists live process groups for the time after the host."""

    def __init__(self) -> None:
        self._listed: set[int] = set()
        self._pipe: int | None = None
        self._shell: Process | None = None

    async def open(self) -> None:
        """Start the shell; without one the host goes on unguarded, and says so."""
        theirs, ours = os.pipe()
        try:
            # In a session of its own: what interrupts the host from a terminal must not reach it.
            self._shell = await anyio.open_process(
                ["/bin/sh", "-c", _SCRIPT],
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": "/usr/bin:/bin"},
                cwd="/",
                start_new_session=True,
            )
        except BaseException as error:
            os.close(ours)
            if not isinstance(error, OSError):
                raise
            log.warning("subprocess.unguarded", errno=error.errno)
        else:
            os.set_blocking(ours, False)
            self._pipe = ours
        finally:
            os.close(theirs)

    def add(self, group: int) -> None:
        """A group lives."""
        self._listed.add(group)
        self._tell(f"+ {group}\n")

    def remove(self, group: int) -> None:
        """A group is gone; its id may be a stranger's from now on."""
        if group in self._listed:
            self._listed.discard(group)
            self._tell(f"- {group}\n")

    def _tell(self, line: str) -> None:
        if self._pipe is None:
            return
        try:
            os.write(self._pipe, line.encode())  # short enough to be written whole or not at all
        except OSError as error:
            log.warning("subprocess.guard_lost", errno=error.errno)
            self._close_pipe()

    def _close_pipe(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            os.close(pipe)

    async def close(self) -> None:
        """End the shell, which kills what is still listed."""
        self._close_pipe()
        shell, self._shell = self._shell, None
        if shell is not None:
            await shell.aclose()
