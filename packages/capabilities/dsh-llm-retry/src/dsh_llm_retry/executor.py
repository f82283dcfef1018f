"""The executor: answers failed requests with another attempt in the same step.

Upstream: packages/llm/llm-retry/src/index.ts.
"""

import random
import uuid
from collections.abc import Awaitable, Callable

import anyio
import structlog
from structlog.typing import FilteringBoundLogger

from dsh_agent import AgentRequestError, Retry
from dsh_cordis import Context, Fiber, FiberState, Next
from dsh_llm import AbortController, AlwaysRetryPolicy, NormalRetryPolicy, RetryId
from dsh_session import Session, StepStart, TurnStart

from .events import LlmRetry, LlmRetryStarted
from .policy import ExecutablePolicy, delay_ms, policy_key, provider_delay_ms

log: FilteringBoundLogger = structlog.get_logger(__name__)

Sleep = Callable[[float], Awaitable[object]]
"""Waits that many seconds."""


def mount(
    ctx: Context, *, chance: Callable[[], float] = random.random, sleep: Sleep = anyio.sleep
) -> None:
    """Retry failed requests until `ctx` unloads; plugins with a clock of their own call this.

    Args:
        ctx: Whose listener it becomes.
        chance: Draws where in the range of the jitter a delay lies, 0..1.
        sleep: Waits a number of seconds.
    """
    executor = RetryExecutor(ctx.fiber, chance, sleep)
    # Unwound newest first: the listener goes, then what runs is ended and awaited.
    _ = ctx.effect(lambda: executor.close, label="running recoveries")
    _ = ctx.on(AgentRequestError, executor.recover)


class RetryExecutor:
    """The listener of one mount, and what of it is running."""

    def __init__(self, fiber: Fiber, chance: Callable[[], float], sleep: Sleep) -> None:
        self._fiber = fiber
        self._chance = chance
        self._sleep = sleep
        self._closing = AbortController()
        self._running = 0
        self._idle = anyio.Event()

    async def recover(self, event: AgentRequestError, next_: Next[Retry | None]) -> Retry | None:
        """Decide about one failed attempt, and wait if it is to be repeated.

        A dispatch may still hold this listener when the plugin is gone: then it answers nothing,
        and asks nobody else.
        """
        if self._gone:
            return None
        self._running += 1
        try:
            return await self._decide(event, next_)
        finally:
            self._running -= 1
            if not self._running and self._closing.signal.aborted:
                self._idle.set()

    def close(self) -> Awaitable[None] | None:
        """Break off all waits.

        Returns:
            What to await until no recovery runs, if one does; a delegated one counts, too.
        """
        self._closing.abort()
        return self._idle.wait() if self._running else None

    async def _decide(self, event: AgentRequestError, next_: Next[Retry | None]) -> Retry | None:
        match event.retry_policy:
            case NormalRetryPolicy() as policy:
                if not _covers(policy, event):
                    return await next_()
                return await self._retry(event, policy)
            case AlwaysRetryPolicy() as policy:
                answer = await _ask_others(event, next_)
                if isinstance(answer, Retry):
                    return answer
                return await self._retry(event, policy)
            case _:
                return await next_()

    async def _retry(self, event: AgentRequestError, policy: ExecutablePolicy) -> Retry | None:
        if self._stopped(event):
            return None
        session = event.agent.session
        record = self._record(event, policy)
        session.append(record)
        if not await self._wait(event, record.delay_ms / 1000):
            return None
        session.append(
            LlmRetryStarted(
                retry_id=record.retry_id, turn=record.turn, step=record.step, retry=record.retry
            )
        )
        return Retry()

    def _record(self, event: AgentRequestError, policy: ExecutablePolicy) -> LlmRetry:
        last = _last_retry(event, policy)
        retry = 1 if last is None else last.retry + 1
        budget = policy.max_retries if isinstance(policy, NormalRetryPolicy) else None
        return LlmRetry(
            retry_id=RetryId(str(uuid.uuid4())) if last is None else last.retry_id,
            turn=event.turn,
            step=event.step,
            provider=event.provider,
            mode="always" if budget is None else "normal",
            policy_key=policy_key(policy),
            retry=retry,
            max_retries=budget,
            delay_ms=delay_ms(policy, event.failure, retry, self._chance()),
            failure=event.failure,
        )

    async def _wait(self, event: AgentRequestError, seconds: float) -> bool:
        """Wait; false if the turn was cancelled or the plugin unloads before the end."""
        with anyio.CancelScope() as scope:
            # Whoever heard of the record may have cancelled already: then this cancels at once.
            removers = [
                signal.observe(scope.cancel) for signal in (event.signal, self._closing.signal)
            ]
            try:
                if not self._stopped(event):
                    await self._sleep(seconds)
            finally:
                for remove in removers:
                    remove()
        return not self._stopped(event)

    def _stopped(self, event: AgentRequestError) -> bool:
        return event.signal.aborted or self._gone

    @property
    def _gone(self) -> bool:
        """Whether the plugin unloads: `close` is called a little after that was asked for."""
        wanted = self._fiber.state in (FiberState.LOADING, FiberState.ACTIVE)
        return not wanted or self._closing.signal.aborted


async def _ask_others(event: AgentRequestError, next_: Next[Retry | None]) -> Retry | None:
    try:
        return await next_()
    except Exception as error:  # whatever others do, this policy repeats the request
        log.warning(
            "retry.other_recovery_failed",
            agent=event.agent.id,
            turn=event.turn,
            step=event.step,
            exc_info=error,
        )
        return None


def _covers(policy: NormalRetryPolicy, event: AgentRequestError) -> bool:
    if event.failure.code not in policy.retryable_codes:
        return False
    asked = provider_delay_ms(event.failure)
    if asked is not None and asked > policy.backoff.max_delay_ms:
        return False
    last = _last_retry(event, policy)
    return (0 if last is None else last.retry) < policy.max_retries


def _last_retry(event: AgentRequestError, policy: ExecutablePolicy) -> LlmRetry | None:
    """The record with the highest number in the chain that this failure belongs to."""
    key = policy_key(policy)
    last: LlmRetry | None = None
    for record in _retries_of_step(event.agent.session, event.turn, event.step):
        same = record.provider == event.provider and record.policy_key == key
        if same and (last is None or record.retry > last.retry):
            last = record
    return last


def _retries_of_step(session: Session, turn: int, step: int) -> list[LlmRetry]:
    found: list[LlmRetry] = []
    for event in reversed(session.events):
        data = event.data
        if isinstance(data, StepStart | TurnStart):
            break
        if isinstance(data, LlmRetry) and (data.turn, data.step) == (turn, step):
            found.append(data)
    return found
