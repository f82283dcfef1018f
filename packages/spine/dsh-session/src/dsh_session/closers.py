"""Closing a turn that nobody will finish: results for its open calls, its step, the turn.

Upstream: packages/session/session/src/interrupted-turn.ts.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from dsh_llm import CallId, Message, MessageId, TextBlock, ToolCallBlock, ToolSource
from dsh_session.events import (
    AssistantMessageEvent,
    EndSeed,
    SessionEvent,
    SessionEventData,
    StepEnd,
    StepStart,
    ToolCallEvent,
    ToolErrorInfo,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
)
from dsh_session.reasons import EndReason, Forked, Interrupted

TOOL_NOT_STARTED: Final = "TOOL_NOT_STARTED"
"""Code of the result of a call that was never dispatched."""
TOOL_OUTCOME_UNKNOWN: Final = "TOOL_OUTCOME_UNKNOWN"
"""Code of the result of a call that was dispatched, with nobody left to tell its outcome."""

CloseCause: TypeAlias = Literal["interrupted", "forked"]

_TEXTS: Final[dict[tuple[CloseCause, bool], str]] = {
    # Format: readers of the shared log compare the first text.
    ("interrupted", False): (
        "The tool call was interrupted before the Harness recorded it as started. "
        "Retry it if it is still needed."
    ),
    ("interrupted", True): (
        "The tool call was started, and the Harness stopped before its result was recorded: its "
        "outcome is unknown. Repeat it only if it is read-only or idempotent; otherwise verify "
        "its effects first, or ask the user."
    ),
    ("forked", False): (
        "In the history inherited by this fork the tool call was not recorded as started. The "
        "parent session may have gone on to run it. Check before you repeat it."
    ),
    ("forked", True): (
        "In the history inherited by this fork the tool call was started and has no recorded "
        "result. The parent session may have gone on and finished it. Repeat it only if it is "
        "read-only or idempotent; otherwise verify its effects first, or ask the user."
    ),
}


class RecoveredResult(msgspec.Struct, frozen=True):
    """The result to append for a call that got none: ``session.append(result.data, ...)``."""

    data: ToolResultEvent
    source_event_seqs: tuple[int, ...] | None


class _Pending(msgspec.Struct):
    turn: int
    step: int
    call_seq: int | None = None


class ToolCallRecovery:
    """Follows the calls of the open step, and answers those that stayed open.

    Feed it each committed event; it keeps ids, not history.
    """

    def __init__(self) -> None:
        self.turn: int | None = None
        """The open turn."""
        self.step: int | None = None
        """The open step."""
        self._pending: dict[CallId, _Pending] = {}

    @property
    def pending(self) -> tuple[CallId, ...]:
        """Calls without a result, in the order in which they were announced."""
        return tuple(self._pending)

    def started(self, call_id: CallId) -> bool:
        """Whether an open call was dispatched; false for one that is not open."""
        call = self._pending.get(call_id)
        return call is not None and call.call_seq is not None

    def observe(self, event: SessionEvent) -> None:
        """Take one committed event into account."""
        match event.data:
            case TurnStart(turn=turn):
                self.turn, self.step = turn, None
                self._pending.clear()
            case TurnEnd():
                self.turn, self.step = None, None
                self._pending.clear()
            case StepStart(step=step):
                self.step = step
            case StepEnd():
                self.step = None
                self._pending.clear()
            case AssistantMessageEvent() as data:
                self._announce(data)
            case ToolCallEvent(call_id=call_id) if call_id in self._pending:
                self._pending[call_id].call_seq = event.seq
            case ToolResultEvent() as data if event.surface_op == "append":
                self._answer(data)
            case _:
                pass

    def results(self, next_seq: int, cause: CloseCause = "interrupted") -> list[RecoveredResult]:
        """One error result per open call.

        Args:
            next_seq: Seq that the first of them will have; the others follow.
            cause: What ended the turn.
        """
        return [
            _result(call_id, call, seq, cause)
            for seq, (call_id, call) in enumerate(self._pending.items(), next_seq)
        ]

    def _announce(self, data: AssistantMessageEvent) -> None:
        for block in data.message.content:
            if isinstance(block, ToolCallBlock):
                self._pending[block.id] = _Pending(data.turn, data.step)

    def _answer(self, data: ToolResultEvent) -> None:
        call_id = data.message.tool_call_id
        call = None if call_id is None else self._pending.get(call_id)
        if call is not None and (call.turn, call.step) == (data.turn, data.step):
            del self._pending[CallId(str(call_id))]


def _result(call_id: CallId, call: _Pending, seq: int, cause: CloseCause) -> RecoveredResult:
    started = call.call_seq is not None
    message = Message(
        id=MessageId(f"{cause}-tool-result-{call_id}-{seq}"),
        role="tool",
        source=ToolSource(call_id=call_id),
        tool_call_id=call_id,
        content=(TextBlock(text=_TEXTS[cause, started]),),
        is_error=True,
    )
    error = (
        ToolErrorInfo(name="ToolOutcomeUnknownError", code=TOOL_OUTCOME_UNKNOWN)
        if started
        else ToolErrorInfo(name="ToolNotStartedError", code=TOOL_NOT_STARTED)
    )
    data = ToolResultEvent(turn=call.turn, step=call.step, message=message, error=error)
    return RecoveredResult(data, None if call.call_seq is None else (call.call_seq,))


def interrupted_turn_closers(events: Iterable[SessionEvent]) -> list[SessionEvent]:
    """The events that close the last turn of a crashed session; none if no turn is open.

    Seqs continue the log, times repeat its last one. Pure: the same log gives the same events.
    """
    return _closers(events, "interrupted")


def build_fork_seed(events: Sequence[SessionEvent], boundary: int) -> list[SessionEvent]:
    """The seed of a fork: the prefix, the marker, and closers if the cut is inside a turn.

    Args:
        events: The log of the parent.
        boundary: Seq of the last inherited event; the inherited count is one more.

    Raises:
        ValueError: The boundary is outside the log.
    """
    if type(boundary) is not int or not 0 <= boundary < len(events):
        raise ValueError(f"boundary {boundary!r} is no seq of a log of {len(events)} events")
    seed = list(events[: boundary + 1])
    marker = EndSeed(inherited=True)
    seed.append(_next(seed, marker))
    return [*seed, *_closers(seed, "forked")]


def _closers(events: Iterable[SessionEvent], cause: CloseCause) -> list[SessionEvent]:
    recovery = ToolCallRecovery()
    last: SessionEvent | None = None
    for last in _last_turn(events):
        recovery.observe(last)
    if last is None or recovery.turn is None:
        return []
    out = [last]
    for result in recovery.results(last.seq + 1, cause):
        out.append(_next(out, result.data, result.source_event_seqs))
    if recovery.step is not None:
        out.append(_next(out, StepEnd(turn=recovery.turn, step=recovery.step)))
    reason: EndReason = Interrupted() if cause == "interrupted" else Forked()
    out.append(_next(out, TurnEnd(turn=recovery.turn, reason=reason)))
    return out[1:]


def _last_turn(events: Iterable[SessionEvent]) -> Sequence[SessionEvent]:
    """The events from the last start of a turn on: what came before leaves nothing open."""
    log = events if isinstance(events, Sequence) else list(events)
    start = next((i for i in reversed(range(len(log))) if isinstance(log[i].data, TurnStart)), 0)
    return log[start:]


def _next(
    log: Sequence[SessionEvent],
    data: SessionEventData,
    cited: tuple[int, ...] | None = None,
) -> SessionEvent:
    last = log[-1]
    return SessionEvent(
        type=data.type,
        seq=last.seq + 1,
        time=last.time,
        data=data,
        source_event_seqs=cited,
        surface_op="append" if data.surface else None,
    )
