"""What a log is given before the agent over it exists: repairs of a crash, a fork's empty queue."""

from collections.abc import Sequence

from dsh_agent import InboxError, unwritten_input
from dsh_session import InboxSpliced, SessionEvent, interrupted_turn_closers

from .agent import LoopAgent


def repairs_of(events: Sequence[SessionEvent]) -> list[SessionEvent]:
    """What a log that stops inside a turn is continued with: its input given back, its end.

    The input comes first, so that a crash in between cannot lose it either.
    """
    closers = interrupted_turn_closers(events)
    if not closers:
        return []
    try:
        lost = unwritten_input(events)
    except InboxError:  # such a log makes no agent; the refusal names the event
        return closers
    returned: list[SessionEvent] = []
    for target in ("next-step", "next-turn"):
        if messages := lost.list_of(target):
            seq = len(events) + len(returned)
            data = InboxSpliced(target=target, start=0, inserted=messages)
            time = events[-1].time
            returned.append(SessionEvent(type=data.type, seq=seq, time=time, data=data))
    return [*returned, *interrupted_turn_closers([*events, *returned])] if returned else closers


def drop_inherited_queue(agent: LoopAgent) -> None:
    """A fork's input was meant for its parent; nobody has seen the child's session yet."""
    for target in ("next-step", "next-turn"):
        pending = agent.inbox.next_step if target == "next-step" else agent.inbox.next_turn
        if pending:
            agent.session.append(
                InboxSpliced(
                    target=target,
                    start=0,
                    removed_count=len(pending),
                    inserted=(),
                    outcome="canceled",
                )
            )
