"""A log of a thousand turns: appending, deriving the history, writing and reading the events."""

from collections.abc import Callable, Mapping

from dsh_llm import create_user_message
from dsh_session import (
    Session,
    SessionId,
    TurnStart,
    UserMessageEvent,
    decode_event,
    encode_event,
)

BASELINE = "a list of the payloads"
TURNS = 1000


def cases() -> Mapping[str, Callable[[], object]]:
    """Each case handles all events once."""
    payloads = [
        (TurnStart(turn=turn), UserMessageEvent(message=create_user_message("Say something.")))
        for turn in range(1, TURNS + 1)
    ]

    def fill() -> Session:
        session = Session.create(SessionId("bench"), now_ms=lambda: 0)
        for start, message in payloads:
            session.append(start)
            session.append(message, surface_op="append")
        return session

    full = fill()
    header = full.header
    events = list(full.events)
    lines = [encode_event(event) for event in events]

    def plain() -> list[object]:
        kept: list[object] = []
        for start, message in payloads:
            kept.append(start)
            kept.append(message)
        return kept

    def restore() -> object:
        session = Session.from_restore(SessionId("bench"), events, header, now_ms=lambda: 0)
        return session.derive_messages()

    return {
        "a list of the payloads": plain,
        "append to a session": fill,
        "restore and derive the history": restore,
        "write the events": lambda: [encode_event(event) for event in events],
        "read the events": lambda: [decode_event(line) for line in lines],
    }
