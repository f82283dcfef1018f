"""One row of a mounted tree: what is wanted of it, and what runs."""

from collections.abc import Callable
from typing import NamedTuple

from dsh_cordis import Context, Fiber, FiberState, Plugin
from dsh_loader.expressions import Lookup, evaluate, truth
from dsh_loader.rows import Row


class Wanted(NamedTuple):
    """What a row asks for."""

    row: Row
    parent: "Entry | None"
    plugin: Plugin | None
    """None for a row that only holds others."""


class Entry:
    """A row, what is wanted of it, and the fiber that runs."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.fiber: Fiber | None = None
        self.mounted: Wanted | None = None
        """What the fiber was mounted for, kept up to date as it takes changes."""

        self.filled: Context | None = None
        """For a group that runs: the context on which the rows below are mounted."""

    @property
    def row(self) -> Row:
        """The row as it is wanted."""
        return self.wanted.row

    @property
    def holds_rows(self) -> bool:
        """Whether it has no plugin of its own."""
        return self.wanted.plugin is None

    def runs(self, service: Lookup) -> bool:
        """Whether it shall run: nothing above is disabled, and neither is it.

        A group itself runs even when it is disabled; only what is below it does not.

        Raises:
            ExpressionError: `disabled` cannot be evaluated.
        """
        if not self.holds_rows and self.is_disabled(service):
            return False
        above = self.wanted.parent
        while above is not None:
            if above.is_disabled(service):
                return False
            above = above.wanted.parent
        return True

    def is_disabled(self, service: Lookup) -> bool:
        """What `disabled` says now."""
        disabled = self.row.disabled
        if isinstance(disabled, bool):
            return disabled
        where = f"row {self.row.id!r}: disabled"
        return truth(evaluate(disabled, service, where=where), where)

    def below(self, root: Context) -> Context | None:
        """Where the rows of its parent are mounted; None while that one does not run."""
        parent = self.wanted.parent
        return root if parent is None else parent.filled

    def place(self, base: Context, realm: str) -> Context:
        """The context that the row is mounted on, with realms and intercepts of its own.

        Args:
            base: Where the rows of its parent are mounted.
            realm: The label of a realm that only this row has.
        """
        ctx = base.extend()
        for key, label in self.row.isolate.items():
            if label is not False:
                ctx = ctx.isolate(key, realm if label is True else label)
        for key, config in self.row.intercept.items():
            ctx = ctx.intercept(key, config)
        return ctx

    def mount(self, place: Context, fill: Callable[["Entry", Context], None]) -> None:
        """Mount the plugin; a group fills itself when it runs."""
        row, plugin = self.row, self.wanted.plugin
        body = self._group(fill) if plugin is None else plugin
        # Recorded first: an observer of the mount may dispose the fiber.
        self.mounted = self.wanted
        if row.inject:
            self.fiber = place.inject(row.inject, body, row.config)
        else:
            self.fiber = place.plugin(body, row.config)

    def _group(self, fill: Callable[["Entry", Context], None]) -> Plugin:
        def group(ctx: Context) -> Callable[[], None]:
            self.filled = ctx
            fill(self, ctx)
            return self._emptied

        return group

    def _emptied(self) -> None:
        self.filled = None

    def forget(self) -> None:
        """The fiber is gone, or about to be."""
        self.fiber = self.mounted = None

    def goes_down_with_its_parent(self, root: Context) -> bool:
        """Whether what holds the row is being unloaded."""
        parent = self.wanted.parent
        holder = root.fiber if parent is None else parent.fiber
        return holder is None or holder.state not in (FiberState.ACTIVE, FiberState.LOADING)

    def needs_another_fiber(self) -> bool:
        """Whether what is wanted cannot be reached by moving or updating the present one."""
        mounted = self.mounted
        return mounted is not None and (
            mounted.plugin is not self.wanted.plugin
            or mounted.row.inject != self.row.inject
            or mounted.row.intercept != self.row.intercept
        )

    def needs_another_place(self) -> bool:
        """Whether it stands below another row, or in other realms."""
        mounted = self.mounted
        return mounted is not None and (
            mounted.parent is not self.wanted.parent or mounted.row.isolate != self.row.isolate
        )
