"""One attempt at a request: from options to chunks."""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, Self

import msgspec

from dsh_brand import Secret
from dsh_llm import AbortSignal, LlmError, StreamChunk, codes, refuse_real_request

from .classify import http_failure, request_id
from .engine import Guard, HttpRequest, Reply, refuse_if_aborted
from .failing import StreamFinishes
from .routes import HttpRoute
from .shared import SharedEngine
from .sse import Events, Framer

_ERROR_BODY_LIMIT_BYTES = 1024 * 1024


class Translator(Protocol):
    """Folds the events of one response into chunks."""

    finished: bool
    """The terminal event was seen; nothing after it is looked at."""

    def events(self, events: Events, out: list[StreamChunk]) -> None:
        """Append the chunks of these events, up to the terminal one.

        Raises:
            LlmError: `MALFORMED_RESPONSE`.
        """
        ...

    def end(self, out: list[StreamChunk]) -> None:
        """Append the chunks of a clean end of the body.

        Raises:
            LlmError: `STREAM_CLOSED`: the response was not at its end.
        """
        ...


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """What a protocol says about one attempt; nothing of it is called before the first chunk."""

    route: HttpRoute
    url: str
    headers: Mapping[str, str]
    """All of them, except the key's."""
    body: Callable[[], bytes]
    """Builds the body; raises `LlmError` for what the route cannot express."""
    key: Callable[[], Awaitable[Secret | None]]
    """Looks the key up, once."""
    translator: Callable[[StreamFinishes], Translator]
    """Makes the translator of the answer, from what knows how an answer may end."""


class Attempt:
    """The chunks of one attempt, an async iterator with `aclose()`.

    It is a plain object: nothing of it is left to the garbage collector's hooks, no scope is open
    between two chunks, and another task may close it.
    """

    def __init__(
        self, exchange: Exchange, engine: SharedEngine, signal: AbortSignal | None = None
    ) -> None:
        self._exchange = exchange
        self._engine = engine
        self._signal = signal
        self._chunks: deque[StreamChunk] = deque()
        self._guard: Guard | None = None
        self._reply: Reply | None = None
        self._framer = Framer()
        self._redact: Callable[[str], str] = _unchanged
        self._translator = self._new_translator(None)
        self._failure: LlmError | None = None
        self._over = False
        self._cut = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamChunk:
        while not self._chunks:
            if self._over:
                self._raise_failure()
                raise StopAsyncIteration
            if self._translator.finished:
                await self.aclose()
                continue
            try:
                await self._pull()
            except LlmError as error:
                self._failure = error  # after the chunks before it, however the body is cut
                await self._close(drain=False)
            except BaseException:
                await self._close(drain=False)
                raise
        return self._chunks.popleft()

    async def aclose(self) -> None:
        """Stop: give the connection back if the answer is complete, else close it."""
        self._chunks.clear()
        self._failure = None
        await self._close(drain=self._translator.finished)

    async def cut(self) -> None:
        """End a stream whose route is shut down: its reader gets what arrived, then `TRANSPORT`."""
        complete = self._translator.finished
        self._cut = not (self._over or complete)
        await self._close(drain=complete)

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if self._cut:
            self._cut = False
            message = f"the route {self._exchange.route.name!r} was shut down during the answer"
            raise LlmError(message, codes.TRANSPORT) from failure
        if failure is not None:
            raise failure

    async def _close(self, *, drain: bool) -> None:
        self._over = True
        if self._guard is not None:
            await self._guard.stop()
        try:
            if self._reply is not None:
                await self._reply.aclose(drain=drain)
        finally:
            await self._engine.release(self)

    async def _pull(self) -> None:
        """Read once and take in what came."""
        if self._reply is None:
            self._reply = await self._open()
        data = await self._reply.read()
        out: list[StreamChunk] = []
        try:
            self._take(self._framer.feed(data) if data else self._framer.finish(), out)
        except LlmError as error:
            raise self._redacted(error) from error.__cause__
        else:
            if not data and not self._translator.finished:
                self._translator.end(out)
        finally:
            self._chunks.extend(out)

    def _take(self, found: list[Events], out: list[StreamChunk]) -> None:
        translator = self._translator
        for events in found:
            translator.events(events, out)
            if translator.finished:
                return

    def _redacted(self, error: LlmError) -> LlmError:
        """The failure of a malformed response, whose message quotes provider text."""
        message = self._redact(error.message)
        return LlmError(message, error.code, request_id=error.failure.request_id)

    async def _open(self) -> Reply:
        refuse_if_aborted(self._signal)
        exchange = self._exchange
        refuse_real_request(exchange.url)
        body = exchange.body()
        self._guard = guard = Guard(self._signal)
        key = await guard.wait(exchange.key)
        request = HttpRequest(
            url=exchange.url,
            headers=exchange.headers,
            body=body,
            key=key,
            key_header=exchange.route.key_header,
            idle_s=exchange.route.idle_s,
        )
        reply = await self._engine.acquire(self).open(request, guard)
        redact = self._redact = _unchanged if key is None else key.redact
        if not 200 <= reply.status < 300 or reply.status in (204, 205):
            self._reply = reply  # so that the failure closes it
            raise await self._refusal(reply, redact)
        self._framer = Framer(reply.headers.get("content-type"))
        self._translator = self._new_translator(request_id(reply.headers))
        return reply

    def _new_translator(self, number: str | None) -> Translator:
        exchange = self._exchange
        return exchange.translator(StreamFinishes(exchange.route.label, self._redact, number))

    async def _refusal(self, reply: Reply, redact: Callable[[str], str]) -> LlmError:
        body = bytearray()
        try:
            while len(body) < _ERROR_BODY_LIMIT_BYTES and (data := await reply.read()):
                body += data
        except LlmError as error:
            if error.code == codes.ABORTED:
                raise
            body.clear()  # the status says enough
        headers: Mapping[str, str] = reply.headers
        content = bytes(body[:_ERROR_BODY_LIMIT_BYTES])
        return http_failure(
            self._exchange.route.label, reply.status, headers, content, redact=redact
        )


def _unchanged(text: str) -> str:
    return text
