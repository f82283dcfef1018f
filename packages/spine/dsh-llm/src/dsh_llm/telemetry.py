"""What happened in each attempt at an answer, as plain facts: watched at `llm/stream`, and logged.

The module is a plugin: `ctx.plugin(dsh_llm.telemetry)` logs one line `llm.attempt` per attempt.
Facts hold names, codes, counts and times; no text of a prompt, an answer, an error or a tool call.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import ClassVar, Protocol, Self

import anyio
import msgspec
import structlog
from structlog.typing import FilteringBoundLogger
from typing_extensions import override

from dsh_cordis import Context, Handle
from dsh_llm.adapter import is_closable
from dsh_llm.chunks import (
    AbortedFinish,
    ErrorFinish,
    FinishChunk,
    StreamChunk,
    TokenUsage,
    UsageChunk,
    is_token_delta,
)
from dsh_llm.request import GenerateOptions
from dsh_llm.service import LlmStreamEvent
from dsh_llm.streaming import StreamRequest

name = "llm-telemetry"
log: FilteringBoundLogger = structlog.get_logger(__name__)

LEFT = "left"
"""Outcome of an attempt whose reader went away, or was cancelled, before the finish."""
RAISED = "raised"
"""Outcome of an attempt that ended in an exception, such as a listener's."""
UNFINISHED = "unfinished"
"""Outcome of an attempt whose stream ended without a finish."""


class AttemptFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at an answer, after its end."""

    provider: str
    model: str
    outcome: str
    """The kind of its finish, or `left`, `raised`, `unfinished`."""
    total_ms: float
    """From the first read to the end, the reader's own time included."""
    first_token_ms: float | None = None
    """From the first read to the first token; `None` without one."""
    code: str | None = None
    """The failure's code (`dsh_llm.codes`), or the class of an exception."""
    status: int | None = None
    """The HTTP status of the failure."""
    request_id: str | None = None
    """The provider's id of the failed request."""
    usage: TokenUsage | None = None
    """The tokens that the provider counted."""
    session_id: str | None = None
    purpose: str | None = None
    """Why the call was made, unless it is the agent's own."""

    @property
    def failed(self) -> bool:
        """Whether the attempt ended in an error; a caller who stops is none."""
        return self.outcome in ("error", RAISED, UNFINISHED)


class AttemptWatch(Protocol):
    """What one attempt is told to; made when its first chunk is read."""

    def opening(self) -> AbstractContextManager[object]:
        """Entered around each read until the first chunk is there."""
        ...

    def ended(self, facts: AttemptFacts) -> None:
        """The attempt is over; called once."""
        ...


def watch_attempts(ctx: Context, begin: Callable[[GenerateOptions], AttemptWatch]) -> Handle:
    """Watch every call through `ctx.llm`; an effect of `ctx`.

    Args:
        ctx: Whose listener it is. Listeners that were registered before it stand around it; one
            that asks the adapter again makes another attempt.
        begin: Makes the watch of one attempt, from its request.
    """

    def listen(
        event: LlmStreamEvent, inner: Callable[[], AsyncIterator[StreamChunk]]
    ) -> AsyncIterator[StreamChunk]:
        return _Watched(inner(), event.request, begin)

    return ctx.on(LlmStreamEvent, listen, everywhere=True)


class _Watched(AsyncIterator[StreamChunk]):
    """A stream that is looked at; chunks and errors pass unchanged."""

    def __init__(
        self,
        inner: AsyncIterator[StreamChunk],
        request: StreamRequest,
        begin: Callable[[GenerateOptions], AttemptWatch],
    ) -> None:
        self._inner = inner
        self._request = request
        self._begin = begin
        self._watch: AttemptWatch | None = None
        self._started = 0.0
        self._first_token: float | None = None
        self._usage: TokenUsage | None = None
        self._opened = False
        self._over = False

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> StreamChunk:
        try:
            chunk = await (self._inner.__anext__() if self._opened else self._open())
        except StopAsyncIteration:
            self._end(UNFINISHED)
            raise
        except Exception as error:
            self._end(RAISED, type(error).__name__)
            raise
        except BaseException:
            self._end(LEFT)
            raise
        if self._first_token is None and is_token_delta(chunk):
            self._first_token = perf_counter()
        if isinstance(chunk, UsageChunk):
            self._usage = chunk.usage
        elif isinstance(chunk, FinishChunk):
            self._finished(chunk)
        return chunk

    async def aclose(self) -> None:
        """Close the stream behind it."""
        self._end(LEFT)
        if is_closable(self._inner):
            # As the service does: the cancellation of the reader must not cut the cleanup short.
            with anyio.CancelScope(shield=True):
                await self._inner.aclose()

    async def _open(self) -> StreamChunk:
        if self._watch is None:
            self._started = perf_counter()
            self._watch = self._begin(self._request.options)
        with self._watch.opening():
            chunk = await self._inner.__anext__()
        self._opened = True
        return chunk

    def _finished(self, chunk: FinishChunk) -> None:
        reason = chunk.reason
        if isinstance(reason, ErrorFinish | AbortedFinish):
            failure = reason.failure
            self._end(reason.kind, failure.code, failure.status, failure.request_id)
        else:
            self._end(reason.kind)

    def _end(
        self,
        outcome: str,
        code: str | None = None,
        status: int | None = None,
        request_id: str | None = None,
    ) -> None:
        if self._over or self._watch is None:
            return
        self._over = True
        options = self._request.options
        now, first = perf_counter(), self._first_token
        facts = AttemptFacts(
            provider=options.provider,
            model=options.model,
            outcome=outcome,
            total_ms=_ms(now - self._started),
            first_token_ms=None if first is None else _ms(first - self._started),
            code=code,
            status=status,
            request_id=request_id,
            usage=self._usage,
            session_id=options.session_id,
            purpose=options.purpose,
        )
        try:
            self._watch.ended(facts)
        except Exception:  # who watches must not change what is watched
            log.exception("llm.watch_failed")


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


class LogWatch:
    """Writes the facts of one attempt to the log: at warning level if it failed, else at info."""

    event: ClassVar[str] = "llm.attempt"

    def opening(self) -> AbstractContextManager[object]:
        """Nothing to enter."""
        return nullcontext()

    def ended(self, facts: AttemptFacts) -> None:
        """Write the line."""
        values = msgspec.structs.asdict(facts)
        usage = values.pop("usage")
        if usage is not None:
            values |= msgspec.structs.asdict(usage)
            values.pop("extra", None)
        known = {key: value for key, value in values.items() if value is not None}
        write = log.warning if facts.failed else log.info
        write(self.event, **known)


def apply(ctx: Context) -> None:
    """Log one line per attempt."""
    watch_attempts(ctx, lambda options: LogWatch())
