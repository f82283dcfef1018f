"""A companion for development and tests: refuses appends that break the order of turns and steps.

The log itself admits any order, since old logs have every order there is. Who writes one wants to
know at once: `ctx.plugin(dsh_session.invariant)` holds every live session to the core relations.
"""

from typing import NoReturn
from weakref import WeakKeyDictionary

from dsh_cordis import Context
from dsh_llm import CallId
from dsh_session.closers import TOOL_NOT_STARTED, ToolCallRecovery
from dsh_session.errors import InvalidLogError
from dsh_session.events import (
    AssistantAttempt,
    AssistantMessageEvent,
    DeveloperMessageEvent,
    ReplaceOp,
    RequestContext,
    RequestHeaderEvent,
    SessionEvent,
    StepEnd,
    StepStart,
    SystemMessageEvent,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
)
from dsh_session.session import Session
from dsh_session.store import SessionStore

name = "session-invariant"


class Needs(Context):
    """What the companion watches."""

    sessions: SessionStore


def apply(ctx: Needs) -> None:
    """Refuse, in every live session, appends that break a core relation."""
    followed: WeakKeyDictionary[Session, CoreRelations] = WeakKeyDictionary()

    def guard(session: Session, event: SessionEvent) -> None:
        relations = followed.get(session)
        if relations is None:
            relations = followed[session] = CoreRelations()
        relations.follow(session)
        relations.check(event)

    ctx.sessions.guard(guard)


class CoreRelations:
    """Knows which turn and step of a session are open, and which calls wait for a result."""

    def __init__(self) -> None:
        self._calls = ToolCallRecovery()
        self._turns = 0
        self._steps = 0
        self._seen = 0

    def follow(self, session: Session) -> None:
        """Take what was appended since the last time; whatever it is, it is history."""
        for event in session.events[self._seen :]:
            self._calls.observe(event)
            match event.data:
                case TurnStart(turn=turn):
                    self._turns, self._steps = turn, 0
                case StepStart(step=step):
                    self._steps = step
                case _:
                    pass
        self._seen = session.seq

    def check(self, event: SessionEvent) -> None:
        """Judge the next event.

        Raises:
            InvalidLogError: It breaks a relation.
        """
        turn, step = self._calls.turn, self._calls.step
        match event.data:
            case TurnStart() as data:
                if turn is not None or data.turn != self._turns + 1:
                    self._refuse(event, f"turn {data.turn} cannot start after turn {self._turns}")
            case TurnEnd() as data:
                if data.turn != turn or step is not None:
                    self._refuse(event, f"turn {data.turn} cannot end")
            case StepStart() as data:
                if data.turn != turn or step is not None or data.step != self._steps + 1:
                    self._refuse(event, f"step {data.turn}/{data.step} cannot start")
            case RequestHeaderEvent() | RequestContext() if turn is None:
                self._refuse(event, "it stands outside a turn")
            case ToolResultEvent() as data:
                self._check_result(event, data)
            case (
                StepEnd()
                | SystemMessageEvent()
                | DeveloperMessageEvent()
                | AssistantMessageEvent()
                | AssistantAttempt()
                | ToolCallEvent()
            ) as data:
                self._check_step(event, data.turn, data.step)
            case _:
                pass

    def _check_step(self, event: SessionEvent, turn: int, step: int) -> None:
        if self._calls.step is None or (turn, step) != (self._calls.turn, self._calls.step):
            self._refuse(event, f"it names step {turn}/{step}")

    def _check_result(self, event: SessionEvent, data: ToolResultEvent) -> None:
        if isinstance(event.surface_op, ReplaceOp):
            if self._calls.turn is None:
                self._refuse(event, "it rewrites a result outside a turn")
            return
        self._check_step(event, data.turn, data.step)
        call_id = CallId(str(data.message.tool_call_id))
        repaired = data.error is not None and data.error.code == TOOL_NOT_STARTED
        open_call = call_id in self._calls.pending
        if not (open_call and (repaired or self._calls.started(call_id))):
            what = "was not dispatched" if open_call else "is not open in this step"
            self._refuse(event, f"it answers call {call_id!r}, which {what}")

    def _refuse(self, event: SessionEvent, reason: str) -> NoReturn:
        state = (
            "no turn is open"
            if self._calls.turn is None
            else f"turn {self._calls.turn} is open with "
            + ("no step" if self._calls.step is None else f"step {self._calls.step}")
        )
        raise InvalidLogError(f"{event.type!r}: {reason}; {state}", seq=event.seq)


__all__ = ["CoreRelations", "Needs", "apply", "name"]
