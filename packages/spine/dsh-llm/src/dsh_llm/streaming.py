"""Streams of one call: the adapter's, with failures turned into a finish, and the reader's.

No task, timer or cancel scope exists between two chunks, so a stream may be read in one task and
closed from another.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Self

import anyio
from typing_extensions import override

from dsh_llm import codes
from dsh_llm.adapter import is_closable
from dsh_llm.chunks import AbortedFinish, ErrorFinish, FinishChunk, StreamChunk
from dsh_llm.failures import failure_of
from dsh_llm.request import GenerateOptions, is_agent_loop_request


class StreamRequest:
    """The request of a call on its way through the listeners of `llm/stream`.

    Attributes:
        rewritten: Whether a listener put another request in its place.
    """

    __slots__ = ("_options", "rewritten")

    def __init__(self, options: GenerateOptions) -> None:
        self._options = options
        self.rewritten = False

    @property
    def options(self) -> GenerateOptions:
        """The request as it stands now."""
        return self._options

    def rewrite(self, options: GenerateOptions) -> None:
        """Put another request in its place, before the adapter is looked up.

        Raises:
            TypeError: The agent loop made the request: what the model sees is in the log.
        """
        if is_agent_loop_request(self._options):
            raise TypeError(
                "a request of the agent loop cannot be rewritten: change it in `agent/request`, "
                "or answer without calling next()"
            )
        self._options = options
        self.rewritten = True


class AdapterStream(AsyncIterator[StreamChunk]):
    """What `next()` gives to the listeners: the adapter's stream, begun at the first read.

    An error of the adapter becomes one finish; cancellation passes.
    """

    __slots__ = ("_begin", "_begun", "_ended", "_iterator", "_request")

    def __init__(
        self,
        request: StreamRequest,
        begin: Callable[[], Awaitable[AsyncIterator[StreamChunk]]],
    ) -> None:
        self._request = request
        self._begin = begin
        self._begun = False
        self._iterator: AsyncIterator[StreamChunk] | None = None
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether nothing is left to read or to close."""
        return self._ended

    @property
    def begun(self) -> bool:
        """Whether it was read, so that the adapter's route serves the call."""
        return self._begun

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> StreamChunk:
        if self._ended:
            raise StopAsyncIteration
        self._begun = True
        try:
            if self._iterator is None:
                self._iterator = await self._begin()
            return await self._iterator.__anext__()
        except StopAsyncIteration:
            self._ended = True
            raise
        except Exception as error:  # noqa: BLE001  # an adapter is foreign; this ends the stream
            self._ended = True
            return self._failed(error)

    def _failed(self, error: Exception) -> FinishChunk:
        failure = failure_of(error)
        signal = self._request.options.signal
        if failure.code == codes.ABORTED or (signal is not None and signal.aborted):
            return FinishChunk(AbortedFinish(failure))
        return FinishChunk(ErrorFinish(failure))

    async def aclose(self) -> None:
        """Close the adapter's iterator, once, unless it has ended by itself."""
        ended, self._ended = self._ended, True
        if not ended and is_closable(self._iterator):
            # The cancellation that made the reader leave must not cut the adapter's cleanup short.
            with anyio.CancelScope(shield=True):
                await self._iterator.aclose()


class LlmStream(AsyncIterator[StreamChunk]):
    """The chunks of one call. Leaving early requires `aclose()`: use `contextlib.aclosing`."""

    __slots__ = ("_closing", "_ended", "_idle", "_inner", "_outer", "_outer_ended", "_reading")

    def __init__(self, outer: AsyncIterator[StreamChunk], inner: list[AdapterStream]) -> None:
        self._outer = outer
        self._inner = inner
        self._ended = False
        self._outer_ended = False
        self._reading = False
        self._idle: anyio.Event | None = None
        self._closing: anyio.Event | None = None

    @property
    def dispatched(self) -> bool:
        """Whether the route was asked; if not, a listener answered and no retry policy serves."""
        return any(stream.begun for stream in self._inner)

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> StreamChunk:
        if self._ended:
            raise StopAsyncIteration
        self._reading = True
        try:
            return await self._outer.__anext__()
        except StopAsyncIteration:
            await self._after_end(None)
            raise
        except Exception as error:
            await self._after_end(error)
            raise
        finally:
            self._reading = False
            if self._idle is not None:
                self._idle.set()

    async def _after_end(self, error: Exception | None) -> None:
        self._ended = self._outer_ended = True
        # A listener may have stopped before the adapter did.
        failures = await _close_all([stream for stream in self._inner if not stream.ended])
        if failures and error is not None:
            raise ExceptionGroup("a model stream failed, and so did closing it", [error, *failures])
        _raise_any(failures)

    async def aclose(self) -> None:
        """End the call: wait for the clean-up of listeners and adapter, and raise its failure.

        Safe to call again and from another task; a read that is under way there is waited for, so
        abort the request's signal first to be quick.
        """
        self._ended = True
        if self._closing is not None:
            await self._closing.wait()
            return
        while self._reading:
            self._idle = anyio.Event()
            await self._idle.wait()
        self._closing = anyio.Event()
        try:
            outer = [] if self._outer_ended else [self._outer]
            failures = await _close_all([*outer, *self._inner])
        finally:
            self._closing.set()
        _raise_any(failures)


async def _close_all(streams: Sequence[AsyncIterator[StreamChunk]]) -> list[Exception]:
    """Close all streams, whatever single ones raise."""
    failures: list[Exception] = []
    if not streams:
        return failures
    # The cancellation that made the reader leave must not cut the clean-up short.
    with anyio.CancelScope(shield=True):
        for stream in streams:
            try:
                if is_closable(stream):
                    await stream.aclose()
            except Exception as error:  # noqa: BLE001  # the others close too; the caller raises
                failures.append(error)
    return failures


def _raise_any(failures: list[Exception]) -> None:
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup("closing a model stream failed", failures)
