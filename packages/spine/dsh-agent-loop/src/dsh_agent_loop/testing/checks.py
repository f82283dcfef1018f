"""What must hold for the log and the events of an agent, whatever happened to it."""

from collections.abc import Sequence
from typing import TypeVar

from dsh_agent import (
    Agent,
    AgentAssistantStream,
    AgentStatusChanged,
    AssistantFrame,
    InboxClaimed,
    InboxDiscarded,
    InboxInserted,
    StreamChunkFrame,
    StreamEnd,
    StreamStart,
    inbox_unit,
    model_selection_unit,
    turn_boundary_unit,
)
from dsh_cordis import Context
from dsh_llm import ToolCallBlock, request_messages
from dsh_llm.testing import request_problems
from dsh_session import (
    AssistantAttempt,
    AssistantMessageEvent,
    Session,
    SessionEvent,
    SessionHeader,
    StepEnd,
    StepStart,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
    decode_event,
    encode_event,
)
from dsh_session_projection import ProjectionDefinition

S = TypeVar("S")


def log_problems(events: Sequence[SessionEvent], *, open_end: bool = False) -> list[str]:
    """What is wrong with the order and the pairing of a log; empty for a good one.

    Args:
        events: The whole log.
        open_end: The log may stop in the middle of a turn.
    """
    judge = _LogJudge()
    for event in events:
        judge.take(event)
    if judge.turn_open and not open_end:
        judge.complain("the last turn is open")
    return judge.problems


