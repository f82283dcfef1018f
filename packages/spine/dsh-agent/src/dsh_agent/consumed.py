"""Which input a log accounts for: what was run, what was dropped, and what a crash cut off."""

from collections.abc import Iterable

import msgspec

from dsh_llm import Message
from dsh_session import (
    AssistantAttempt,
    AssistantMessageEvent,
    Completed,
    InboxSpliced,
    RequestContext,
    RequestHeaderEvent,
    SessionEvent,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    UserMessageEvent,
)

from .projections import InboxState, apply_splice


class AccountedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A closed turn that opened a step, or took input and did not complete."""

    turn: int
    reason: TurnEndReason
    seq: int
    """Of its `turn/end`."""


class ConsumedWork(msgspec.Struct, frozen=True, kw_only=True):
    """What `fold_consumed_work` found."""

    end: AccountedTurn | None = None
    dropped_unrun: bool = False
    """Input was discarded after that turn without a replacement."""


def fold_consumed_work(events: Iterable[SessionEvent]) -> ConsumedWork:
    """Fold a log to its last accounted turn and whether input was dropped behind it."""
    end: AccountedTurn | None = None
    dropped = in_turn = stepped = claimed = False
    for event in events:
        match event.data:
            case TurnStart():
                in_turn, stepped, claimed = True, False, False
            case StepStart():
                stepped = True
            case InboxSpliced() as splice if splice.removed_count and not splice.inserted:
                if splice.outcome is not None:
                    dropped = True
                else:
                    claimed = claimed or in_turn
            case TurnEnd(turn=turn, reason=reason) if in_turn:
                in_turn = False
                if stepped or (claimed and not isinstance(reason, Completed)):
                    end = AccountedTurn(turn=turn, reason=reason, seq=event.seq)
                    dropped = False
            case _:
                pass
    return ConsumedWork(end=end, dropped_unrun=dropped)


def unwritten_input(events: Iterable[SessionEvent]) -> InboxState:
    """What the open turn of a log has claimed and not yet made part of the history.

    Where a crash cut the log there, nobody decided against these messages: they only exist in the
    event that queued them. Empty for a log without an open turn.

    Raises:
        InboxError: The inbox of the log cannot be folded.
    """
    inbox = InboxState()
    claimed: dict[str, tuple[str, Message]] = {}
    in_turn = False
    for event in events:
        match event.data:
            case InboxSpliced() as splice:
                if in_turn and splice.outcome is None and not splice.inserted:
                    end = splice.start + (splice.removed_count or 0)
                    for message in inbox.list_of(splice.target)[splice.start : end]:
                        claimed[message.id] = (splice.target, message)
                for message in splice.inserted:
                    claimed.pop(message.id, None)
                inbox = apply_splice(inbox, splice, event.seq)
            case UserMessageEvent(message=message):
                claimed.pop(message.id, None)
            case TurnStart() | TurnEnd():
                in_turn = isinstance(event.data, TurnStart)
                claimed.clear()
            case (
                StepEnd()
                | RequestHeaderEvent()
                | RequestContext()
                | AssistantMessageEvent()
                | AssistantAttempt()
            ):
                # The whole batch stands before these; what is missing was left out on purpose.
                claimed.clear()
            case _:
                pass
    return InboxState(
        next_turn=tuple(m for target, m in claimed.values() if target == "next-turn"),
        next_step=tuple(m for target, m in claimed.values() if target == "next-step"),
    )
