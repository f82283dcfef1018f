"""Events that change messages already in history. Upstream: session message projections.

The owner of such an event declares its payload class with ``projects = True`` and registers what
the event does with ``ctx.sessions.register_message_projection()``. Stored events, surface nodes and
message ids stay as they are; what changes is the content that `derive_messages` gives.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from dsh_brand import JsonValue, NotJsonError, json_equal, to_json
from dsh_llm import Message
from dsh_session._freeze import freeze_payload
from dsh_session.checks import check_event
from dsh_session.errors import InvalidEventError, ProjectionUnavailableError, UnsupportedEventError
from dsh_session.events import SURFACE_EVENT_DATA, SessionEvent
from dsh_session.vocabulary import is_projecting_type


class ProjectionContext(msgspec.Struct, frozen=True):
    """What a projection may look at: the log before its event."""

    nodes: tuple[int, ...]
    """Seqs of the surface, in model order."""
    event_at: Callable[[int], SessionEvent]
    """Gives an earlier event by its seq."""
    base_seq: int
    """Seq of the first event that can be asked for; 0 but for a window of a log."""
    messages: Mapping[int, Message]
    """The message of each node by its seq, as earlier projections left it."""


class SessionMessageProjection(Protocol):
    """What an event type does to the messages before it."""

    @property
    def type(self) -> str:
        """The event type; its payload class is registered, with ``projects = True``."""
        ...

    def project(self, event: SessionEvent, context: ProjectionContext) -> Mapping[int, Message]:
        """The messages that change, by the seq of their node.

        Pure: the same log gives the same messages. All but a message's content stays.

        Raises:
            InvalidEventError: The event cannot stand here; it is refused.
        """
        ...


class MessageProjections:
    """The definitions that are registered now, one for each event type."""

    def __init__(self, definitions: Iterable[SessionMessageProjection] = ()) -> None:
        """Register `definitions`; raises as `add`."""
        self._by_type: dict[str, SessionMessageProjection] = {}
        for definition in definitions:
            self.add(definition)

    def add(self, definition: SessionMessageProjection) -> Callable[[], None]:
        """Register one; the result takes it away again.

        Raises:
            ValueError: Its type has a definition, or no payload class that says it projects.
        """
        name = definition.type
        if not is_projecting_type(name):
            raise ValueError(
                f"event type {name!r} changes no messages: register its payload class with "
                "`projects: ClassVar[bool] = True` first"
            )
        if name in self._by_type:
            raise ValueError(f"event type {name!r} has a message projection already")
        self._by_type[name] = definition

        def remove() -> None:
            if self._by_type.get(name) is definition:
                del self._by_type[name]

        return remove

    def needed(self, event: SessionEvent) -> SessionMessageProjection:
        """The definition of an event that enters a log.

        Raises:
            UnsupportedEventError: There is none.
        """
        definition = self._by_type.get(event.type)
        if definition is None:
            reason = "it changes messages in history, and no message projection is registered"
            raise UnsupportedEventError(event.type, event.seq, reason)
        return definition

    def check_present(self, types: Iterable[str]) -> None:
        """Raise unless every one of these types still has its definition.

        Raises:
            ProjectionUnavailableError: One has none.
        """
        for name in types:
            if name not in self._by_type:
                raise ProjectionUnavailableError(name)


def project_messages(
    event: SessionEvent, definition: SessionMessageProjection, context: ProjectionContext
) -> dict[int, Message]:
    """What a projection makes of the messages before it, checked and frozen.

    Raises:
        InvalidEventError: The projection refused the event, or gave what no message can become.
    """
    projected = definition.project(event, context)
    found: dict[int, Message] = {}
    for seq, message in projected.items():
        if seq not in context.messages:
            raise _refused(event, f"it changes seq {seq!r}, which is no node with a message")
        found[seq] = _checked(event, context.event_at(seq), context.messages[seq], message)
    return found


def _checked(event: SessionEvent, node: SessionEvent, old: Message, new: object) -> Message:
    if not isinstance(new, Message):
        raise _refused(event, f"it makes of the message of seq {node.seq} a {type(new).__name__}")
    if not json_equal(_but_content(old), _but_content(new)):
        raise _refused(event, f"it changes more of the message of seq {node.seq} than its content")
    try:
        data = freeze_payload(msgspec.structs.replace(node.data, message=new))
        check_event(msgspec.structs.replace(node, data=data))
    except (NotJsonError, InvalidEventError) as error:
        raise _refused(event, f"the new message of seq {node.seq} is none: {error}") from error
    assert isinstance(data, SURFACE_EVENT_DATA)
    return data.message


def _but_content(message: Message) -> JsonValue:
    return to_json(msgspec.structs.replace(message, content=()))


def _refused(event: SessionEvent, reason: str) -> InvalidEventError:
    return InvalidEventError(reason, event_type=event.type, seq=event.seq)
