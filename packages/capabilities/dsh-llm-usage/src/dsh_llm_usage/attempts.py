"""The attempts of a log, each with what it used (L161)."""

from collections.abc import Iterable, Iterator

import msgspec

from dsh_llm import ModelSource, TokenUsage, UsageChunk, last_assistant_stream_chunk
from dsh_session import (
    AssistantAttempt,
    AssistantMessageEvent,
    RequestHeaderEvent,
    Session,
    SessionEvent,
)


class Route(msgspec.Struct, frozen=True):
    """Which model a request goes to."""

    provider: str = ""
    model: str = ""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at an answer, successful or not: each is paid for."""

    seq: int
    """Of its event."""
    time: int
    """When it was recorded, in Unix epoch milliseconds."""
    provider: str
    model: str
    answered: bool
    """Whether a message came of it; one that was interrupted counts."""
    usage: TokenUsage | None
    """`None`: the provider reported nothing."""


def attempts_of(session: Session) -> Iterator[Attempt]:
    """The attempts that this session made itself, oldest first; none of a fork's prefix."""
    return _attempts(session.events, session.inherited_event_count)


def _attempts(events: Iterable[SessionEvent], start: int) -> Iterator[Attempt]:
    route = Route()
    for event in events:
        route = route_after(route, event)
        attempt = attempt_of(event, route) if event.seq >= start else None
        if attempt is not None:
            yield attempt


def route_after(route: Route, event: SessionEvent) -> Route:
    """The route in force after an event; the very object if it is the same."""
    if not isinstance(event.data, RequestHeaderEvent):
        return route
    config = event.data.header.config
    if (config.provider, config.model) == (route.provider, route.model):
        return route
    return Route(config.provider, config.model)


def attempt_of(event: SessionEvent, route: Route) -> Attempt | None:
    """The attempt that an event records, `None` for any other event.

    Args:
        event: The event.
        route: The route in force, for attempts that do not name theirs.
    """
    data = event.data
    if not isinstance(data, AssistantMessageEvent | AssistantAttempt):
        return None
    usage = None
    if isinstance(data, AssistantMessageEvent):
        usage = data.usage
        source = data.message.source
        if isinstance(source, ModelSource):
            route = Route(source.provider, source.model)
    if usage is None:
        last = last_assistant_stream_chunk(data.stream, "usage")
        usage = last.usage if isinstance(last, UsageChunk) else None
    return Attempt(
        seq=event.seq,
        time=event.time,
        provider=route.provider,
        model=route.model,
        answered=isinstance(data, AssistantMessageEvent),
        usage=usage,
    )
