"""One step: attempts, each with its request, its commit section and its stream."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from dsh_agent import (
    AgentOptions,
    AgentRequest,
    AgentRequestError,
    AgentRouteError,
    ModelSelection,
    Retry,
)
from dsh_llm import (
    AbortedFinish,
    ErrorFinish,
    GenerateOptions,
    LlmCallConfig,
    LlmError,
    LlmFailure,
    MaxTokensFinish,
    Message,
    PreparedCall,
    RetryPolicy,
    StreamChunk,
    ToolCallBlock,
    ToolSchema,
    codes,
    mark_agent_loop_request,
)

from ._log import log
from .agent import LoopAgent
from .attempt import Attempt
from .commit import CommitPlan, commit_request
from .signal import TurnAborted, check
from .turn import NOTHING, Turn


class StepPlan(msgspec.Struct, frozen=True):
    """What a step was entered with."""

    turn: Turn
    batch: tuple[Message, ...]
    starts_series: bool
    rendered: str
    tools: tuple[ToolSchema, ...]


class _ClosableStream(Protocol):
    """The stream of a call."""

    @property
    def dispatched(self) -> bool: ...
    def __aiter__(self) -> AsyncIterator[StreamChunk]: ...
    async def aclose(self) -> None: ...


async def request(agent: LoopAgent, plan: StepPlan) -> tuple[ToolCallBlock, ...]:
    """Ask the model, between `step/start` and `step/end`; the turn's abort cancels it natively.

    Returns:
        The calls that its answer asks for.

    Raises:
        LlmError: The last attempt failed and nobody asked for another one.
    """
    plan.turn.owed = False
    return await _Request(agent, plan).answer()


class _Request:
    """The attempts of one step."""

    __slots__ = (
        "_agent",
        "_drained",
        "_first",
        "_llm",
        "_plan",
        "_signal",
        "_turn",
    )

    def __init__(self, agent: LoopAgent, plan: StepPlan) -> None:
        self._agent = agent
        self._plan = plan
        self._turn = plan.turn
        self._signal = plan.turn.signal
        self._llm = agent.runtime.ctx.llm
        self._first = True
        self._drained = False
        """The stream was read to its end, and so closed itself."""

    async def answer(self) -> tuple[ToolCallBlock, ...]:
        """Make attempts until one is a message.

        Returns:
            The calls it asks for.

        Raises:
            LlmError: The last attempt failed and nobody asked for another one.
        """
        while True:
            config = await self._config()
            prepared = await self._prepare(config)
            if prepared is not None:
                config = prepared.config
            attempt, stream = self._dispatch(config, prepared)
            self._first = self._drained = False
            leave = self._agent.census.enter("stream", f"stream of {self._agent.id}")
            try:
                check(self._signal)
                attempt.start()
                failure = await self._read(attempt, stream)
                if failure is None:
                    return self._accept(attempt)
            finally:
                await self._close(stream)
                leave()
            # Without a dispatch no route failed, so the policy of none applies.
            policy = prepared.retry_policy if prepared is not None and stream.dispatched else None
            await self._recover(config.provider, policy, failure)

    # ---- before the request ----------------------------------------------------------------

    async def _config(self) -> LlmCallConfig:
        config = self._proposal()
        agent, turn = self._agent, self._turn
        heard = agent.ctx.has_listeners(AgentRequest, agent)
        if heard:
            config = await self._asked(config)
        _check_route(config, turn.selection if heard else None)
        return config

    async def _asked(self, proposal: LlmCallConfig) -> LlmCallConfig:
        agent, turn = self._agent, self._turn
        event = AgentRequest(agent=agent, turn=turn.number, step=turn.step, signal=self._signal)

        async def propose() -> LlmCallConfig:
            return proposal

        config = await agent.ctx.waterfall(event, propose)
        check(self._signal)
        return config

    def _proposal(self) -> LlmCallConfig:
        agent, selection = self._agent, self._turn.selection
        header = agent.session.request_header()
        if agent.requests == 0 or header is None:
            base = LlmCallConfig(provider="", model="", max_tokens=agent.options.max_tokens)
        else:
            marks = header.adapter_defaults
            base = header.config
            if marks is not None and marks.max_tokens:
                base = msgspec.structs.replace(base, max_tokens=None)
        route = agent.options if selection is None else selection
        if _parts(base) == _parts(route):
            return base
        return msgspec.structs.replace(
            base,
            provider=route.provider or "",
            model=route.model or "",
            reasoning_effort=route.reasoning_effort,
        )

    async def _prepare(self, config: LlmCallConfig) -> PreparedCall | None:
        try:
            prepared = await self._llm.prepare_call(config, self._signal)
        except LlmError as error:
            if error.code != codes.NO_ADAPTER:
                raise
            # Middleware may serve the route; otherwise the stream ends in this very failure.
            prepared = None
        check(self._signal)
        return prepared

    def _dispatch(
        self, config: LlmCallConfig, prepared: PreparedCall | None
    ) -> tuple[Attempt, _ClosableStream]:
        """The commit section: nothing in here suspends, nor has anything since the last check."""
        agent, plan = self._agent, self._plan
        tools = commit_request(
            agent,
            CommitPlan(
                turn=self._turn.number,
                step=self._turn.step,
                rendered=plan.rendered,
                batch=plan.batch if self._first else (),
                starts_series=plan.starts_series and self._first,
                config=config,
                tools=plan.tools,
                prepared=prepared,
            ),
        )
        self._turn.claimed = NOTHING
        check(self._signal)
        options = self._options(config, tools)
        stream = self._llm.stream(options) if prepared is None else prepared.stream(options)
        attempt = Attempt(
            agent, self._turn.number, self._turn.step, (config.provider, config.model)
        )
        return attempt, stream

    def _options(
        self, config: LlmCallConfig, tools: Sequence[ToolSchema] | None
    ) -> GenerateOptions:
        options = GenerateOptions(
            provider=config.provider,
            model=config.model,
            messages=self._agent.history.messages(),
            reasoning_effort=config.reasoning_effort,
            tools=tools,
            temperature=config.temperature,
            max_tokens=config.max_tokens,
            stop=config.stop,
            signal=self._signal,
            session_id=self._agent.id,
        )
        mark_agent_loop_request(options)
        return options

    # ---- the stream ------------------------------------------------------------------------

    async def _read(self, attempt: Attempt, stream: _ClosableStream) -> LlmFailure | None:
        """Take the stream; an attempt that is no message is settled here.

        Returns:
            The failure it ended in, if it ended in one.
        """
        try:
            signal, push = self._signal, attempt.push
            async for chunk in stream:
                if signal.aborted:
                    raise TurnAborted
                push(chunk)
            self._drained = True
            check(self._signal)
        except Exception as error:
            if self._signal.aborted:
                attempt.settle_interrupted()
                raise TurnAborted from None
            _settle_failed(attempt, error)
            raise
        except BaseException:
            attempt.settle_interrupted()
            raise
        finish = attempt.assembler.finish
        if isinstance(finish, ErrorFinish | AbortedFinish):
            attempt.settle_attempt()
            return finish.failure
        return None

    def _accept(self, attempt: Attempt) -> tuple[ToolCallBlock, ...]:
        calls = attempt.settle_message()
        if isinstance(attempt.assembler.finish, MaxTokensFinish):
            self._turn.cut = True
        return calls

    async def _close(self, stream: _ClosableStream) -> None:
        """Close in this very task: adapters keep scopes open across their yields."""
        if self._drained:
            return
        grace = self._agent.runtime.grace
        limit = None if grace.cancel_s is None else grace.cancel_s + (grace.abandon_s or 0)
        try:
            with grace.clock.move_on_after(limit, shield=True) as scope:
                await stream.aclose()
            if scope.cancelled_caught:
                log().warning("agent.stream_close_timed_out", agent=self._agent.id, limit_s=limit)
        except Exception as error:  # noqa: BLE001  # the attempt is settled and stays valid
            log().warning("agent.stream_close_failed", agent=self._agent.id, exc_info=error)

    async def _recover(
        self, provider: str, policy: RetryPolicy | None, failure: LlmFailure
    ) -> None:
        """Let somebody ask for another attempt.

        Raises:
            LlmError: Nobody did.
        """
        check(self._signal)
        agent, turn = self._agent, self._turn
        event = AgentRequestError(
            agent=agent,
            turn=turn.number,
            step=turn.step,
            provider=provider,
            failure=failure,
            retry_policy=policy,
            signal=self._signal,
        )

        async def give_up() -> Retry | None:
            return None

        answer = await agent.ctx.waterfall(event, give_up)
        check(self._signal)
        if not isinstance(answer, Retry):
            raise _error_of(failure)


def _settle_failed(attempt: Attempt, error: Exception) -> None:
    """Record a broken stream; when the log refuses, both failures are the turn's."""
    try:
        attempt.settle_attempt()
    except Exception as refused:  # noqa: BLE001  # raised on, beside its cause
        group = ExceptionGroup("the stream broke, and its record was refused", [error, refused])
        raise group from None


def _parts(
    route: AgentOptions | ModelSelection | LlmCallConfig,
) -> tuple[str | None, str | None, str | None]:
    return route.provider, route.model, route.reasoning_effort


def _check_route(config: LlmCallConfig, selection: ModelSelection | None) -> None:
    """Refuse a config without a model, and one that left the `selection` it was proposed for."""
    if not config.provider or not config.model:
        raise AgentRouteError(
            "no model is chosen: give `provider` and `model` when creating the agent, or call "
            "`agent.model.select()`",
            "NO_MODEL",
        )
    if selection is None:
        return
    chosen, answered = _parts(selection), _parts(config)
    if chosen != answered:
        raise AgentRouteError(
            f"a listener of agent/request changed the route from {chosen!r} to {answered!r}; "
            "call `agent.model.select()` instead",
            "ROUTE_CHANGED",
        )


def _error_of(failure: LlmFailure) -> LlmError:
    return LlmError(
        failure.message,
        failure.code,
        status=failure.status,
        provider_retry_after_ms=failure.provider_retry_after_ms,
        request_id=failure.request_id,
    )
