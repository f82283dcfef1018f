"""The creation transaction of an agent, and its teardown."""

from collections.abc import Awaitable, Callable, Generator, Iterator
from typing import Protocol

import anyio
import anyio.lowlevel

from dsh_agent import (
    Agent,
    AgentCreationError,
    AgentHandle,
    AgentOptions,
    CreateRequest,
    CreationSource,
    Prepared,
    ResumeRequest,
    Setup,
)
from dsh_cordis import Context, FiberState, Handle, Scope, create_scope, scope_of, task_census
from dsh_llm import AbortController, AbortSignal, fresh_uuid, fuse_signals
from dsh_session import (
    CheckedLog,
    DisposedCancel,
    RestoredLog,
    Session,
    SessionId,
)
from dsh_session_persistence import SessionHandle, SessionPersistence

from ._log import log
from .agent import LoopAgent
from .driver import drive
from .gate import Gate
from .opening import drop_inherited_queue, repairs_of
from .runtime import LoopRuntime
from .signal import TurnAborted, under


class _Request(Protocol):
    """What creations and resumptions have in common."""

    @property
    def options(self) -> AgentOptions: ...
    @property
    def setup(self) -> Setup | None: ...
    @property
    def parent_agent(self) -> Agent | None: ...
    @property
    def signal(self) -> AbortSignal | None: ...


class Completion:
    """The end of a teardown; may be awaited by anybody, any number of times, or dropped."""

    def __init__(self, wait: Callable[[], Awaitable[None]]) -> None:
        self._wait = wait

    def __await__(self) -> Generator[object, None, None]:
        return (yield from self._wait().__await__())


