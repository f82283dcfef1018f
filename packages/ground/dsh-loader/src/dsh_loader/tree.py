"""A tree of mounted rows, which takes a new list of rows whole or not at all.

Upstream: packages/loader of Cordis.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import anyio

from dsh_cordis import (
    Context,
    DeadlockError,
    Fiber,
    FiberState,
    InternalConfig,
    InternalPlugin,
    InternalStatus,
    Plugin,
)
from dsh_loader._entries import Entry, Wanted
from dsh_loader.errors import BootError, RowError, Stage
from dsh_loader.expressions import evaluate, has_expression
from dsh_loader.plugins import resolve_plugin
from dsh_loader.rows import Row, check_ids, expand_includes

Save = Callable[[list[Row]], None]
_GONE = (FiberState.UNLOADING, FiberState.DISPOSED)


class MountedRow(NamedTuple):
    """A row that runs a plugin."""

    id: str
    use: str
    plugin: Plugin
    fiber: Fiber


class RowTree:
    """Rows mounted below one context; they go down with it.

    A plugin that updates its own config has it saved in its row, one that disposes itself has its
    row disabled; `on_save` is called with the new list of rows then.
    """

    def __init__(self, ctx: Context, *, on_save: Save | None = None) -> None:
        """Make an empty tree.

        Args:
            ctx: Where the rows are mounted.
            on_save: Takes the rows that a plugin changed by itself.
        """
        self._ctx = ctx
        self._on_save = on_save
        self._rows: list[Row] = []
        self._entries: dict[str, Entry] = {}
        # Held while the entries are brought to what is wanted; a failure gives it back.
        self._lock = anyio.Lock()
        self._ending = anyio.Event()
        self._booted: dict[Entry, Fiber] | None = None
        self._handles = (
            ctx.on(InternalConfig, self._interpolate, everywhere=True),
            ctx.on(InternalStatus, self._on_status, everywhere=True),
            ctx.on(InternalPlugin, self._on_plugin, everywhere=True),
        )

    def close(self) -> None:
        """Stop looking after the rows; what is mounted stays, as effects of the context."""
        for handle in self._handles:
            handle()

    @property
    def rows(self) -> list[Row]:
        """The rows as they stand, expressions as they were written."""
        return list(self._rows)

    def fiber(self, row: str) -> Fiber | None:
        """What runs for a row, by its id."""
        entry = self._entries.get(row)
        return None if entry is None else entry.fiber

    def mounted(self) -> list[MountedRow]:
        """All rows that run a plugin, in list order."""
        return [
            MountedRow(entry.row.id, entry.row.use, entry.wanted.plugin, entry.fiber)
            for entry in self._entries.values()
            if entry.fiber is not None and entry.wanted.plugin is not None
        ]

    # Boot and apply

    async def boot(self, rows: Iterable[Row]) -> list[Fiber]:
        """Mount the first rows and wait until all are ACTIVE.

        Returns:
            The fibers of the enabled rows, in row order.

        Raises:
            RowsError: Two rows share an id; nothing was mounted.
            BootError: Rows failed or still wait for services; all have been disposed again.
        """
        async with self._lock:
            # One that disposes itself while the others start is a fiber of this boot, too.
            booted = self._booted = {}
            try:
                failed = await self._bring(list(rows))
            except BaseException:
                await self._empty()
                raise
            finally:
                self._booted = None
            waiting = [
                (entry.row.id, entry.fiber.missing())
                for entry in self._entries.values()
                if entry.fiber is not None and entry.fiber.state is FiberState.PENDING
            ]
            if (failed or waiting) and not self._gone:
                await self._empty()
                raise BootError([(each.row, _cause(each)) for each in failed], waiting)
            return [booted[entry] for entry in self._entries.values() if entry in booted]

    async def apply(self, rows: Iterable[Row]) -> None:
        """Go over to another list of rows; if any row fails, the old tree runs on.

        Rows with equal options are not touched. A changed config updates the running plugin.

        Raises:
            RowsError: The list itself is invalid; nothing was touched.
            RowError: A row failed; everything is as it was before.
            ExceptionGroup: Several such errors.
        """
        async with self._lock:
            before, wanted = self._rows, self._snapshot()
            errors = await self._bring(list(rows))
            if errors and not self._gone:
                await self._go_back(before, wanted, errors)
                raise errors[0] if len(errors) == 1 else ExceptionGroup("rows failed", errors)

    async def replace(self, plugins: Mapping[str, Plugin]) -> list[RowError]:
        """Run other plugins for some rows; where one fails, the old one is mounted again.

        Args:
            plugins: By row id.

        Returns:
            What failed.
        """
        async with self._lock:
            touched = [self._entries[name] for name in plugins if name in self._entries]
            before = {entry: entry.wanted for entry in touched}
            for entry in touched:
                entry.wanted = entry.wanted._replace(plugin=plugins[entry.row.id])
            errors = await self._try(touched, touched)
            failed = {error.row for error in errors}
            back = [entry for entry in touched if entry.row.id in failed]
            for entry in back:
                entry.wanted = before[entry]
            errors += await self._reconcile_all(back, "rollback")
            await self._settle()
            return errors

    @property
    def _gone(self) -> bool:
        return self._ctx.fiber.state in _GONE

    def _snapshot(self) -> dict[Entry, Wanted]:
        return {entry: entry.wanted for entry in self._entries.values()}

    async def _bring(self, rows: list[Row]) -> list[RowError]:
        """Bring the tree to a list of rows; what failed is returned, and nothing taken back."""
        check_ids(rows, "rows")
        expanded = expand_includes(rows)
        check_ids(expanded, "rows with their includes")
        plugins, errors = self._import(expanded)
        if errors:
            return errors
        old = self._entries
        before = self._snapshot()
        self._entries = {entry.row.id: entry for entry in self._plan(expanded, plugins, None)}
        self._rows = rows
        touched = [
            entry
            for entry in self._entries.values()
            if entry not in before or _differs(before[entry], entry.wanted)
        ]
        errors = await self._try(self._entries.values(), touched)
        if not errors:
            removed = [entry for name, entry in old.items() if name not in self._entries]
            errors = await self._dispose_all(removed, "dispose")
        return errors

    async def _go_back(
        self, rows: list[Row], wanted: dict[Entry, Wanted], errors: list[RowError]
    ) -> None:
        added = [entry for entry in self._entries.values() if entry not in wanted]
        self._rows = rows
        self._entries = {wish.row.id: entry for entry, wish in wanted.items()}
        for entry, wish in wanted.items():
            entry.wanted = wish
        with anyio.CancelScope(shield=True):
            errors += await self._dispose_all(added, "rollback")
            errors += await self._reconcile_all(self._entries.values(), "rollback")
            await self._settle()

    def _import(self, rows: Iterable[Row]) -> tuple[dict[str, Plugin], list[RowError]]:
        plugins: dict[str, Plugin] = {}
        errors: list[RowError] = []
        for row in _with_plugin(rows):
            known = self._entries.get(row.id)
            if known is not None and known.wanted.plugin is not None and known.row.use == row.use:
                plugins[row.id] = known.wanted.plugin
                continue
            try:
                plugins[row.id] = resolve_plugin(row.use)
            except Exception as error:  # noqa: BLE001  # each failing row stands in the report
                errors.append(RowError(row.id, "import", error))
        return plugins, errors

    def _plan(
        self, rows: Iterable[Row], plugins: Mapping[str, Plugin], parent: Entry | None
    ) -> Iterator[Entry]:
        """The entries of a list, those of rows that were there before being kept."""
        for row in rows:
            wanted = Wanted(row, parent, plugins.get(row.id))
            entry = self._entries.get(row.id)
            if entry is None:
                entry = Entry(wanted)
            entry.wanted = wanted
            yield entry
            yield from self._plan(row.rows, plugins, entry)

    # One row

    async def _try(self, entries: Iterable[Entry], touched: Iterable[Entry]) -> list[RowError]:
        """Bring all to what is wanted, wait for it, and tell which of the touched ones failed."""
        errors = await self._reconcile_all(entries, "apply")
        await self._settle()
        known = {error.row for error in errors}
        return errors + [
            RowError(entry.row.id, "apply", entry.fiber.error)
            for entry in touched
            if entry.fiber is not None
            and entry.fiber.error is not None
            and entry.row.id not in known
        ]

    async def _reconcile_all(self, entries: Iterable[Entry], stage: Stage) -> list[RowError]:
        errors: list[RowError] = []
        for entry in list(entries):
            try:
                await self._reconcile(entry)
            except Exception as error:  # noqa: BLE001  # each failing row stands in the report
                errors.append(RowError(entry.row.id, stage, error))
        return errors

    async def _reconcile(self, entry: Entry) -> None:
        """Bring what runs for a row to what is wanted of it."""
        runs = entry.runs(self._service)
        if entry.fiber is not None and (not runs or entry.needs_another_fiber()):
            await self._dispose(entry)
        base = entry.below(self._ctx)
        if not runs or base is None:
            return  # a group that runs later mounts its rows itself
        if entry.fiber is None:
            self._mount(entry, base)
            return
        await self._change(entry, entry.fiber, base)

    async def _change(self, entry: Entry, fiber: Fiber, base: Context) -> None:
        mounted = entry.mounted
        if mounted is None:
            return
        if entry.needs_another_place():
            fiber.move(self._place(entry, base))
            mounted = entry.mounted = entry.wanted._replace(
                row=entry.row.model_copy(update={"config": mounted.row.config})
            )
        if mounted.row.config == entry.row.config:
            entry.mounted = entry.wanted
            return
        update = fiber.update(entry.row.config)  # an invalid config raises, and changes nothing
        entry.mounted = entry.wanted
        await update

    def _mount(self, entry: Entry, base: Context) -> None:
        entry.mount(self._place(entry, base), self._fill)
        if self._booted is not None and entry.fiber is not None:
            self._booted[entry] = entry.fiber

    def _place(self, entry: Entry, base: Context) -> Context:
        return entry.place(base, f"row {id(self)} {entry.row.id}")

    def _fill(self, group: Entry, ctx: Context) -> None:
        """Mount the rows below a group that has begun to run."""
        for entry in self._entries.values():
            if entry.wanted.parent is group and entry.fiber is None:
                try:
                    if entry.runs(self._service):
                        self._mount(entry, ctx)
                except Exception as error:
                    raise RowError(entry.row.id, "apply", error) from error

    async def _dispose_all(self, entries: Sequence[Entry], stage: Stage) -> list[RowError]:
        errors: list[RowError] = []
        for entry in reversed(entries):
            try:
                await self._dispose(entry)
            except Exception as error:  # noqa: BLE001  # the others go all the same
                errors.append(RowError(entry.row.id, stage, error))
        return errors

    async def _dispose(self, entry: Entry) -> None:
        fiber = entry.fiber
        entry.forget()
        if fiber is not None:
            await fiber.dispose()

    async def _empty(self) -> None:
        entries, self._entries, self._rows = list(self._entries.values()), {}, []
        with anyio.CancelScope(shield=True):
            await self._dispose_all(entries, "rollback")

    # Waiting

    async def _settle(self) -> None:
        """Wait until no row is in transition, or the tree itself goes down, which waits for us."""
        async with anyio.create_task_group() as tasks:
            _ = tasks.start_soon(self._cancel_at_the_end, tasks.cancel_scope)
            await self._wait_quiet()
            tasks.cancel_scope.cancel()

    async def _cancel_at_the_end(self, scope: anyio.CancelScope) -> None:
        await self._ending.wait()
        scope.cancel()

    async def _wait_quiet(self) -> None:
        while True:
            fibers = [entry.fiber for entry in self._entries.values() if entry.fiber is not None]
            for fiber in fibers:
                await _settled(fiber)
            # A group mounts its rows when it runs, so there may be more fibers now.
            present = [entry.fiber for entry in self._entries.values() if entry.fiber is not None]
            if present == fibers and all(fiber.is_settled for fiber in fibers):
                break
        with suppress(Exception):  # what failed is read from its fiber
            await self._ctx.settled()

    # What plugins do by themselves

    def _service(self, key: str) -> object:
        return getattr(self._ctx, key)

    def _entry_of(self, fiber: Fiber) -> Entry | None:
        found = (entry for entry in self._entries.values() if entry.fiber is fiber)
        return next(found, None)

    def _interpolate(self, event: InternalConfig, following: Callable[[], object]) -> object:
        raw = following()
        if not has_expression(raw):
            return raw
        entry = self._entry_of(event.fiber)
        if entry is None:
            return raw
        ctx = event.fiber.ctx
        where = f"row {entry.row.id!r}: config"
        return evaluate(raw, lambda key: getattr(ctx, key), where=where)

    def _on_status(self, event: InternalStatus) -> None:
        if event.fiber is self._ctx.fiber and event.fiber.state in _GONE:
            self._ending.set()
        if event.fiber.state is not FiberState.ACTIVE:
            return
        entry = self._entry_of(event.fiber)
        config = event.fiber.config
        if entry is None or entry.mounted is None or entry.mounted.row.config == config:
            return
        if config is None or isinstance(config, dict):
            self._save(entry, {"config": config})

    def _on_plugin(self, event: InternalPlugin) -> None:
        if event.fiber.uid is not None:
            return
        entry = self._entry_of(event.fiber)
        if entry is None:
            return
        entry.forget()
        if not entry.goes_down_with_its_parent(self._ctx):
            self._save(entry, {"disabled": True})

    def _save(self, entry: Entry, changes: Mapping[str, object]) -> None:
        entry.wanted = entry.wanted._replace(row=entry.row.model_copy(update=changes))
        if entry.mounted is not None:
            entry.mounted = entry.wanted
        self._rows = [_changed(row, entry.row.id, changes) for row in self._rows]
        if self._on_save is not None:
            self._on_save(self.rows)


async def _settled(fiber: Fiber) -> None:
    try:
        await fiber
    except DeadlockError:
        raise  # a plugin of the tree applies rows to it while it loads
    except Exception:  # noqa: BLE001  # it stands in the fiber, for the report
        return


def _with_plugin(rows: Iterable[Row]) -> Iterator[Row]:
    for row in rows:
        if row.is_group or row.include is not None:
            yield from _with_plugin(row.rows)
        else:
            yield row


def _differs(old: Wanted, new: Wanted) -> bool:
    empty: Mapping[str, object] = {"rows": ()}
    same_row = old.row.model_copy(update=empty) == new.row.model_copy(update=empty)
    return not same_row or old.parent is not new.parent or old.plugin is not new.plugin


def _changed(row: Row, name: str, changes: Mapping[str, object]) -> Row:
    if row.id == name:
        return row.model_copy(update=changes)
    below = tuple(_changed(each, name, changes) for each in row.rows)
    return row if below == row.rows else row.model_copy(update={"rows": below})


def _cause(error: RowError) -> Exception:
    cause = error.__cause__
    return cause if isinstance(cause, Exception) else error
