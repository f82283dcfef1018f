"""What the mechanisms of the sandbox have in common."""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Final, Protocol

import anyio

SHARED_FOLDERS: tuple[str, ...] = ("/tmp",)
"""May be changed in workspace-write mode, beside the workspace and the temporary folder."""
_PROBE_TIMEOUT_S: Final = 10


class Policy(Protocol):
    """What one command may change."""

    @property
    def mode(self) -> str:
        """`read-only` or `workspace-write`."""
        ...

    @property
    def root(self) -> str:
        """Real path of the workspace."""
        ...


def writable_folders(policy: Policy) -> list[str]:
    """Real paths of what may be changed."""
    return workspace_folders(policy) if policy.mode == "workspace-write" else []


def workspace_folders(policy: Policy) -> list[str]:
    """Real paths of what may be changed by commands that may change the workspace."""
    folders = (*SHARED_FOLDERS, tempfile.gettempdir(), policy.root)
    return list(dict.fromkeys(os.path.realpath(folder) for folder in folders))


def is_out_of_reach(program: str, policy: Policy) -> bool:
    """True if no command of this workspace could have put this program where it is."""
    real = os.path.realpath(program)
    return not any(real.startswith(f"{folder}/") for folder in workspace_folders(policy))


async def works(argv: Sequence[str]) -> bool:
    """True if a probe succeeds."""
    with anyio.move_on_after(_PROBE_TIMEOUT_S):
        try:
            done = await anyio.run_process(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
                start_new_session=True,
            )
        except OSError:
            return False
        return done.returncode == 0
    return False
