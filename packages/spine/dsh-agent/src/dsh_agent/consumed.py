"""Which work a log accounts for: the last turn that did something, and input dropped after it."""

from collections.abc import Iterable

import msgspec

from dsh_session import (
    Completed,
    InboxSpliced,
    SessionEvent,
    StepStart,
    TurnEnd,
    TurnEndReason,
    TurnStart,
)


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
