"""From a spelling to a target, and the fence around a root."""

import os
import re
from pathlib import Path
from typing import Final

from . import texts
from .errors import FsError, os_failure
from .types import FilePolicy, FsTarget

_MAX_BYTES: Final = 4096
_SHOWN_CHARS: Final = 80
_PROCESS: Final = re.compile(r"/proc/\d+(/|$)")


def resolve_target(path: str, cwd: str | None) -> FsTarget:
    """The file that `path` means.

    Args:
        path: Absolute, or relative to `cwd`.
        cwd: The process's own if left out.

    Raises:
        FsError: The path is blank, malformed or too long.
    """
    if not path.strip():
        raise FsError("the path is blank; name a file", "FS_NOT_FOUND", path)
    base = cwd or str(Path.cwd())
    spelled = os.path.join(base, path)  # noqa: PTH118  # pathlib drops '..' and './' differently
    try:
        too_long = len(os.fsencode(spelled)) >= _MAX_BYTES
        key = "" if too_long else os.path.realpath(spelled)
    except ValueError:
        shown = ascii(path)
        raise FsError(f"{shown} is no valid path", "FS_NOT_FOUND", shown) from None
    except OSError as error:
        raise os_failure(error, spelled) from error
    if too_long:
        shown = f"{path[:_SHOWN_CHARS]}..."
        raise FsError(
            f"{shown} is longer than a path may be; use a shorter one", "FS_NOT_FOUND", shown
        )
    # Behind '..' the spelling says nothing reliable: a link before it decides where it leads.
    climbs = ".." in Path(spelled).parts
    return FsTarget(key, key if climbs else os.path.normpath(spelled))


def check_parents(target: FsTarget, path: str) -> None:
    """Refuse a path that leads through a file, or names a directory where none is.

    Args:
        target: What it leads to.
        path: As it was spelled.

    Raises:
        FsError: It does.
    """
    display = target.display_path
    parent = Path(target.target_key)
    try:
        names_directory = os.path.basename(path) in ("", ".", "..")  # noqa: PTH119  # 'a/.' too
        if names_directory and not parent.is_dir():
            raise FsError(f"{display} is no directory", "FS_NOT_FOUND", display)
        parent = parent.parent
        while not os.path.lexists(parent):
            parent = parent.parent
        is_directory = parent.is_dir()
    except OSError as error:
        raise os_failure(error, display) from error
    if not is_directory:
        raise FsError(f"a parent of {display} is a file, not a directory", "FS_NOT_FOUND", display)


class Fence:
    """Confines operations to what lies under a root, judged by real paths."""

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)

    def holds(self, key: str) -> bool:
        """True if a real path lies in the root."""
        return key == self.root or key.startswith(self.root.rstrip(os.sep) + os.sep)


def fresh_key(target: FsTarget, fence: Fence | None) -> str:
    """The key, resolved again right before it is used: a parent may have become a link meanwhile.

    Raises:
        FsError: It lies outside the fence, or inside a running process.
    """
    key = os.path.realpath(target.target_key)
    if fence is not None and not fence.holds(key):
        raise FsError(
            f"{target.display_path} lies outside the workspace {fence.root}; use a path inside it",
            "FS_SANDBOX_DENIED",
            target.display_path,
        )
    if _PROCESS.match(key):
        shown = target.display_path
        raise FsError(
            f"{shown} is part of a running process, whose variables may hold credentials",
            "FS_PERMISSION_DENIED",
            shown,
        )
    return key


def check_policy(key: str, target: FsTarget, policy: FilePolicy | None) -> None:
    """Refuse to change what a policy does not allow.

    Raises:
        FsError: It does not.
    """
    if policy is not None and not policy.may_change(key):
        shown = target.display_path
        denied = texts.DENIED.format(mode=policy.mode)
        raise FsError(f"{shown} may not be changed {denied}", "FS_SANDBOX_DENIED", shown)
