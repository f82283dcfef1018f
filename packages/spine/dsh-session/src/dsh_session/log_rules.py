"""What a whole stored log must satisfy: turns, steps, and what stands inside them.

Pairing of calls and results is not judged here: a log that breaks it is opened, and requests made
from it are put right.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NoReturn, Protocol, TypeVar, cast

from dsh_session._seed import check_restored, last_cut
from dsh_session.errors import InvalidLogError
from dsh_session.events import (
    AssistantAttempt,
    AssistantMessageEvent,
    DeveloperMessageEvent,
    EndSeed,
    EventData,
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

D = TypeVar("D", bound=EventData)

_NUMBERED = frozenset(
    cls.type
    for cls in (
        *(TurnStart, TurnEnd, StepStart, StepEnd, SystemMessageEvent, DeveloperMessageEvent),
        *(AssistantMessageEvent, AssistantAttempt, ToolCallEvent, ToolResultEvent),
    )
)


class _InStep(Protocol):
    """Data that name a step."""

    @property
    def turn(self) -> int: ...
    @property
    def step(self) -> int: ...


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
        _RULES.get(type(event.data), LogRules._other)(self, event, event.data)

    def finish(self) -> None:
        """Judge what only the end of the log can tell.

        Raises:
            InvalidLogError: A turn boundary crosses a compaction of the present lifecycle.
        """
        if self._crossed is not None:
            raise InvalidLogError("a turn boundary crosses an open compaction", seq=self._crossed)

    def _turn_end(self, event: SessionEvent, data: TurnEnd) -> None:
        self._cross(event)
        if data.turn != self._turn:
            _refuse(event, f"turn {data.turn!r} ends while turn {self._turn!r} is open")
        if data.reason.__struct_config__.tag in ("interrupted", "forked"):
            self._compacting, self._crossed = False, None
        self._turn = self._step = None

    def _turn_start(self, event: SessionEvent, data: TurnStart) -> None:
        self._cross(event)
        if self._turn is not None or data.turn != self._turns + 1 or type(data.turn) is not int:
            _refuse(event, f"turn {data.turn!r} starts after turn {self._turns}, {self._state()}")
        self._turns = self._turn = data.turn
        self._steps = 0

    def _cross(self, event: SessionEvent) -> None:
        if self._compacting and self._crossed is None:
            self._crossed = event.seq  # forgiven if a later marker ends that lifecycle

    def _step_end(self, event: SessionEvent, data: StepEnd) -> None:
        self._in_step(event, data)
        self._step = None

    def _step_start(self, event: SessionEvent, data: StepStart) -> None:
        fits = self._turn is not None and data.turn == self._turn and self._step is None
        if not fits or data.step != self._steps + 1 or type(data.step) is not int:
            _refuse(event, f"step {data.turn!r}/{data.step!r} starts, {self._state()}")
        self._steps = self._step = data.step

    def _in_turn(self, event: SessionEvent, data: EventData) -> None:
        if self._turn is None:
            _refuse(event, "it stands outside a turn")

    def _in_step(self, event: SessionEvent, data: _InStep) -> None:
        if self._step is None or data.turn != self._turn or data.step != self._step:
            _refuse(event, f"it names step {data.turn!r}/{data.step!r}, {self._state()}")

    def _result(self, event: SessionEvent, data: ToolResultEvent) -> None:
        if isinstance(event.surface_op, ReplaceOp):
            self._in_turn(event, data)
        else:
            self._in_step(event, data)

    def _marker(self, event: SessionEvent, data: EndSeed) -> None:
        self._compacting, self._crossed = False, None

    def _raw(self, event: SessionEvent, data: RawData) -> None:
        if event.type in _NUMBERED:
            _refuse(event, "its data is not of the shape of its type")
        self._other(event, data)

    def _other(self, event: SessionEvent, data: EventData) -> None:
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


_Rule = Callable[[LogRules, SessionEvent, EventData], None]


def _for(cls: type[D], rule: Callable[[LogRules, SessionEvent, D], None]) -> tuple[type, _Rule]:
    return cls, cast("_Rule", rule)  # the table is asked by the payload's own class


def _refuse(event: SessionEvent, reason: str) -> NoReturn:
    raise InvalidLogError(f"{event.type!r}: {reason}", seq=event.seq)


_RULES: Final[dict[type, _Rule]] = dict(
    (
        _for(TurnStart, LogRules._turn_start),
        _for(TurnEnd, LogRules._turn_end),
        _for(StepStart, LogRules._step_start),
        _for(StepEnd, LogRules._step_end),
        _for(SystemMessageEvent, LogRules._in_step),
        _for(DeveloperMessageEvent, LogRules._in_step),
        _for(AssistantMessageEvent, LogRules._in_step),
        _for(AssistantAttempt, LogRules._in_step),
        _for(ToolCallEvent, LogRules._in_step),
        _for(ToolResultEvent, LogRules._result),
        _for(RequestContext, LogRules._in_turn),
        _for(RequestHeaderEvent, LogRules._in_turn),
        _for(EndSeed, LogRules._marker),
        _for(RawData, LogRules._raw),
    )
)
