"""Usage as a value that follows the log of each session."""

import msgspec

from dsh_brand import Wire
from dsh_session import SessionEvent, SessionHeader
from dsh_session_projection import ProjectionDefinition

from .attempts import Route, attempt_of, route_after
from .totals import SessionUsage

USAGE_KEY = "llmUsage"
"""Under this key the registry of projections serves the usage."""


class UsageState(Wire, frozen=True, kw_only=True):
    """The fold's state."""

    inherited: int = 0
    """Events below this seq are of the session that was forked."""
    provider: str = ""
    model: str = ""
    usage: SessionUsage = SessionUsage()


def _init(header: SessionHeader, inherited_event_count: int) -> UsageState:
    return UsageState(inherited=inherited_event_count)


def _apply(state: UsageState, event: SessionEvent) -> UsageState:
    before = Route(state.provider, state.model)
    route = route_after(before, event)
    if route is not before:
        return msgspec.structs.replace(state, provider=route.provider, model=route.model)
    attempt = attempt_of(event, route) if event.seq >= state.inherited else None
    if attempt is None:
        return state
    return msgspec.structs.replace(state, usage=state.usage.after(attempt))


def _view(state: UsageState) -> SessionUsage:
    # The very object, so that nobody is told of a change when only the route in force changed.
    return state.usage


def usage_unit() -> ProjectionDefinition[UsageState]:
    """The fold; its view is a `SessionUsage` as JSON."""
    return ProjectionDefinition(
        key=USAGE_KEY,
        state_version=1,
        init=_init,
        apply=_apply,
        view=_view,
        state_type=UsageState,
        view_type=SessionUsage,
    )
