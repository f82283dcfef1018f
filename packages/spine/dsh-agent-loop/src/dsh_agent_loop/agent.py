"""The concrete agent handle: input, cancellation, waits and maintenance."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, cast

import anyio
from typing_extensions import override

from dsh_agent import (
    AgentBusyError,
    AgentCancelledError,
    AgentDisposedError,
    AgentOptions,
    AgentSelfWaitError,
    AgentStatus,
    AgentStatusChanged,
    InboxState,
    InboxTarget,
    LoggedModel,
    SelectionState,
    TurnBoundary,
)
from dsh_cordis import Context, task_census
from dsh_llm import (
    AbortController,
    AbortSignal,
    Block,
    Message,
    RequestRepair,
    ToolCallBlock,
    create_user_message,
)
from dsh_session import (
    AssistantMessageEvent,
    CancelCause,
    DisposedCancel,
    Session,
    SessionId,
    TurnEndReason,
    UserCancel,
)

from . import phase as phases
from ._log import log
from .calls import make_calls_distinct
from .grace import Census, Counted, OwnTask
from .header import HeaderMaker
from .history import RequestHistory
from .inbox import LoopInbox
from .runtime import LoopRuntime
from .surface_watch import SurfaceWatch

T = TypeVar("T")


class LoopAgent:
    """A live agent of this loop. Other packages see it as `dsh_agent.Agent`."""

    __slots__ = (
        "__weakref__",
        "_attempts",
        "_boundary",
        "_call_ids",
        "_drive",
        "_inbox",
        "_projections",
        "_read_at",
        "_repairs_noted",
        "_selection",
        "_statuses",
        "census",
        "closing",
        "controller",
        "ctx",
        "gone",
        "headers",
        "history",
        "id",
        "inbox",
        "model",
        "noted_generation",
        "options",
        "own_tasks",
        "parks",
        "phase",
        "requests",
        "revision",
        "runtime",
        "session",
        "unclosed",
        "watch",
    )

    id: SessionId
    """Equals `session.id`."""
    session: Session
    """The log and what is folded from it."""
    ctx: Context
    """The agent's scope."""

    def __init__(
        self, runtime: LoopRuntime, options: AgentOptions, drive: Callable[["LoopAgent"], None]
    ) -> None:
        self.runtime = runtime
        self.options = options
        """What the agent was created with."""
        self._drive = drive
        self.census = Census(runtime.clock)
        self.phase: phases.Phase = phases.Maintenance()
        self.controller: AbortController | None = None
        """Of the current turn or maintenance task; creation has none."""
        self.closing = False
        """Teardown has begun: input is parked, no driver starts."""
        self.parks = True
        """Teardown leaves in the inbox what no history holds yet; not if it was asked for."""
        self.gone = False
        """The registry let the agent go."""
        self.unclosed: TurnEndReason | None = None
        """How a turn ended whose `turn/end` was refused."""
        self.own_tasks: list[int] = []
        """Tasks that must not wait for this agent."""
        self.headers = HeaderMaker()
        self.requests = 0
        """Model requests made by this instance."""
        self.noted_generation = 0
        """Content generation of the surface after the last request."""
        self.revision = 0
        """Of the last frame of a stream."""
        self._statuses: list[AgentStatus] = []
        self._attempts = 0
        self._call_ids: set[str] | None = None
        self._repairs_noted = False
        self._projections = runtime.ctx.session_projections
        self._read_at = -1
        """Length of the log for which the three states below were read."""
        self._inbox: InboxState | None = None
        self._selection: SelectionState | None = None
        self._boundary: TurnBoundary | None = None

    def attach(self, session: Session, ctx: Context) -> None:
        """Take session and scope; done once, before anybody sees the agent."""
        self.id, self.session, self.ctx = session.id, session, ctx
        self.inbox = LoopInbox(self)
        self.model = LoggedModel(self)
        self.noted_generation = session.surface.content_generation
        self.watch = SurfaceWatch(session)
        self.history = RequestHistory(session, self.note_repairs)

    # ---- what others see -------------------------------------------------------------------

    @property
    def status(self) -> AgentStatus:
        """`running` while a driver drains the inbox."""
        return "running" if isinstance(self.phase, phases.Running) else "idle"

    @override
    def __repr__(self) -> str:
        return f"<LoopAgent {getattr(self, 'id', 'unattached')} {self.phase!r}>"

    # ---- input -----------------------------------------------------------------------------

    def send(self, message: Message | str, target: InboxTarget, wakeup: bool) -> None:
        """Deliver a message; see `dsh_agent.Agent.send`."""
        self.guard("take input")
        stored = create_user_message(message) if isinstance(message, str) else message
        if not isinstance(stored, Message):
            raise TypeError(f"a message is a text or a Message, not {stored!r:.80}")
        with self.counted():
            # Decided before anything is inserted, so that listeners cannot reclassify the wake.
            late = wakeup and self.controller is not None and self.controller.signal.aborted
            self.inbox.append("next-turn" if late else target, stored)
            if wakeup:
                self._wake(late)

    def followup(self, message: Message | str) -> None:
        """Queue a turn and wake the agent."""
        self.send(message, "next-turn", wakeup=True)

    def steer(self, message: Message | str) -> None:
        """Join the running turn at its next step, or open one."""
        self.send(message, "next-step", wakeup=True)

    def inject(self, message: Message | str) -> None:
        """Join the next step whenever there is one, without waking the agent."""
        self.send(message, "next-step", wakeup=False)

    def cancel(self, cause: CancelCause | None = None, *, keep_inbox: bool = False) -> None:
        """Stop the current activity; see `dsh_agent.Agent.cancel`."""
        self.guard("be cancelled")
        with self.counted():
            self.stop(UserCancel() if cause is None else cause, keep_inbox=keep_inbox)

    def stop(self, cause: CancelCause, *, keep_inbox: bool) -> None:
        """Clear what is pending and abort; a refused clear never prevents the abort."""
        try:
            if not keep_inbox:
                self.phase = phases.drop_latch(self.phase)
                self.inbox.clear()
        finally:
            if self.controller is not None:
                self.controller.abort(cause)

    # ---- waits -----------------------------------------------------------------------------

    async def when_idle(self) -> None:
        """Return when nothing of this agent runs any more."""
        if self.runs_in_own_task():
            raise AgentSelfWaitError(self.id)
        await self.census.wait_quiet(inside=task_census.get() is self.census)

    async def run_maintenance(self, task: Callable[[AbortSignal], Awaitable[T]]) -> T:
        """Run `task` while no turn can begin; see `dsh_agent.Agent.run_maintenance`."""
        self.guard("run maintenance")
        if self.closing or not isinstance(self.phase, phases.Idle):
            raise AgentBusyError(self.id)
        controller = AbortController()
        self.phase, self.controller = phases.Maintenance(), controller
        leave = self.census.enter("maintenance", f"maintenance of {self.id}")
        try:
            with self.own_task():
                return await self._maintain(task, controller.signal)
        finally:
            self.end_maintenance()
            leave()

    async def _maintain(
        self, task: Callable[[AbortSignal], Awaitable[T]], signal: AbortSignal
    ) -> T:
        with anyio.CancelScope() as scope:
            remove = signal.observe(scope.cancel)
            try:
                return await task(signal)
            finally:
                remove()
        raise AgentCancelledError(self.id, signal.reason)

    def end_maintenance(self) -> None:
        """Go idle; a kept wake starts a driver at once."""
        was_latched = phases.latched(self.phase)
        self.phase, self.controller = phases.Idle(), None
        self.replay(was_latched)

    # ---- for the driver --------------------------------------------------------------------

    def guard(self, action: str) -> None:
        """Refuse to act on an agent that the registry let go."""
        if self.gone:
            raise AgentDisposedError(self.id, action)

    def counted(self) -> Counted:
        """Count the listener tasks that a block starts to this agent."""
        return Counted(self.census)

    def own_task(self) -> OwnTask:
        """Mark the current task as one that must not wait for this agent."""
        return OwnTask(self.own_tasks)

    def runs_in_own_task(self) -> bool:
        """Whether the current task, or one that waits for it, is this agent's own."""
        if not self.own_tasks:
            return False
        parents = {task.id: task.parent_id for task in anyio.get_running_tasks()}
        task: int | None = anyio.get_current_task().id
        while task is not None and task not in self.own_tasks:
            task = parents.pop(task, None)
        return task is not None

    def note_repairs(self, repairs: Sequence[RequestRepair]) -> None:
        """Log, once per instance, what the request derivation had to change."""
        if self._repairs_noted:
            return
        self._repairs_noted = True
        facts = [(repair.kind, repair.message_id) for repair in repairs]
        grave = any(repair.kind != "arguments-replaced" for repair in repairs)
        write = log().warning if grave else log().debug
        write("agent.history_repaired", agent=self.id, repairs=facts)

    def _wake(self, late: bool) -> None:
        reason = None if self.controller is None else self.controller.signal.reason
        woken = phases.wake(
            self.phase,
            aborted=late,
            disposed=isinstance(reason, DisposedCancel),
            closing=self.closing or not self.runtime.accepting,
        )
        self.phase = woken.phase
        if woken.start:
            self._drive(self)

    def replay(self, was_latched: bool) -> None:
        """Start a driver for a kept wake, if anything is pending."""
        if not was_latched:
            return
        closing = self.closing or not self.runtime.accepting
        if phases.replays(
            self.phase, was_latched=was_latched, pending=self.inbox.pending, closing=closing
        ):
            self.phase = phases.Running()
            self._drive(self)

    def announce_status(self, status: AgentStatus) -> None:
        """Tell a transition; one made while another is told comes after it."""
        if not self._statuses and not self.ctx.has_listeners(AgentStatusChanged, self):
            return
        self._statuses.append(status)
        if len(self._statuses) > 1:
            return
        while self._statuses:
            # It leaves the queue only when told, so that a nested call knows of it.
            self.ctx.emit(AgentStatusChanged(agent=self, status=self._statuses[0]))
            self._statuses.pop(0)

    @property
    def boundary(self) -> TurnBoundary:
        """Where the log stands between turns and steps."""
        if self._read_at != self.session.seq or self._boundary is None:
            self._boundary = cast("TurnBoundary", self._read("turnBoundary"))
        return self._boundary

    def next_attempt_id(self) -> str:
        """Of the coming model attempt."""
        self._attempts += 1
        return f"{self.id}:{self._attempts}"

    def distinct_calls(self, blocks: Sequence[Block]) -> list[Block]:
        """Give the calls of an answer ids that this session has not used."""
        if not [block for block in blocks if isinstance(block, ToolCallBlock)]:
            return list(blocks)
        if self._call_ids is None:
            self._call_ids = {
                block.id
                for event in self.session.events
                if isinstance(event.data, AssistantMessageEvent)
                for block in event.data.message.content
                if isinstance(block, ToolCallBlock)
            }
        return make_calls_distinct(blocks, self._call_ids)

    def fold_states(self) -> None:
        """Fold what the agent reads of its log.

        Raises:
            ProjectionFailed: An event of the log cannot be folded; the message names its seq.
        """
        for key in ("inbox", "modelSelection", "turnBoundary"):
            self._read(key)

    def inbox_state(self) -> InboxState:
        """The pending messages, for `LoopInbox`."""
        if self._read_at != self.session.seq or self._inbox is None:
            self._inbox = cast("InboxState", self._read("inbox"))
        return self._inbox

    def selection_state(self) -> SelectionState:
        """The recorded choices, for `LoggedModel`."""
        if self._read_at != self.session.seq or self._selection is None:
            self._selection = cast("SelectionState", self._read("modelSelection"))
        return self._selection

    def _read(self, key: str) -> object:
        """The state of a projection; what was read at another length of the log is forgotten."""
        state = self._projections.state_of(self.session, key)
        if self._read_at != self.session.seq:
            self._read_at = self.session.seq
            self._inbox = self._selection = self._boundary = None
        return state