class _LogJudge:
    """Reads a log event by event."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.turn_open = False
        self._turn = 0
        self._step = 0
        self._step_open = False
        self._owed: list[str] = []
        self._called: set[str] = set()
        self._used: set[str] = set()
        self._seq = 0

    def complain(self, what: str) -> None:
        self.problems.append(f"seq {self._seq}: {what}")

    def take(self, event: SessionEvent) -> None:
        if event.seq != self._seq:
            self.complain(f"the event has seq {event.seq}")
        match event.data:
            case TurnStart() | TurnEnd() as boundary:
                self._turn_boundary(boundary)
            case StepStart() | StepEnd() as boundary:
                self._step_boundary(boundary)
            case AssistantMessageEvent() | AssistantAttempt() as answer:
                self._answer(answer)
            case ToolCallEvent(call_id=call_id):
                if call_id not in self._owed or call_id in self._called:
                    self.complain(f"tool/call {call_id!r} has no call of its own")
                self._called.add(call_id)
            case ToolResultEvent(message=message):
                self._result(message.tool_call_id or "")
            case _:
                pass
        self._seq += 1

    def _turn_boundary(self, event: TurnStart | TurnEnd) -> None:
        begins = isinstance(event, TurnStart)
        if begins == self.turn_open or self._step_open:
            self.complain(f"{event!r:.40} does not nest")
        if begins:
            if event.turn != self._turn + 1:
                self.complain(f"turn {event.turn} follows turn {self._turn}")
            self._turn, self._step = event.turn, 0
        self.turn_open = begins

    def _step_boundary(self, event: StepStart | StepEnd) -> None:
        begins = isinstance(event, StepStart)
        if begins == self._step_open or not self.turn_open:
            self.complain(f"{event!r:.40} does not nest")
        if begins:
            if (event.turn, event.step) != (self._turn, self._step + 1):
                self.complain(f"step {event.turn}.{event.step} follows {self._turn}.{self._step}")
            self._step = event.step
        elif self._owed:
            self.complain(f"the step ends without results of {self._owed}")
            self._owed = []
        self._step_open = begins

    def _answer(self, event: AssistantMessageEvent | AssistantAttempt) -> None:
        if not self._step_open or self._owed:
            self.complain("an answer stands outside a step or before results")
        if isinstance(event, AssistantAttempt):
            return
        self._owed = [b.id for b in event.message.content if isinstance(b, ToolCallBlock)]
        for call_id in self._owed:
            if not call_id or call_id in self._used:
                self.complain(f"call id {call_id!r} is empty or was used before")
            self._used.add(call_id)

    def _result(self, call_id: str) -> None:
        if not self._owed or self._owed[0] != call_id:
            self.complain(f"result of {call_id!r}, where {self._owed[:1]} was due")
        if call_id in self._owed:
            self._owed.remove(call_id)


def view_problems(ctx: Context, session: Session) -> list[str]:
    """Where the live view of a session differs from a reading of its log alone."""
    events = [decode_event(encode_event(event)) for event in session.events]
    fresh = Session.from_restore(
        session.id, events, session.header, session.inherited_event_count, now_ms=lambda: 0
    )
    pairs: dict[str, tuple[object, object]] = {
        "messages": (session.derive_messages(), fresh.derive_messages()),
        "surface": (tuple(session.surface.nodes), tuple(fresh.surface.nodes)),
        "header": (session.request_header(), fresh.request_header()),
        "context": (session.request_context(), fresh.request_context()),
    }
    for unit in (_Fold(inbox_unit), _Fold(model_selection_unit), _Fold(turn_boundary_unit)):
        live = ctx.session_projections.state_of(session, unit.key)
        pairs[unit.key] = (live, unit.of(session.header, events))
    problems = [
        f"the live {name} differ from the log's" for name, (a, b) in pairs.items() if a != b
    ]
    request = request_messages(fresh.derive_messages())
    return problems + [f"the next request: {problem}" for problem in request_problems(request)]


class _Fold:
    """Folds a log with a unit whose state type does not matter."""

    def __init__(self, unit: ProjectionDefinition[S]) -> None:
        self.key = unit.key

        def fold(header: SessionHeader, events: Sequence[SessionEvent]) -> object:
            state = unit.init(header, 0)
            for event in events:
                state = unit.apply(state, event)
            return state

        self.of = fold


class EventJudge:
    """Listens to the live events of all agents of a tree and keeps what is wrong with them."""

    def __init__(self, ctx: Context) -> None:
        self.problems: list[str] = []
        self.count = 0
        """Of all events heard."""
        self._statuses: dict[object, str] = {}
        self._frames: dict[object, tuple[int, int | None]] = {}
        self._waiting: dict[str, str] = {}
        ctx.on(AgentStatusChanged, self._status, everywhere=True, prepend=True)
        ctx.on(AgentAssistantStream, self._stream, everywhere=True, prepend=True)
        ctx.on(InboxInserted, self._inserted, everywhere=True, prepend=True)
        ctx.on(InboxClaimed, self._left, everywhere=True, prepend=True)
        ctx.on(InboxDiscarded, self._left, everywhere=True, prepend=True)

    def _status(self, event: AgentStatusChanged) -> None:
        self.count += 1
        before = self._statuses.get(event.agent, "idle")
        if event.status == before:
            self.problems.append(f"status {event.status} was told twice")
        self._statuses[event.agent] = event.status

    def _stream(self, event: AgentAssistantStream) -> None:
        self.count += 1
        frame = event.frame
        revision, chunks = self._frames.get(event.agent, (0, None))
        if frame.revision != revision + 1:
            self.problems.append(f"frame revision {frame.revision} follows {revision}")
        expected = None if isinstance(frame, StreamStart) else chunks
        if _index(frame) != expected:
            self.problems.append(f"frame {frame!r:.80} does not follow {chunks} chunks")
        following: int | None
        if isinstance(frame, StreamEnd):
            following = None
        else:
            following = 0 if isinstance(frame, StreamStart) else frame.index + 1
        if isinstance(frame, StreamStart) and chunks is not None:
            self.problems.append("an attempt began before the last one was settled")
        self._frames[event.agent] = (frame.revision, following)

    def _inserted(self, event: InboxInserted) -> None:
        self.count += 1
        self._waiting[event.message.id] = "pending"

    def _left(self, event: InboxClaimed | InboxDiscarded) -> None:
        self.count += 1
        if self._waiting.pop(event.message.id, None) is None:
            self.problems.append(f"message {event.message.id} left the inbox without being in it")

    def expect(self, agent: Agent) -> None:
        """Take over what waits in the inbox of an agent that was resumed."""
        self._waiting = {m.id: "pending" for m in (*agent.inbox.next_turn, *agent.inbox.next_step)}

    def unsettled(self) -> list[str]:
        """Attempts that were begun and not settled."""
        return [
            "an attempt was not settled"
            for _, chunks in self._frames.values()
            if chunks is not None
        ]

    def waiting(self) -> set[str]:
        """Ids of the messages that were inserted and have not left."""
        return set(self._waiting)


def _index(frame: AssistantFrame) -> int | None:
    return frame.index if isinstance(frame, StreamChunkFrame | StreamEnd) else None