class AgentLife:
    """One agent from the first resource to the last: creation, ownership, teardown.

    `owner` is a context of the caller that resolves services as the loop does. What it owns is one
    composite effect, undone newest first: the driver comes to rest, then the agent's scope unwinds.
    The first that the scope holds are the session and the places in log and registry, so they go
    last: the write handle is closed, the agent leaves the registry, the session the store.
    """

    __slots__ = (
        "_clears_later",
        "_creation",
        "_detach_agent",
        "_detach_signal",
        "_disposing",
        "_done",
        "_effect",
        "_errors",
        "_handle",
        "_left",
        "_lives",
        "_owner",
        "_parent",
        "_runtime",
        "_scope",
        "_session",
        "_setup",
        "agent",
    )

    def __init__(
        self,
        runtime: LoopRuntime,
        owner: Context,
        request: _Request,
        lives: dict["AgentLife", None],
    ) -> None:
        self._runtime = runtime
        self._owner = owner
        self._setup = request.setup
        self._parent = request.parent_agent
        self._lives = lives
        lives[self] = None
        self.agent = LoopAgent(runtime, request.options, drive)
        self._left = Gate()
        """The transaction is over, one way or the other."""
        self._done = Gate()
        self._errors: list[Exception] = []
        self._session: Session | None = None
        self._handle: SessionHandle | None = None
        self._detach_agent: Callable[[], Awaitable[None]] | None = None
        self._disposing = False
        self._clears_later = False
        self._creation: AbortController | None
        """Aborts the transaction; `None` when that is over."""
        self._creation, self._detach_signal = fuse_signals(request.signal)
        self._scope = create_scope(owner, self.agent, scope_of(owner))
        self._effect: Handle = owner.effect(self._parts, label="agent")

    def _parts(self) -> Iterator[object]:
        yield self._finish
        yield self._release  # for a creation that failed before the scope held it
        yield self._scope.handle
        yield self._quiesce

    @property
    def scope(self) -> Scope:
        """The agent's scope."""
        return self._scope

    def leaves(self, session_id: SessionId) -> bool:
        """Whether this is the agent of that session, on its way out."""
        return self._disposing and self._session is not None and self._session.id == session_id

    # ---- creation --------------------------------------------------------------------------

    async def create(self, request: CreateRequest) -> AgentHandle:
        """Run the transaction for a new session."""
        return await self._transact(lambda: self._new_session(request), "startup")

    async def resume(self, request: ResumeRequest) -> AgentHandle:
        """Run the transaction for a stored session."""
        return await self._transact(lambda: self._stored_session(request.session_id), "resume")

    async def _transact(
        self, load: Callable[[], Session | Awaitable[Session]], source: CreationSource
    ) -> AgentHandle:
        agent, signal = self.agent, self._signal
        leave = agent.census.enter("maintenance", "creation")
        try:
            with agent.own_task():
                loaded = load()
                session = (
                    loaded if isinstance(loaded, Session) else await under(signal, lambda: loaded)
                )
                await self._publish(session, source, signal)
        except BaseException as error:
            self._begin()
            try:
                self._leave_creation(leave)
            except Exception:  # noqa: BLE001  # a log that cannot be folded fails here once more
                log().debug("agent.creation_left_badly", agent=agent.id, exc_info=True)
            with anyio.CancelScope(shield=True):
                await self.dispose()
            if isinstance(error, TurnAborted):
                raise _abort_error(signal) from None
            raise
        self._detach_signal()
        self._leave_creation(leave)
        return AgentHandle(agent, self.dispose_on_purpose)

    @property
    def _signal(self) -> AbortSignal:
        if self._creation is None:
            raise RuntimeError("an agent is created once")
        return self._creation.signal

    def _leave_creation(self, leave: Callable[[], None]) -> None:
        self._creation = None
        self._left.open()
        try:
            if self._session is not None:
                self.agent.end_maintenance()
        finally:
            # A log whose inbox cannot be folded fails above; the census must not keep this entry.
            leave()

    async def _publish(self, session: Session, source: CreationSource, signal: AbortSignal) -> None:
        agent, ctx = self.agent, self._scope.ctx
        ctx.sessions.enter(session)
        self._session = session
        ctx.effect(lambda: self._release, label="places of the agent")
        with agent.counted():
            ctx.sessions.announce(session)
        self._recheck(signal)
        if self._setup is not None:
            prepared = await under(signal, self._set_up)
            if prepared is not None:
                prepared.commit()
        agents = self._runtime.ctx.agents
        self._detach_agent = agents.enter(agent, self._parent)
        token = task_census.set(agent.census)
        try:
            await agents.announce(agent, source, signal)
        finally:
            task_census.reset(token)
        self._recheck(signal)

    def _recheck(self, signal: AbortSignal) -> None:
        if self._owner.fiber.state is FiberState.UNLOADING:
            # Its unload has begun and has not come to this agent yet.
            self._begin()
        if signal.aborted:
            raise TurnAborted

    async def _set_up(self) -> Prepared | None:
        if self._setup is None:
            return None
        answer = self._setup(self._scope.ctx, self.agent)
        if isinstance(answer, Awaitable):
            answer = await answer
        return answer

    # ---- sessions --------------------------------------------------------------------------

    def _new_session(self, request: CreateRequest) -> Session | Awaitable[Session]:
        session = self._runtime.ctx.sessions.prepare(
            request.session_id or SessionId(fresh_uuid()),
            seed=request.seed,
            inherited_event_count=request.inherited_event_count,
            meta=request.meta,
        )
        persistence = self._runtime.ctx.session_persistence
        if persistence is not None:
            return self._stored_new(session, persistence)
        self._take(session)
        return session

    async def _stored_new(self, session: Session, persistence: SessionPersistence) -> Session:
        self._handle = await persistence.create(session.header, session.inherited_event_count)
        self._take(session)
        if session.seq:
            await self._handle.append(list(session.events))
        return session

    def _take(self, session: Session) -> None:
        self._attach(session)
        if session.inherited_event_count:
            drop_inherited_queue(self.agent)

    async def _stored_session(self, session_id: SessionId) -> Session:
        persistence = self._runtime.ctx.session_persistence
        if persistence is None:
            raise AgentCreationError(
                f"session {session_id!r} cannot be resumed: no session store is mounted; "
                "mount `dsh_session_jsonl`",
                "NO_PERSISTENCE",
            )
        self._handle = handle = await persistence.open(session_id, "write")
        events = CheckedLog.of(await handle.read())
        repairs = repairs_of(events)
        if repairs:
            await handle.append(repairs)
            events = events.extended(repairs)
        session = self._runtime.ctx.sessions.prepare(
            restored=RestoredLog(
                header=handle.header,
                events=events,
                inherited_event_count=handle.inherited_event_count,
            )
        )
        self._attach(session)
        if session.seq > len(events):
            await handle.append(list(session.events)[len(events) :])
        return session

    def _attach(self, session: Session) -> None:
        self.agent.attach(session, self._scope.ctx)
        if session.seq:
            # A log whose states cannot be told makes no agent; later reads find them folded.
            self.agent.fold_states()

    # ---- teardown --------------------------------------------------------------------------

    def dispose_on_purpose(self) -> Completion:
        """The consumer ends the agent: what is pending is discarded."""
        self.agent.parks = False
        return self.dispose()

    def dispose(self, reason: AgentCreationError | None = None) -> Completion:
        """Start the teardown at once, in a task of the loop."""
        if not self._disposing:
            self._disposing = True
            self._begin(reason)
            self._runtime.start(self._undo, name="teardown of an agent")
        return Completion(self._wait)

    def _begin(self, reason: AgentCreationError | None = None) -> None:
        """What happens synchronously: no driver starts any more, the running one is aborted."""
        agent = self.agent
        if agent.closing:
            return
        agent.closing = True
        if self._creation is not None:
            self._creation.abort(
                reason
                or AgentCreationError(
                    "the owner of the agent was disposed while it was being created",
                    "OWNER_DISPOSED",
                )
            )
            return
        self._collect(self._cancel)

    def _cancel(self) -> None:
        agent = self.agent
        # Inside a listener of the log nothing can be cleared yet; the abort does not wait for it.
        self._clears_later = not agent.parks and agent.session.appending
        with agent.counted():
            agent.stop(DisposedCancel(), keep_inbox=agent.parks or self._clears_later)

    def _clear(self) -> None:
        with self.agent.counted():
            self.agent.inbox.clear()

    async def _undo(self) -> None:
        try:
            await self._effect()
        except Exception as error:  # noqa: BLE001  # a task of the loop never fails
            self._errors.append(error)
            self._finish()

    async def _wait(self) -> None:
        agent = self.agent
        if agent.runs_in_own_task():
            # Its end cannot come before the caller's; a cancellation of the caller goes first.
            await anyio.lowlevel.checkpoint()
            return
        with agent.census.waiting(inside=task_census.get() is agent.census):
            await self._done.wait()
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            raise ExceptionGroup(f"disposing agent {agent!r} failed", self._errors)

    async def _quiesce(self) -> None:
        """First: nothing of the agent runs any more."""
        self._begin()
        if self._clears_later:
            self._collect(self._clear)
        if self._creation is not None:
            await self._left.wait()
        census = self.agent.census
        await census.join_listeners(self._runtime.settings.listener_grace_ms / 1000)
        await census.wait_quiet()

    async def _release(self) -> None:
        """Behind all that was set up: close the log and leave the registry."""
        if self.agent.gone:
            return
        self._detach_signal()
        # What came after this would not be stored; a sender is told instead of losing it.
        self.agent.gone = True
        if self._handle is not None:
            await self._collect_async(self._handle.close)
        if self._detach_agent is not None:
            await self._collect_async(self._detach_agent)

    def _finish(self) -> None:
        """Last: the id is free, whoever waits is told."""
        if self._done.is_open:
            return
        self._done.open()
        self._lives.pop(self, None)
        for error in self._errors:
            log().error("agent.teardown_failed", agent=repr(self.agent), exc_info=error)

    def _collect(self, stage: Callable[[], object]) -> None:
        try:
            stage()
        except Exception as error:  # noqa: BLE001  # later stages run; raised to every waiter
            self._errors.append(error)

    async def _collect_async(self, stage: Callable[[], Awaitable[None]]) -> None:
        try:
            await stage()
        except Exception as error:  # noqa: BLE001  # as above
            self._errors.append(error)


def _abort_error(signal: AbortSignal) -> BaseException:
    reason = signal.reason
    if isinstance(reason, BaseException):
        return reason
    return AgentCreationError(
        f"the creation of the agent was aborted ({reason!r})", "CREATION_ABORTED"
    )
