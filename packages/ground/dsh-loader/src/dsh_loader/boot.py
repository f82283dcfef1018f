"""Mounts rows, all or nothing."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from dsh_cordis import Context, DeadlockError, Fiber, FiberState
from dsh_loader.errors import BootError
from dsh_loader.plugins import resolve_plugin

if TYPE_CHECKING:
    # The rows bring pydantic; `dsh plugins` and others need no row.
    from dsh_loader.rows import Row


async def mount_rows(ctx: Context, rows: "Sequence[Row]") -> list[Fiber]:
    """Mount every enabled row below `ctx` and wait until all are ACTIVE.

    Rows start together; their order means nothing.

    Returns:
        The fibers of the enabled rows, in row order.

    Raises:
        RowsError: Two rows share an id; nothing was mounted.
        BootError: Rows failed or still wait for services; all have been disposed again.
    """
    from dsh_loader.rows import check_ids  # see the top of this module

    check_ids(rows, "rows")
    enabled = [row for row in rows if not row.disabled]
    mounted: dict[str, Fiber] = {}
    try:
        failed = _mount(ctx, enabled, mounted)
        if not failed:
            await _settle(ctx, list(mounted.values()))
            failed = _failures(mounted)
    except BaseException:
        await _dispose(mounted)
        raise
    waiting = [
        (row, fiber.missing())
        for row, fiber in mounted.items()
        if fiber.state is FiberState.PENDING
    ]
    gone = ctx.fiber.state in (FiberState.UNLOADING, FiberState.DISPOSED)
    if (failed or waiting) and not gone:
        await _dispose(mounted)
        raise BootError(failed, [] if failed and not waiting else waiting)
    return list(mounted.values())


def _mount(
    ctx: Context, rows: "Sequence[Row]", mounted: dict[str, Fiber]
) -> list[tuple[str, Exception]]:
    failed: list[tuple[str, Exception]] = []
    plugins = {}
    for row in rows:
        try:
            plugins[row.id] = resolve_plugin(row.use)
        except Exception as error:  # noqa: BLE001  # each failing row stands in the report
            failed.append((row.id, error))
    if failed:
        return failed
    for row in rows:
        try:
            mounted[row.id] = ctx.plugin(plugins[row.id], row.config)
        except Exception as error:  # noqa: BLE001  # as above; an observer may veto as well
            failed.append((row.id, error))
    return failed


async def _settle(ctx: Context, fibers: list[Fiber]) -> None:
    """Wait until no row is in transition; failures are read from the fibers afterwards."""
    while True:
        for fiber in fibers:
            with suppress(Exception):  # it stands in the fiber, for the report
                await fiber
        if all(fiber.is_settled for fiber in fibers):
            break
    try:
        await ctx.settled()
    except DeadlockError:
        # A plugin body that mounts rows is itself in transition; its rows have settled.
        return
    except Exception:  # noqa: BLE001  # a row's, read from its fiber, or none of our business
        return


def _failures(mounted: dict[str, Fiber]) -> list[tuple[str, Exception]]:
    return [(row, fiber.error) for row, fiber in mounted.items() if fiber.error is not None]


async def _dispose(mounted: dict[str, Fiber]) -> None:
    with anyio.CancelScope(shield=True):
        for fiber in reversed(mounted.values()):
            await fiber.dispose()
