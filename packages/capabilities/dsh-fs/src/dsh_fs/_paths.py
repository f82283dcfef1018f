"""From a spelling to a target, and the fence around a root."""

import os
from pathlib import Path

from . import texts
from .errors import FsError, os_failure
from .types import FilePolicy, FsTarget


def resolve_target(path: str, cwd: str | None) -> FsTarget:
    """The file that `path` means.

    Args:
        path: Absolute, or relative to `cwd`.
        cwd: The process's own if left out.

    Raises:
        FsError: The path is blank, malformed, or a parent of it is a file.
    """
    if not path.strip():
        raise FsError("the path is blank; name a file", "FS_NOT_FOUND", path)
    base = cwd or str(Path.cwd())
    spelled = os.path.join(base, path)  # noqa: PTH118  # pathlib drops '..' and './' differently
    try:
        key = os.path.realpath(spelled)
    except ValueError:
        shown = ascii(path)
        raise FsError(f"{shown} is no valid path", "FS_NOT_FOUND", shown) from None
    except OSError as error:
        raise os_failure(error, spelled) from error
    # Behind '..' the spelling says nothing reliable: a link before it decides where it leads.
    climbs = ".." in Path(spelled).parts
    target = FsTarget(key, key if climbs else os.path.normpath(spelled))
    _check_parents(target)
    return target


def _check_parents(target: FsTarget) -> None:
    parent = Path(target.target_key).parent
    try:
        while not os.path.lexists(parent):
            parent = parent.parent
        is_directory = parent.is_dir()
    except OSError as error:
        raise os_failure(error, target.display_path) from error
    if not is_directory:
        raise FsError(
            f"a parent of {target.display_path} is a file, not a directory",
            "FS_NOT_FOUND",
            target.display_path,
        )


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
        FsError: It lies outside the fence.
    """
    key = os.path.realpath(target.target_key)
    if fence is not None and not fence.holds(key):
        raise FsError(
            f"{target.display_path} lies outside the workspace {fence.root}; use a path inside it",
            "FS_SANDBOX_DENIED",
            target.display_path,
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
