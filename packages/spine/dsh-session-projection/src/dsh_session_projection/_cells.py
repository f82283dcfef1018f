"""One unit's state for one session, and how it follows the log."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from dsh_brand import JsonValue, is_json
from dsh_session import Session, SessionEvent, SessionHeader
from dsh_session_projection.definition import ProjectionDefinition, ProjectionRow, same
from dsh_session_projection.errors import ProjectionFailed

Unit = ProjectionDefinition[Any]  # each unit has a state type of its own
Changed = Callable[[str, JsonValue, int], None]
"""Told the key, the checked view and the seq."""


class Cell:
    """A unit folded to some position.

    A step that fails is not made: the cell keeps its last good value and the next touch tries the
    same event again.
    """

    __slots__ = ("error", "raw_view", "seq", "state", "unit", "view")

    def __init__(self, unit: Unit, state: object, seq: int) -> None:
        self.unit = unit
        self.state = state
        self.seq = seq
        """The last event in the state; -1 for none."""
        self.error: ProjectionFailed | None = None
        self.raw_view: object = None
        self.view: JsonValue = None
        if unit.view is not None:
            self.raw_view = unit.view(state)
            self.view = unit.checked_view(self.raw_view)

    def push(self, event: SessionEvent, changed: Changed | None = None) -> None:
        """Make one step.

        Raises:
            ProjectionFailed: The unit or its view raised.
        """
        try:
            told = self._step(event)
        except Exception as error:
            self.error = ProjectionFailed(self.unit.key, event.seq, error)
            raise self.error from error
        self.error = None
        if told and changed is not None:
            changed(self.unit.key, self.view, event.seq)

    def _step(self, event: SessionEvent) -> bool:
        state = self.unit.apply(self.state, event)
        told = False
        if self.unit.view is not None and not same(state, self.state):
            raw = self.unit.view(state)
            if not same(raw, self.raw_view):
                self.view, self.raw_view, told = self.unit.checked_view(raw), raw, True
        self.state, self.seq = state, event.seq
        return told

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
        return Cell(unit, unit.state_from_json(cast("JsonValue", row["val"])), seq)
    except Exception:  # noqa: BLE001  # a state that its unit cannot take is one that is not there
        return None


def push_all(cell: Cell, events: Iterable[SessionEvent]) -> None:
    """Push the events that the cell has not seen.

    Raises:
        ProjectionFailed: The unit or its view raised.
    """
    for event in events:
        if event.seq > cell.seq:
            cell.push(event)
