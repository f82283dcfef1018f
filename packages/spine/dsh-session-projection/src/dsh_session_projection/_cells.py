"""One unit's state for one session, and how it follows the log."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from dsh_brand import JsonValue, is_json
from dsh_session import Session, SessionEvent, SessionHeader
from dsh_session_projection.definition import ProjectionDefinition, ProjectionRow, same
from dsh_session_projection.errors import ProjectionFailed

Unit = ProjectionDefinition[Any]  # each unit has a state type of its own
Changed = Callable[[str, JsonValue, int], None]
"""Told the key, the checked view and the seq."""

_NEVER_MADE: Final = object()
"""In the place of a raw view: equal to none."""


class Cell:
    """A unit folded to some position.

    A step that fails is not made: the cell keeps its last good value and the next touch tries the
    same event again. The view is made when somebody reads it or waits for changes.
    """

    __slots__ = ("_raw_view", "_stale", "_view", "seq", "state", "unit", "wanted")

    def __init__(self, unit: Unit, state: object, seq: int) -> None:
        self.unit = unit
        self.wanted = unit.event_types
        self.state = state
        self.seq = seq
        """The last event in the state; -1 for none."""
        self._raw_view: object = _NEVER_MADE
        self._view: JsonValue = None
        self._stale = unit.view is not None

    @property
    def view(self) -> JsonValue:
        """The checked view of the state; `None` for a unit without views.

        Raises:
            ProjectionFailed: The view raised.
        """
        if self._stale:
            try:
                self._look_again(self.state)
            except Exception as error:
                raise ProjectionFailed(self.unit.key, self.seq, error) from error
        return self._view

    def push(self, event: SessionEvent, changed: Changed | None = None) -> None:
        """Make one step.

        Raises:
            ProjectionFailed: The unit raised, or its view when somebody is to be told of it.
        """
        if self.wanted is not None and event.type not in self.wanted:
            self.seq = event.seq
            return
        told = False
        try:
            state = self.unit.apply(self.state, event)
            if self.unit.view is not None and not same(state, self.state):
                if changed is None:
                    self._stale = True
                else:
                    told = self._view_changes(state)
        except Exception as error:
            raise ProjectionFailed(self.unit.key, event.seq, error) from error
        self.state, self.seq = state, event.seq
        if told and changed is not None:
            changed(self.unit.key, self._view, event.seq)

    def follow(self, session: Session, end: int, changed: Changed | None = None) -> None:
        """Catch up with the log before `end`.

        Raises:
            ProjectionFailed: The unit or its view raised.
        """
        while self.seq + 1 < end:
            self.push(session.event_at(self.seq + 1), changed)

    def row(self) -> ProjectionRow:
        """The state, to be saved."""
        value = self.unit.state_to_json(self.state)
        return ProjectionRow(ver=self.unit.state_version, seq=self.seq, val=value)

    def _view_changes(self, state: object) -> bool:
        """Take over the view of the next state; whether it is another one than that of this."""
        try:
            _ = self.view
        except ProjectionFailed:  # a state without a view was left behind: any view is news
            self._raw_view = _NEVER_MADE
        return self._look_again(state)

    def _look_again(self, state: object) -> bool:
        assert self.unit.view is not None, "only views go stale"
        raw = self.unit.view(state)
        told = not same(raw, self._raw_view)
        if told:
            self._view, self._raw_view = self.unit.checked_view(raw), raw
        self._stale = False
        return told


def new_cell(unit: Unit, header: SessionHeader, inherited_event_count: int) -> Cell:
    """The unit before the first event.

    Raises:
        ProjectionFailed: The unit or its view raised.
    """
    try:
        return Cell(unit, unit.init(header, inherited_event_count), -1)
    except Exception as error:
        raise ProjectionFailed(unit.key, -1, error) from error


def saved_cell(unit: Unit, row: object, *, least: int = -1, most: int | None = None) -> Cell | None:
    """The unit as it was saved, `None` if the row cannot be used.

    Args:
        unit: The unit.
        row: What was saved for its key, unchecked.
        least: The smallest seq that is of use.
        most: The largest.
    """
    if not isinstance(row, Mapping) or not row.keys() >= {"ver", "seq", "val"}:
        return None
    ver, seq = row["ver"], row["seq"]
    if type(ver) is not int or type(seq) is not int or ver != unit.state_version:
        return None
    if seq < least or (most is not None and seq > most) or not is_json(row["val"]):
        return None
    try:
        cell = Cell(unit, unit.state_from_json(cast("JsonValue", row["val"])), seq)
        _ = cell.view
    except Exception:  # noqa: BLE001  # a state that its unit cannot take is one that is not there
        return None
    return cell


def push_all(cell: Cell, events: Iterable[SessionEvent]) -> None:
    """Push the events that the cell has not seen.

    Raises:
        ProjectionFailed: The unit or its view raised.
    """
    for event in events:
        if event.seq > cell.seq:
            cell.push(event)
