"""Watching files: changes come in bursts, and one refresh at a time answers them.

Needs the extra `watch` (watchfiles), unless the changes come from elsewhere.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from os import stat_result
from pathlib import Path

import anyio

from dsh_cordis import Context, Handle
from dsh_loader.events import ConfigUpdateFailed
from dsh_loader.rows import Row
from dsh_loader.tree import RowTree

Changes = AsyncIterator[Collection[Path]]
"""The files of each burst."""

_TICK_MS = 1000
_DEBOUNCE_MS = 50


class ConfigWatch:
    """Applies the rows of watched files again whenever one of them changes.

    What cannot be taken leaves the last good rows running and is told as `ConfigUpdateFailed`.
    """

    def __init__(
        self,
        ctx: Context,
        tree: RowTree,
        read: Callable[[], Sequence[Row]],
        paths: Sequence[Path],
        *,
        changes: Changes | None = None,
    ) -> None:
        """Make a watch that does not run yet.

        Args:
            ctx: Who watches; the watch ends with it.
            tree: Where the rows are applied.
            read: Reads all rows anew, such as a call of `compose`.
            paths: The files; they and their folders need not exist.
            changes: Another source of changes.
        """
        self._ctx = ctx
        self._tree = tree
        self._read = read
        self._changes = file_changes(paths) if changes is None else changes

    def start(self) -> Handle:
        """Begin; the handle ends the watch and waits for a refresh that runs."""
        return self._ctx.spawn(self._run, name="watch configuration")

    async def _run(self) -> None:
        await in_bursts(self._changes, self._refresh)

    async def _refresh(self, _: Collection[Path]) -> None:
        try:
            await self._tree.apply(self._read())
        except Exception as error:  # noqa: BLE001  # told; the last good tree goes on
            self._ctx.emit(ConfigUpdateFailed(error=error))


async def in_bursts(
    changes: Changes, action: Callable[[Collection[Path]], Awaitable[None]]
) -> None:
    """Run an action for changes: one at a time, with all that come meanwhile merged into the next.

    Cancelling it waits for an action that runs.
    """
    waiting: set[Path] = set()
    wake, last = anyio.Event(), False

    async def answer() -> None:
        nonlocal wake
        while waiting or not last:
            await wake.wait()
            wake = anyio.Event()
            while waiting:
                batch = set(waiting)
                waiting.clear()
                with anyio.CancelScope(shield=True):
                    await action(batch)

    async with anyio.create_task_group() as tasks:
        _ = tasks.start_soon(answer)
        async for batch in changes:
            waiting |= set(batch)
            wake.set()
        last = True
        wake.set()


async def file_changes(paths: Sequence[Path]) -> AsyncGenerator[Collection[Path]]:
    """Changes of single files: creation, change and removal, also under folders to come."""
    from watchfiles import awatch  # the extra `watch`; most runs watch nothing

    wanted = [path.absolute() for path in paths]
    known = {path: _stamp(path) for path in wanted}
    while True:
        folders = _folders(wanted)
        # The stamps decide: what happens before a folder is watched is seen at the next tick.
        batches = awatch(
            *folders,
            watch_filter=None,
            recursive=False,
            debounce=_DEBOUNCE_MS,
            rust_timeout=_TICK_MS,
            yield_on_timeout=True,
        )
        async with aclosing(batches):
            async for _ in batches:
                now = {path: _stamp(path) for path in wanted}
                changed = {path for path in wanted if now[path] != known[path]}
                known = now
                if changed:
                    yield changed
                if _folders(wanted) != folders:
                    break


async def source_changes(roots: Sequence[Path]) -> AsyncGenerator[Collection[Path]]:
    """Changes of Python files anywhere below some folders."""
    from watchfiles import PythonFilter, awatch  # as above

    async for batch in awatch(*roots, watch_filter=PythonFilter(), debounce=_DEBOUNCE_MS):
        yield {Path(path) for _, path in batch}


def _folders(paths: Sequence[Path]) -> set[Path]:
    return {next(folder for folder in path.parents if folder.is_dir()) for path in paths}


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found: stat_result = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)
