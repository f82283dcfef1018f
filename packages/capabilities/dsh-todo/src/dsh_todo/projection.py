"""The list as state of a session: what the current turn wrote last, `None` before that."""

from typing import Final

import msgspec

from dsh_session import SessionEvent, SessionHeader, TodoWrite, TurnStart
from dsh_session_projection import ProjectionDefinition

TODOS_KEY: Final = "todos"


class TodoState(msgspec.Struct, frozen=True):
    """One entry; what else a writer put beside it is left out."""

    content: str
    status: str


def todos_unit() -> ProjectionDefinition[tuple[TodoState, ...] | None]:
    """The projection; its view is the list as JSON, or null."""
    return ProjectionDefinition(
        key=TODOS_KEY,
        state_version=1,
        init=_init,
        apply=_apply,
        view=lambda state: state,
        state_type=tuple[TodoState, ...] | None,
    )


def _init(header: SessionHeader, inherited_event_count: int) -> tuple[TodoState, ...] | None:
    return None


def _apply(
    state: tuple[TodoState, ...] | None, event: SessionEvent
) -> tuple[TodoState, ...] | None:
    match event.data:
        case TurnStart():
            return None
        case TodoWrite(todos=todos):
            return tuple(TodoState(item.content, item.status) for item in todos)
        case _:
            return state
