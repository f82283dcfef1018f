"""Targets, versions, expectations and outcomes. Upstream: packages/fs/fs/src/types.ts."""

import os
import stat
from typing import Literal, Protocol, TypeAlias

import msgspec

FileKind: TypeAlias = Literal["file", "directory", "link", "other"]


class FsTarget(msgspec.Struct, frozen=True):
    """A file, whatever it is called."""

    target_key: str
    """Real path; two spellings of one file have one key. For identity, never for messages."""
    display_path: str
    """Absolute, as the caller spelled it. For messages, never for identity."""


class FsVersion(msgspec.Struct, frozen=True):
    """What changes when a file does; compared as a whole."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "FsVersion":
        """The version of a file with this status."""
        return cls(
            status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        )


class FsStat(msgspec.Struct, frozen=True):
    """What is known of an existing file without reading it."""

    kind: FileKind
    size_bytes: int
    version: FsVersion


class DirEntry(msgspec.Struct, frozen=True):
    """An entry of a directory."""

    name: str
    kind: FileKind
    """Links are followed; `other` where that fails."""


class FsText(msgspec.Struct, frozen=True):
    """A text and the version it was read from."""

    text: str
    version: FsVersion


class LineWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Some lines of a file."""

    lines: tuple[str, ...]
    offset: int
    """Number of the first line, from 1."""
    total_lines: int
    """Of the whole file, exact."""
    capped: bool
    """The byte limit ended the window, not the line limit."""
    version: FsVersion


class ReplaceIfVersion(msgspec.Struct, frozen=True):
    """Only if the file still has this version."""

    version: FsVersion


class CreateIfAbsent(msgspec.Struct, frozen=True):
    """Only if there is no such file."""


WriteExpectation: TypeAlias = ReplaceIfVersion | CreateIfAbsent
EditExpectation: TypeAlias = ReplaceIfVersion


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What a write or an edit did."""

    operation: Literal["create", "update"]
    before: str | None
    """With LF line ends; `None` if new, not text, or too large to compare."""
    after: str
    """With LF line ends."""
    version: FsVersion
    replaced: int = 0
    """How many places an edit changed."""


class FilePolicy(Protocol):
    """What one call may change. The sandbox service gives such policies."""

    @property
    def mode(self) -> str:
        """For messages."""
        ...

    def may_change(self, path: str) -> bool:
        """True if the file of this real path may be changed, made or removed."""
        ...


def kind_of(mode: int) -> FileKind:
    """Kind of a file with this mode."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"
