"""The checkpoint policy: the log is on disk before anything outside the process happens.

Flushes before a model is called, before the body of a top-level tool call, and at each proposed
step. A failing flush means no call, no body, no step. Upstream: packages/session/checkpoint.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from typing_extensions import override

from dsh_agent import PreStep, PreStepDecision
from dsh_cordis import Context, Next
from dsh_llm import AbortSignal, LlmStreamEvent, StreamChunk, is_agent_loop_request
from dsh_session import Session, SessionFlush, SessionId, SessionStore
from dsh_tools import ToolExecutionResult, ToolsExecute

from .signal import TurnAborted, under


class CheckpointContext(Context):
    """What the policy needs."""

    sessions: SessionStore


def checkpoint(ctx: CheckpointContext) -> None:
    """Mount the policy."""
    policy = Checkpoint(ctx)
    ctx.on(LlmStreamEvent, policy.before_stream, everywhere=True)
    ctx.on(ToolsExecute, policy.before_body, everywhere=True)
    ctx.on(PreStep, policy.before_step, everywhere=True)


class Checkpoint:
    """The listeners of the policy; where nobody keeps logs they hand on what `next_` gives."""

    def __init__(self, ctx: CheckpointContext) -> None:
        self._ctx = ctx
        self._sessions = ctx.sessions

    def before_stream(
        self, event: LlmStreamEvent, next_: Callable[[], AsyncIterator[StreamChunk]]
    ) -> AsyncIterator[StreamChunk]:
        """Flush before the first chunk is asked for; adapters do nothing before that."""
        session_id = event.options.session_id
        if session_id is None or not self._kept or not is_agent_loop_request(event.options):
            return next_()
        session = self._sessions.get(SessionId(session_id))
        return next_() if session is None else _Flushed(self, session, next_())

    def before_body(
        self, event: ToolsExecute, next_: Next[ToolExecutionResult]
    ) -> Awaitable[ToolExecutionResult]:
        """Flush before a top-level body; an abort meanwhile keeps the body from being entered."""
        run = event.exec
        if run.parent is not None or run.agent is None or not self._kept:
            return next_()
        return self._flushed_body(run.signal, run.agent.session, next_)

    async def _flushed_body(
        self, signal: AbortSignal, session: Session, next_: Next[ToolExecutionResult]
    ) -> ToolExecutionResult:
        with suppress(TurnAborted):
            await under(signal, lambda: self.flush(session))
        return await next_()

    def before_step(
        self, event: PreStep, next_: Next[PreStepDecision]
    ) -> Awaitable[PreStepDecision]:
        """Flush before a step is decided on."""
        return self._flushed_step(event.agent.session, next_) if self._kept else next_()

    async def _flushed_step(
        self, session: Session, next_: Next[PreStepDecision]
    ) -> PreStepDecision:
        await self.flush(session)
        return await next_()

    @property
    def _kept(self) -> bool:
        """Whether there is anybody who would take a flush."""
        return self._ctx.has_listeners(SessionFlush)

    async def flush(self, session: Session) -> None:
        """Make a live session durable; one that is not live has no keeper."""
        if self._sessions.get(session.id) is session:
            await self._sessions.flush(session)


class _Flushed(AsyncIterator[StreamChunk]):
    """A stream that begins with a flush; afterwards it costs one call per chunk."""

    def __init__(
        self, policy: Checkpoint, session: Session, inner: AsyncIterator[StreamChunk]
    ) -> None:
        self._policy = policy
        self._session: Session | None = session
        self._inner = inner

    @override
    def __anext__(self) -> Awaitable[StreamChunk]:
        return self._first() if self._session is not None else self._inner.__anext__()

    async def _first(self) -> StreamChunk:
        session, self._session = self._session, None
        if session is not None:
            await self._policy.flush(session)
        return await self._inner.__anext__()

    async def aclose(self) -> None:
        close = getattr(self._inner, "aclose", None)
        if close is not None:
            await close()
