"""What a stored log must satisfy as a whole, beyond each single event.

Every store runs its events through `StoredLogRules` when it reads. Calls and results that do not
pair are no violation: such a log is opened, and requests are made valid when they are derived.
"""

from typing import Final, NoReturn

from dsh_session import (
    AssistantAttempt,
    AssistantMessageEvent,
    DeveloperMessageEvent,
    EndSeed,
    Forked,
    Interrupted,
    InvalidLogError,
    RequestContext,
    RequestHeaderEvent,
    SessionEvent,
    SessionHeader,
    StepEnd,
    StepStart,
    SurfaceManager,
    SystemMessageEvent,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
)

_COMPACTION_START: Final = "compaction/start"
_COMPACTION_END: Final = "compaction/end"


class StoredLogRules:
    """Follows a log event by event: the surface, the nesting of turns and steps, the fork cut."""

    def __init__(self, header: SessionHeader) -> None:
        self._header = header
        self._events: list[SessionEvent] = []
        self._surface = SurfaceManager(self._events.__getitem__)
        self._turn = 0
        self._turn_open = False
        self._step = 0
        self._step_open = False
        self._cut: int | None = None
        self._compaction: int | None = None
        self._crossing: tuple[int, int] | None = None

    def take(self, event: SessionEvent) -> None:
        """Follow the next event.

        Raises:
            InvalidLogError: It cannot stand there (turns, steps).
            SurfaceError: It cannot do that to the surface.
        """
        self._nest(event)
        self._surface.apply(event)
        self._events.append(event)

    def finish(self) -> None:
        """Check what only the end of the log shows; more events may follow all the same.

        Raises:
            InvalidLogError: Fork cut and header disagree, or a turn ends inside a compaction.
        """
        if self._header.is_seeded != (self._cut is not None):
            has = "has no" if self._header.is_seeded else "has a"
            said = "seeded" if self._header.is_seeded else "not seeded"
            raise InvalidLogError(
                f"the header says {said}, and the log {has} marker of an inherited prefix",
                seq=self._cut,
            )
        if self._crossing is not None:
            boundary, start = self._crossing
            raise InvalidLogError(
                f"a turn boundary inside the compaction that began at seq {start}", seq=boundary
            )

    def _nest(self, event: SessionEvent) -> None:
        match event.data:
            case TurnStart(turn=turn):
                self._start_turn(event, turn)
            case TurnEnd(turn=turn):
                self._end_turn(event, event.data)
            case StepStart(turn=turn, step=step):
                self._start_step(event, turn, step)
            case StepEnd(turn=turn, step=step):
                self._in_step(event, turn, step)
                self._step_open = False
            case (
                SystemMessageEvent(turn=turn, step=step)
                | DeveloperMessageEvent(turn=turn, step=step)
                | AssistantMessageEvent(turn=turn, step=step)
                | AssistantAttempt(turn=turn, step=step)
                | ToolCallEvent(turn=turn, step=step)
            ):
                self._in_step(event, turn, step)
            case ToolResultEvent(turn=turn, step=step):
                if event.surface_op == "append":
                    self._in_step(event, turn, step)
                else:
                    self._in_turn(event)
            case RequestHeaderEvent() | RequestContext():
                self._in_turn(event)
            case EndSeed(inherited=inherited):
                self._mark(event.seq, inherited=inherited is True)
            case _:
                self._bracket(event)

    def _start_turn(self, event: SessionEvent, turn: int) -> None:
        if self._turn_open:
            _refuse(event, f"turn {turn} starts inside turn {self._turn}")
        if turn != self._turn + 1:
            _refuse(event, f"turn {turn} starts where turn {self._turn + 1} is due")
        self._cross(event)
        self._turn, self._turn_open = turn, True
        self._step, self._step_open = 0, False

    def _end_turn(self, event: SessionEvent, data: TurnEnd) -> None:
        if not self._turn_open or data.turn != self._turn:
            _refuse(event, f"turn {data.turn} ends, which is not open")
        if isinstance(data.reason, Interrupted | Forked):
            # A crash ended the compaction too; its bracket is never closed.
            self._compaction = None
        self._cross(event)
        self._turn_open = self._step_open = False

    def _start_step(self, event: SessionEvent, turn: int, step: int) -> None:
        self._in_turn(event)
        if turn != self._turn:
            _refuse(event, f"a step of turn {turn} starts inside turn {self._turn}")
        if self._step_open:
            _refuse(event, f"step {step} starts inside step {self._step}")
        if step != self._step + 1:
            _refuse(event, f"step {step} starts where step {self._step + 1} is due")
        self._step, self._step_open = step, True

    def _in_turn(self, event: SessionEvent) -> None:
        if not self._turn_open:
            _refuse(event, "it stands outside a turn")

    def _in_step(self, event: SessionEvent, turn: int, step: int) -> None:
        open_one = (self._turn, self._step) if self._step_open else None
        if (turn, step) != open_one:
            where = "no step is open" if open_one is None else f"turn and step {open_one} are open"
            _refuse(event, f"it names turn {turn} and step {step}, but {where}")

    def _mark(self, seq: int, *, inherited: bool) -> None:
        """A new life of the session: what was open in the one before is dead."""
        self._compaction = self._crossing = None
        if inherited:
            self._cut = seq

    def _bracket(self, event: SessionEvent) -> None:
        if event.type == _COMPACTION_START:
            self._compaction = event.seq
        elif event.type == _COMPACTION_END:
            self._compaction = None

    def _cross(self, event: SessionEvent) -> None:
        if self._compaction is not None and self._crossing is None:
            self._crossing = (event.seq, self._compaction)


def _refuse(event: SessionEvent, reason: str) -> NoReturn:
    raise InvalidLogError(f"event {event.type!r}: {reason}", seq=event.seq)
