"""What a projection is. Upstream: packages/session/session-projection/src/types.ts."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypedDict, TypeVar

import msgspec

from dsh_brand import FrozenDict, JsonValue, freeze_json, from_json, to_json
from dsh_session import SessionEvent, SessionHeader

S = TypeVar("S")


class ProjectionDefinition(msgspec.Struct, Generic[S], frozen=True, kw_only=True):
    """A fold of a session's log to a value; all of it synchronous and pure.

    `apply` returns the same object for an event that does not concern it. The state is JSON, or a
    frozen struct made of it; nobody changes it in place.
    """

    key: str
    """What readers ask for."""
    state_version: int
    """Grows when an old state cannot be used any more."""
    init: Callable[[SessionHeader, int], S]
    """The state before the first event, from the header and the length of the fork prefix."""
    apply: Callable[[S, SessionEvent], S]
    """The state after an event."""
    event_types: frozenset[str] | None = None
    """Types of the events that can change the state; others are not given to `apply`. `None`: all.
    """
    view: Callable[[S], object] | None = None
    """What clients see of the state, JSON; without it the unit is for this process only."""
    state_type: Any = None
    """The type of the state for `msgspec`; checked and built when a state is restored."""
    view_type: Any = None
    """The type of the view for `msgspec`; checked when one is made."""

    def state_to_json(self, state: S) -> JsonValue:
        """The state as detached builtins."""
        return to_json(state)

    def state_from_json(self, value: JsonValue) -> S:
        """The state from builtins.

        Raises:
            ValueError: It is no state of this unit.
        """
        frozen = freeze_json(value)
        state: S = frozen if self.state_type is None else from_json(self.state_type, frozen)  # type: ignore[assignment]  # without a type the state is JSON itself
        return state

    def checked_view(self, raw: object) -> JsonValue:
        """The view as frozen JSON.

        Raises:
            ValueError: It is no JSON, or not of `view_type`.
        """
        value = freeze_json(to_json(raw))
        if self.view_type is not None:
            from_json(self.view_type, value)
        return value


class ProjectionRow(TypedDict):
    """A state that was saved."""

    ver: int
    """`ProjectionDefinition.state_version` of the writer."""
    seq: int
    """The last event that is in it; -1 for none."""
    val: JsonValue


class ProjectionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The views of a session at one position of its log."""

    as_of_seq: int
    """The last event that is in them; -1 for an empty log."""
    values: Mapping[str, JsonValue]
    """Each view by its key."""
    failed: Mapping[str, Exception] = FrozenDict.__new__(FrozenDict)
    """Units that could not follow, when not asked for by name."""


def same(left: object, right: object) -> bool:
    """Whether a value did not change: identity of containers, type and value of scalars."""
    if left is right:
        return True
    return type(left) is type(right) and isinstance(left, str | int | float) and left == right
