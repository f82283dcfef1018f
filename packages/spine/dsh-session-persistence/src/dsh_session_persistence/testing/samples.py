"""Small valid logs."""

from collections.abc import Iterator

from dsh_llm import Message, MessageId, TextBlock, UserSource
from dsh_session import (
    Completed,
    EndSeed,
    SessionEvent,
    SessionEventData,
    SessionHeader,
    SessionId,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
)

_EPOCH_MS = 1_789_000_000_000


def sample_header(
    session_id: str = "sample", *, cwd: str | None = "/srv/demo", is_seeded: bool = False
) -> SessionHeader:
    """A header of the native format."""
    return SessionHeader(
        id=SessionId(session_id),
        created_at=_EPOCH_MS,
        cwd=cwd,
        is_seeded=is_seeded,
        delegation_depth=0,
    )


def sample_events(count: int, *, start: int = 0) -> list[SessionEvent]:
    """Slice `start : start + count` of an endless valid log: turns of three events each."""
    events: list[SessionEvent] = []
    for seq, payload in enumerate(_payloads()):
        if seq >= start + count:
            break
        if seq >= start:
            events.append(_event(seq, payload))
    return events


def inherited_marker(seq: int) -> SessionEvent:
    """The marker at the end of a fork prefix of `seq` events."""
    return _event(seq, EndSeed(inherited=True))


def _payloads() -> Iterator[SessionEventData]:
    turn = 0
    while True:
        turn += 1
        yield TurnStart(turn=turn)
        yield UserMessageEvent(
            message=Message(
                id=MessageId(f"m{turn}"),
                role="user",
                content=(TextBlock(text=f"question {turn}"),),
                source=UserSource(),
            )
        )
        yield TurnEnd(turn=turn, reason=Completed())


def _event(seq: int, payload: SessionEventData) -> SessionEvent:
    return SessionEvent(
        type=payload.type,
        seq=seq,
        time=_EPOCH_MS + seq,
        data=payload,
        surface_op="append" if payload.surface else None,
    )
