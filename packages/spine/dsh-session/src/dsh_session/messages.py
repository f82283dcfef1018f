"""From surface nodes to the messages of a request."""

from dsh_llm import Message
from dsh_session.events import (
    SURFACE_EVENT_DATA,
    EventData,
    SessionEvent,
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
    return message_of(event.data, projected) if is_surface_event(event) else None


def message_of(data: EventData, projected: Message | None = None) -> Message | None:
    """The message that a payload of the surface gives; none for any other payload."""
    if not isinstance(data, SURFACE_EVENT_DATA):
        return None
    message = data.message if projected is None else projected
    if not message.content and not isinstance(data, UserMessageEvent | ToolResultEvent):
        return None
    return message
