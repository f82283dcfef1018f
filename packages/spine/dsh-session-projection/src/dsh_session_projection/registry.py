"""`ctx.session_projections`: values folded from session logs, for this process and for clients.

Upstream: packages/session/session-projection/src/index.ts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import ClassVar
from weakref import ref

from dsh_brand import JsonValue
from dsh_cordis import Context, Handle, Service
from dsh_session import Session, SessionEvent, SessionEventAppended, SessionHeader
from dsh_session_projection._cells import Cell, Changed, Unit, new_cell, push_all, saved_cell
from dsh_session_projection._log import log
from dsh_session_projection.definition import (
    ProjectionDefinition,
    ProjectionRow,
    ProjectionSnapshot,
    S,
)
from dsh_session_projection.errors import (
    ProjectionConflict,
    ProjectionFailed,
    ProjectionRestoreError,
)

ChangeListener = Callable[[Session, str, JsonValue, int], None]
"""Told the session, the key, the checked view and the seq of the event that changed it."""


class _Registered:
    """A unit and how many registrations hold it."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.count = 0


class SessionProjectionRegistry(Service):
    """`ctx.session_projections`: keeps every registered unit in step with every session.

    Each committed event goes once, in order, through every unit. A unit that raises harms neither
    the append nor the others: readers of its key see the error until a later try succeeds.
    """

    key: ClassVar[str] = "session_projections"

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self._units: dict[str, _Registered] = {}
        # By the id of the session object, which stays its own until the reference to it is told
        # that it is gone: a weak dictionary would take longer to ask than the rest of a touch.
        self._cells: dict[int, dict[str, Cell]] = {}
        self._sessions: dict[int, ref[Session]] = {}
        self._listeners: dict[object, ChangeListener] = {}
        ctx.on(SessionEventAppended, self._appended, everywhere=True)

    def register(self, unit: ProjectionDefinition[S]) -> Handle:
        """Add a unit; an effect of the calling context.

        The same key may be registered many times: the first definition is used, and it goes with
        the last registration.

        Raises:
            ProjectionConflict: The key is taken by another `state_version`, or the version is bad.
        """
        if type(unit.state_version) is not int or unit.state_version < 0:
            raise ProjectionConflict(
                f"projection {unit.key!r}: state_version must be a non-negative integer, not "
                f"{unit.state_version!r}"
            )
        present = self._units.get(unit.key)
        if present is not None and present.unit.state_version != unit.state_version:
            raise ProjectionConflict(
                f"projection {unit.key!r} is registered with state_version "
                f"{present.unit.state_version}, not {unit.state_version}: load one of them only"
            )
        return self.ctx.effect(lambda: self._add(unit), label=f"projection {unit.key}")

    def on_changed(self, listener: ChangeListener) -> Handle:
        """Tell `listener` of each event that changed a view; an effect of the calling context."""

        def attach() -> Callable[[], None]:
            token = object()
            self._listeners[token] = listener
            return lambda: self._listeners.pop(token, None) and None

        return self.ctx.effect(attach, label="projection changes")

    def state_of(self, session: Session, key: str) -> object:
        """The state of one unit after the whole log, not to be changed; `None` without the unit.

        Raises:
            ProjectionFailed: The unit cannot follow the log.
        """
        registered = self._units.get(key)
        return None if registered is None else self._touch(session, registered.unit).state

    def snapshot(self, session: Session, keys: Iterable[str] | None = None) -> ProjectionSnapshot:
        """The views of all units, or of the named ones, after the whole log.

        Raises:
            ProjectionFailed: A unit that was named cannot follow the log.
        """
        values: dict[str, JsonValue] = {}
        failed: dict[str, Exception] = {}
        for unit in self._visible(keys):
            try:
                values[unit.key] = self._touch(session, unit).view
            except ProjectionFailed as error:
                if keys is not None:
                    raise
                failed[unit.key] = error
        return ProjectionSnapshot(as_of_seq=session.seq - 1, values=values, failed=failed)

    def cached_snapshot(
        self, session: Session, keys: Iterable[str] | None = None
    ) -> ProjectionSnapshot:
        """The views that are built already, as of the lowest of them; folds nothing."""
        cells = self._cells.get(id(session), {})
        present = [cells[unit.key] for unit in self._visible(keys) if unit.key in cells]
        values: dict[str, JsonValue] = {}
        failed: dict[str, Exception] = {}
        for cell in present:
            try:
                values[cell.unit.key] = cell.view
            except ProjectionFailed as error:
                failed[cell.unit.key] = error
        as_of_seq = min((cell.seq for cell in present), default=-1)
        return ProjectionSnapshot(as_of_seq=as_of_seq, values=values, failed=failed)

    def checkpoint(self, session: Session) -> dict[str, ProjectionRow]:
        """The states of all units, detached; of one that fails the last good state."""
        rows: dict[str, ProjectionRow] = {}
        for key, registered in self._units.items():
            try:
                self._touch(session, registered.unit)
            except ProjectionFailed as error:
                log().warning("projection.checkpoint_stale", key=key, seq=error.seq)
            cell = self._cells.get(id(session), {}).get(key)
            if cell is not None:
                rows[key] = cell.row()
        return rows

    def restore_floor(self, rows: Mapping[str, object]) -> int | None:
        """From which seq on the log is needed to bring saved rows up to date.

        `None` if there are no units.
        """
        needed = [self._needed(registered.unit, rows) for registered in self._units.values()]
        return max(min(needed) - 1, 0) if needed else None

    def restore(
        self,
        rows: Mapping[str, object],
        events: Sequence[SessionEvent],
        base_seq: int,
        header: SessionHeader,
        inherited_event_count: int = 0,
    ) -> tuple[ProjectionSnapshot, dict[str, ProjectionRow]]:
        """Views and rows at the end of `events`, from saved rows and the log behind them.

        Args:
            rows: What `checkpoint` gave, possibly of older units.
            events: The log from `base_seq` on.
            base_seq: Seq of the first of them.
            header: The session's header.
            inherited_event_count: Length of its fork prefix.

        Raises:
            ProjectionRestoreError: A row cannot be used and `base_seq` is not 0.
            ProjectionFailed: A unit raised.
        """
        cells = self._restored(rows, events, base_seq, (header, inherited_event_count))
        values = {key: cell.view for key, cell in cells.items() if cell.unit.view is not None}
        end = base_seq + len(events) - 1
        return (
            ProjectionSnapshot(as_of_seq=end, values=values),
            {key: cell.row() for key, cell in cells.items()},
        )

    def view_checkpoint(
        self, rows: Mapping[str, object], keys: Iterable[str] | None = None
    ) -> dict[str, JsonValue]:
        """The views of saved rows that can be used, without any log."""
        cells = (saved_cell(unit, rows.get(unit.key)) for unit in self._visible(keys))
        return {cell.unit.key: cell.view for cell in cells if cell is not None}

    def hydrate(
        self,
        session: Session,
        rows: Mapping[str, object],
        events: Sequence[SessionEvent],
        base_seq: int,
    ) -> None:
        """Give a prepared session the states of saved rows, so that nothing is folded again.

        Raises:
            ProjectionRestoreError: A row cannot be used and `base_seq` is not 0.
            ProjectionFailed: A unit raised.
        """
        start = (session.header, session.inherited_event_count)
        self._keep(session, self._restored(rows, events, base_seq, start))

    def _add(self, unit: Unit) -> Callable[[], None]:
        registered = self._units.setdefault(unit.key, _Registered(unit))
        registered.count += 1
        return lambda: self._remove(unit.key, registered)

    def _remove(self, key: str, registered: _Registered) -> None:
        registered.count -= 1
        if registered.count == 0:
            del self._units[key]
            for cells in list(self._cells.values()):  # a session may go at any time
                cells.pop(key, None)

    def _visible(self, keys: Iterable[str] | None) -> list[Unit]:
        wanted = self._units if keys is None else [key for key in keys if key in self._units]
        units = [self._units[key].unit for key in wanted]
        return [unit for unit in units if unit.view is not None]

    def _touch(self, session: Session, unit: Unit) -> Cell:
        """The unit's cell, brought to the end of the log.

        Raises:
            ProjectionFailed: The unit cannot follow.
        """
        cells = self._cells.get(id(session))
        cell = None if cells is None else cells.get(unit.key)
        if cell is None:
            cell = self._new_cell(session, unit)
        if cell.seq + 1 < session.seq:
            cell.follow(session, session.seq, self._teller(session))
        return cell

    def _new_cell(self, session: Session, unit: Unit) -> Cell:
        """The unit's cell, folded, and nobody is told.

        The event that is being told of is left out: it is news for a cell that is made by a read.
        """
        start = (session.header, session.inherited_event_count)
        cell = new_cell(unit, *start)
        cells = self._cells.get(id(session))
        if cells is None:
            cells = self._keep(session, {})
        cells[unit.key] = cell
        cell.follow(session, session.seq - session.appending)
        return cell

    def _keep(self, session: Session, cells: dict[str, Cell]) -> dict[str, Cell]:
        number = id(session)
        self._cells[number] = cells
        self._sessions[number] = ref(session, partial(self._forget, number))
        return cells

    def _forget(self, number: int, _gone: object) -> None:
        del self._cells[number], self._sessions[number]

    def _appended(self, appended: SessionEventAppended) -> None:
        session, event = appended.session, appended.event
        cells = self._cells.get(id(session))
        if cells is None or len(cells) < len(self._units):
            self._touch_all(session)
            return
        changed = self._teller(session)
        seq, name = event.seq, event.type
        for cell in tuple(cells.values()):
            if cell.seq + 1 == seq:
                wanted = cell.wanted
                if wanted is not None and name not in wanted:
                    cell.seq = seq  # as `push` does; most events concern few units
                    continue
            try:
                if cell.seq + 1 == seq:
                    cell.push(event, changed)
                else:  # it failed before, or was read by a listener that came first
                    cell.follow(session, seq + 1, changed)
            except ProjectionFailed as error:
                self._warn(session, error)

    def _touch_all(self, session: Session) -> None:
        for registered in list(self._units.values()):
            try:
                self._touch(session, registered.unit)
            except ProjectionFailed as error:
                self._warn(session, error)

    def _warn(self, session: Session, error: ProjectionFailed) -> None:
        log().warning("projection.failed", key=error.key, seq=error.seq, session=session.id)

    def _teller(self, session: Session) -> Changed | None:
        """What tells the listeners; `None` if there are none."""
        return partial(self._tell, session) if self._listeners else None

    def _tell(self, session: Session, key: str, view: JsonValue, seq: int) -> None:
        for listener in list(self._listeners.values()):
            try:
                listener(session, key, view, seq)
            except Exception:  # noqa: BLE001  # a listener's failure is no unit's and no peer's
                log().exception("projection.listener_failed", key=key, session=session.id)

    def _needed(self, unit: Unit, rows: Mapping[str, object]) -> int:
        cell = saved_cell(unit, rows.get(unit.key))
        return 0 if cell is None else cell.seq + 1

    def _restored(
        self,
        rows: Mapping[str, object],
        events: Sequence[SessionEvent],
        base_seq: int,
        start: tuple[SessionHeader, int],
    ) -> dict[str, Cell]:
        end = base_seq + len(events) - 1
        cells: dict[str, Cell] = {}
        for key, registered in self._units.items():
            cell = saved_cell(registered.unit, rows.get(key), least=base_seq - 1, most=end)
            if cell is None and base_seq > 0:
                raise ProjectionRestoreError(key, base_seq)
            if cell is None:
                cell = new_cell(registered.unit, *start)
            push_all(cell, events)
            cells[key] = cell
        return cells
