"""Mounts rows, all or nothing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dsh_cordis import Context, Fiber

if TYPE_CHECKING:
    # The rows bring pydantic; `dsh plugins` and others need no row.
    from dsh_loader.rows import Row


async def mount_rows(ctx: Context, rows: "Sequence[Row]") -> list[Fiber]:
    """Mount every enabled row below `ctx` and wait until all are ACTIVE.

    Rows start together; their order means nothing. To change them later use a `RowTree`.

    Returns:
        The fibers of the enabled rows, in row order.

    Raises:
        RowsError: Two rows share an id; nothing was mounted.
        BootError: Rows failed or still wait for services; all have been disposed again.
    """
    from dsh_loader.tree import RowTree  # see the top of this module

    tree = RowTree(ctx)
    try:
        return await tree.boot(rows)
    except BaseException:
        tree.close()
        raise
