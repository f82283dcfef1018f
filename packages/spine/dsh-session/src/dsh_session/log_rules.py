"""What a whole stored log must satisfy: turns, steps, and what stands inside them.

Pairing of calls and results is not judged here: a log that breaks it is opened, and requests made
from it are put right.
"""

from collections.abc import Iterable, Sequence
from typing import NoReturn

from dsh_session._seed import check_restored, last_cut
from dsh_session.errors import InvalidLogError
from dsh_session.events import (
    AssistantAttempt,
    AssistantMessageEvent,
    DeveloperMessageEvent,
    EndSeed,
    RawData,
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
from dsh_session.header import SessionHeader

_NUMBERED = frozenset(
    cls.type
    for cls in (
        *(TurnStart, TurnEnd, StepStart, StepEnd, SystemMessageEvent, DeveloperMessageEvent),
        *(AssistantMessageEvent, AssistantAttempt, ToolCallEvent, ToolResultEvent),
    )
)


class LogRules:
    """Follows a log event by event and refuses what stands in the wrong place."""

    def __init__(self) -> None:
        self._turns = 0
        self._turn: int | None = None
        self._steps = 0
        self._step: int | None = None
        self._compacting = False
        self._crossed: int | None = None

    def push(self, event: SessionEvent) -> None:
        """Take the next event into account.

        Raises:
            InvalidLogError: It stands in the wrong place.
        """
        data = event.data
        match data:
            case TurnStart() | TurnEnd():
                self._boundary(event, data)
            case StepStart() | StepEnd():
                self._step_boundary(event, data)
            case EndSeed():
                self._compacting, self._crossed = False, None
            case RequestContext() | RequestHeaderEvent():
                self._need_turn(event)
            case ToolResultEvent() if isinstance(event.surface_op, ReplaceOp):
                self._need_turn(event)
            case (
                SystemMessageEvent()
                | DeveloperMessageEvent()
                | AssistantMessageEvent()
                | AssistantAttempt()
                | ToolCallEvent()
                | ToolResultEvent()
            ):
                self._need_step(event, data.turn, data.step)
            case RawData() if event.type in _NUMBERED:
                _refuse(event, "its data is not of the shape of its type")
            case _:
                self._compaction(event)

    def finish(self) -> None:
        """Judge what only the end of the log can tell.

        Raises:
            InvalidLogError: A turn boundary crosses a compaction of the present lifecycle.
        """
        if self._crossed is not None:
            raise InvalidLogError("a turn boundary crosses an open compaction", seq=self._crossed)

    def _boundary(self, event: SessionEvent, data: TurnStart | TurnEnd) -> None:
        if self._compacting and self._crossed is None:
            self._crossed = event.seq  # forgiven if a later marker ends that lifecycle
        if isinstance(data, TurnEnd):
            if data.turn != self._turn:
                _refuse(event, f"turn {data.turn!r} ends while turn {self._turn!r} is open")
            if data.reason.__struct_config__.tag in ("interrupted", "forked"):
                self._compacting, self._crossed = False, None
            self._turn = self._step = None
            return
        if self._turn is not None or data.turn != self._turns + 1 or type(data.turn) is not int:
            _refuse(event, f"turn {data.turn!r} starts after turn {self._turns}, {self._state()}")
        self._turns = self._turn = data.turn
        self._steps = 0

    def _step_boundary(self, event: SessionEvent, data: StepStart | StepEnd) -> None:
        if isinstance(data, StepEnd):
            self._need_step(event, data.turn, data.step)
            self._step = None
            return
        fits = self._turn is not None and data.turn == self._turn and self._step is None
        if not fits or data.step != self._steps + 1 or type(data.step) is not int:
            _refuse(event, f"step {data.turn!r}/{data.step!r} starts, {self._state()}")
        self._steps = self._step = data.step

    def _need_turn(self, event: SessionEvent) -> None:
        if self._turn is None:
            _refuse(event, "it stands outside a turn")

    def _need_step(self, event: SessionEvent, turn: int, step: int) -> None:
        if self._step is None or (turn, step) != (self._turn, self._step):
            _refuse(event, f"it names step {turn!r}/{step!r}, {self._state()}")

    def _compaction(self, event: SessionEvent) -> None:
        if event.type == "compaction/start":
            self._compacting = True
        elif event.type == "compaction/end":
            self._compacting = False

    def _state(self) -> str:
        if self._turn is None:
            return "and no turn is open"
        step = "no step" if self._step is None else f"step {self._step}"
        return f"and turn {self._turn} with {step} is open"


def check_log(header: SessionHeader, events: Sequence[SessionEvent], inherited: int) -> None:
    """Check a whole stored log of sound events; the surface is checked by `Session.from_restore`.

    Raises:
        InvalidLogError: It is none that this format allows.
    """
    check_restored(header, events, inherited)
    check_turns(events)


def check_turns(events: Iterable[SessionEvent]) -> None:
    """Check turns, steps and compactions of a log.

    Raises:
        InvalidLogError: Something stands in the wrong place.
    """
    rules = LogRules()
    for event in events:
        rules.push(event)
    rules.finish()


def inherited_count_of(events: Sequence[SessionEvent]) -> int:
    """The length of a log's fork prefix: the seq of its last tagged marker; 0 without one."""
    return last_cut(events) or 0


def _refuse(event: SessionEvent, reason: str) -> NoReturn:
    raise InvalidLogError(f"{event.type!r}: {reason}", seq=event.seq)
