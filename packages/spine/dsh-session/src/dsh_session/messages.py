"""From surface nodes to the messages of a request."""

from dsh_llm import Message
from dsh_session.events import (
    SURFACE_EVENT_DATA,
    EventData,
    SessionEvent,
    SurfaceEventData,
    ToolResultEvent,
    UserMessageEvent,
    is_surface_event,
)


def derive_event_message(event: SessionEvent, projected: Message | None = None) -> Message | None:
    """The message that a surface node stands for, the very object of the event.

    Args:
        event: Any event; one that is not on the surface gives none.
        projected: What a message projection made of the event's message.
    """
    data = event.data
    if not is_surface_event(event) or not isinstance(data, SURFACE_EVENT_DATA):
        return None
    return message_of(data, projected)


def message_of(data: EventData, projected: Message | None = None) -> Message | None:
    """The message that a payload of the surface gives; none for any other payload."""
    if isinstance(data, SURFACE_EVENT_DATA):
        message = data.message if projected is None else projected
        return message if message.content else _unless_empty(data, message)
    return None


def _unless_empty(data: SurfaceEventData, message: Message) -> Message | None:
    if message.content or isinstance(data, UserMessageEvent | ToolResultEvent):
        return message
    return None
