"""The file service: `ctx.fs`. Upstream: packages/fs/fs-local/src/service.ts."""

import os
from collections.abc import AsyncGenerator, Callable
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

from dsh_cordis import Context, Service
from dsh_llm import AbortSignal

from . import _reading, _writing
from ._locks import KeyLocks
from ._opening import folder_of, look_up, open_listing
from ._paths import Fence, check_parents, check_policy, fresh_key, resolve_target
from ._settings import FsSettings
from ._worker import check_abort, work
from ._writing import Edit
from .errors import FsError, os_failure
from .types import (
    Change,
    DirEntry,
    FileKind,
    FilePolicy,
    FsStat,
    FsTarget,
    FsText,
    FsVersion,
    LineWindow,
    ReplaceIfVersion,
    WriteExpectation,
    kind_of,
)

T = TypeVar("T")


class FsService(Service):
    """Files of the local system.

    Every operation takes a signal and ends with `FS_ABORTED` when it aborts; none has a time limit.
    When confined, all of them refuse what lies outside the root. Using the service directly
    observes nothing and asks nobody: that is what the tools do.
    """

    key: ClassVar[str] = "fs"

    def __init__(self, ctx: Context, config: FsSettings | None = None) -> None:
        super().__init__(ctx)
        root = None if config is None else config.root
        self._root = str((root or Path.cwd()).absolute())
        self._fence = Fence(self._root) if config is not None and config.confine else None
        self._locks = KeyLocks()

    @property
    def confined(self) -> bool:
        """True if what lies outside the root is refused."""
        return self._fence is not None

    async def resolve(
        self, path: str, cwd: str | None = None, *, signal: AbortSignal | None = None
    ) -> FsTarget:
        """The file that `path` means.

        Args:
            path: Absolute, or relative to `cwd`.
            cwd: The root by default.
            signal: Ends the wait.

        Raises:
            FsError: Blank, malformed, below a file, or outside the root.
        """
        return await work(signal, "resolving", self._resolve, path, cwd or self._root)

    def contains(self, directory: FsTarget, target: FsTarget) -> bool:
        """True if `target` is `directory` or lies in it, by real paths."""
        return Fence(directory.target_key).holds(target.target_key)

    def process_path(self, target: FsTarget) -> str:
        """The path by which a program of this machine finds the file."""
        return target.target_key

    def file_url(self, target: FsTarget) -> str:
        """The file as a `file:` URL."""
        return Path(target.target_key).as_uri()

    async def stat(self, target: FsTarget, *, signal: AbortSignal | None = None) -> FsStat | None:
        """What a file is, links followed; `None` if it is absent."""
        return await work(signal, "stat", self._stat, target)

    async def lstat(
        self, path: str, cwd: str | None = None, *, signal: AbortSignal | None = None
    ) -> FsStat | None:
        """What a path names, without following it if it is a link; `None` if it names nothing.

        Raises:
            FsError: As `resolve`, for the directory that it lies in.
        """
        return await work(signal, "lstat", self._lstat, path, cwd or self._root)

    async def read_text(self, target: FsTarget, *, signal: AbortSignal | None = None) -> FsText:
        """A whole text file, without its byte order mark.

        Raises:
            FsError: Not text, larger than 10 MiB, or not readable.
        """
        return await self._reading(signal, target, _reading.read_text)

    async def stream_text(
        self, target: FsTarget, *, signal: AbortSignal | None = None
    ) -> AsyncGenerator[str, None]:
        """The text of a file of any size, in pieces. Who does not read it to its end closes it.

        Raises:
            FsError: Not text, or not readable.
        """
        pieces = await self._reading(signal, target, _reading.text_pieces)
        try:
            while piece := await work(signal, "reading", next, pieces, ""):
                yield piece
        finally:
            pieces.close()

    async def read_bytes(
        self, target: FsTarget, max_bytes: int, *, signal: AbortSignal | None = None
    ) -> bytes:
        """The first `max_bytes` bytes of a file."""
        read = partial(_reading.read_bytes, max_bytes=max_bytes)
        return await self._reading(signal, target, read)

    async def read_lines(
        self,
        target: FsTarget,
        *,
        offset: int = 1,
        limit: int,
        max_bytes: int,
        max_chars: int,
        signal: AbortSignal | None = None,
    ) -> LineWindow:
        """A window of the lines of a text file of any size.

        Args:
            target: The file.
            offset: First line, from 1.
            limit: Most lines.
            max_bytes: Most bytes; whole lines only, but at least one.
            max_chars: Longer lines are cut and marked.
            signal: Ends the reading.

        Raises:
            FsError: Not text, or it has no line `offset`.
        """
        read = partial(
            _reading.read_lines,
            offset=offset,
            limit=limit,
            max_bytes=max_bytes,
            max_chars=max_chars,
            check=lambda: check_abort(signal, "reading"),
        )
        return await self._reading(signal, target, read)

    async def list_dir(
        self, target: FsTarget, *, signal: AbortSignal | None = None
    ) -> tuple[DirEntry, ...]:
        """Entries of a directory by name.

        Raises:
            FsError: It is absent or no directory.
        """
        return await work(signal, "listing", self._list_dir, target)

    async def write_text(
        self,
        target: FsTarget,
        content: str,
        expected: WriteExpectation | None = None,
        *,
        policy: FilePolicy | None = None,
        signal: AbortSignal | None = None,
    ) -> Change:
        """Write a whole file, verbatim as UTF-8; missing directories are made.

        Args:
            target: The file. Through a link, what the link points to is written.
            content: All of it.
            expected: Refuse unless it holds; `None` writes in any case.
            policy: Limits what may be changed, beside the fence of the configuration.
            signal: Until the write begins.

        Raises:
            FsError: The expectation does not hold, or the file cannot be written.
        """
        write = partial(_writing.write_text, content=content, expected=expected)
        return await self._mutating(signal, target, policy, write)

    async def edit_text(
        self,
        target: FsTarget,
        edit: Edit,
        expected: ReplaceIfVersion | None = None,
        *,
        policy: FilePolicy | None = None,
        signal: AbortSignal | None = None,
    ) -> Change:
        """Replace a text in a file, literally; the file keeps its style of line ends.

        Raises:
            FsError: The text does not occur, or more than once, or the expectation does not hold.
        """
        change = partial(_writing.edit_text, edit=edit, expected=expected)
        return await self._mutating(signal, target, policy, change)

    # ---- blocking parts -----------------------------------------------------------------------

    async def _reading(
        self, signal: AbortSignal | None, target: FsTarget, read: Callable[[str, str], T]
    ) -> T:
        def run() -> T:
            return read(fresh_key(target, self._fence), target.display_path)

        return await work(signal, "reading", run)

    async def _mutating(
        self,
        signal: AbortSignal | None,
        target: FsTarget,
        policy: FilePolicy | None,
        change: Callable[[str, str], Change],
    ) -> Change:
        def run() -> Change:
            # Judged by the path as it is now, and that very path is changed.
            key = fresh_key(target, self._fence)
            check_policy(key, target, policy)
            return change(key, target.display_path)

        async with self._locks.hold(target.target_key, signal, "writing"):
            check_abort(signal, "writing")
            # Not with the signal: what is written is written, and its version must be told.
            return await work(None, "writing", run)

    def _resolve(self, path: str, cwd: str) -> FsTarget:
        if ".." in Path(path).parts or ".." in Path(cwd).parts:
            cwd = os.path.realpath(cwd)
        target = resolve_target(path, cwd)
        # The fence comes first: what lies behind it is not even said to be there.
        fresh_key(target, self._fence)
        check_parents(target, path)
        return target

    def _stat(self, target: FsTarget) -> FsStat | None:
        return _looked_up(fresh_key(target, self._fence), target.display_path)

    def _lstat(self, path: str, cwd: str) -> FsStat | None:
        resolve_target(path, cwd)  # refuses what cannot be a path
        parent, name = os.path.split(path.rstrip(os.sep) or path)
        if name in ("", ".", ".."):
            return self._stat(self._resolve(path, cwd))
        folder = self._resolve(parent or ".", cwd)
        return _looked_up(
            os.path.join(fresh_key(folder, self._fence), name),  # noqa: PTH118  # keys are strings
            os.path.join(folder.display_path, name),  # noqa: PTH118  # as above
        )

    def _list_dir(self, target: FsTarget) -> tuple[DirEntry, ...]:
        display = target.display_path
        try:
            folder = open_listing(fresh_key(target, self._fence))
            try:
                with os.scandir(folder) as entries:
                    found = [DirEntry(entry.name, _entry_kind(entry)) for entry in entries]
            finally:
                os.close(folder)
        except NotADirectoryError as error:
            raise FsError(f"{display} is no directory", "FS_NOT_DIRECTORY", display) from error
        except OSError as error:
            raise os_failure(error, display) from error
        return tuple(sorted(found, key=lambda entry: entry.name))


def _looked_up(key: str, display: str) -> FsStat | None:
    try:
        with folder_of(key) as (folder, name):
            status = look_up(folder, name)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise os_failure(error, display) from error
    if status is None:
        return None
    return FsStat(kind_of(status.st_mode), status.st_size, FsVersion.of(status))


def _entry_kind(entry: "os.DirEntry[str]") -> FileKind:
    try:
        return kind_of(entry.stat().st_mode)
    except OSError:
        return "other"
