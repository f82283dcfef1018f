"""One attempt at a request: from options to chunks."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Self

import anyio

from dsh_brand import Secret
from dsh_llm import GenerateOptions, LlmError, StreamChunk, codes

from ._shared import SharedEngine
from .classify import http_failure, request_id
from .credentials import CredentialLookup, resolve_key
from .engine import Guard, HttpRequest, Reply, aborted
from .headers import request_headers
from .request import BodyBuilder
from .routes import Route
from .sse import Frame, Framer
from .stream import ChunkTranslator

_ERROR_BODY_LIMIT_BYTES = 1024 * 1024


class Attempt:
    """The chunks of one attempt, an async iterator with `aclose()`.

    It is a plain object: nothing of it is left to the garbage collector's hooks, no scope is open
    between two chunks, and another task may close it.
    """

    def __init__(
        self,
        options: GenerateOptions,
        route: Route,
        *,
        builder: BodyBuilder,
        credentials: CredentialLookup,
        engine: SharedEngine,
    ) -> None:
        self._options = options
        self._route = route
        self._builder = builder
        self._credentials = credentials
        self._engine = engine
        self._chunks: deque[StreamChunk] = deque()
        self._guard: Guard | None = None
        self._reply: Reply | None = None
        self._framer = Framer()
        self._translator = ChunkTranslator(route.label, _unchanged)
        self._redact: Callable[[str], str] = _unchanged
        self._over = False
        self._cut = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamChunk:
        while not self._chunks:
            if self._over:
                self._raise_if_cut(None)
                raise StopAsyncIteration
            if self._translator.finished:
                await self.aclose()
                continue
            try:
                await self._pull()
            except BaseException as error:
                await self._close(drain=False)
                if isinstance(error, LlmError):
                    self._raise_if_cut(error)
                raise
        return self._chunks.popleft()

    async def aclose(self) -> None:
        """Stop: give the connection back if the answer is complete, else close it."""
        self._chunks.clear()
        await self._close(drain=self._translator.finished)

    async def cut(self) -> None:
        """End a stream whose route is shut down: its reader gets what arrived, then `TRANSPORT`."""
        complete = self._translator.finished
        self._cut = not (self._over or complete)
        await self._close(drain=complete)

    def _raise_if_cut(self, cause: LlmError | None) -> None:
        if self._cut:
            self._cut = False
            message = f"the route {self._route.name!r} was shut down during the answer"
            raise LlmError(message, codes.TRANSPORT) from cause

    async def _close(self, *, drain: bool) -> None:
        self._over = True
        if self._guard is not None:
            with anyio.CancelScope(shield=True):
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
        try:
            self._take(self._framer.feed(data) if data else self._framer.finish())
        except LlmError as error:
            raise self._redacted(error) from error.__cause__
        if not data and not self._translator.finished:
            self._chunks.extend(self._translator.end())

    def _take(self, frames: list[Frame]) -> None:
        translator = self._translator
        for frame in frames:
            self._chunks.extend(translator.frame(frame))
            if translator.finished:
                return

    def _redacted(self, error: LlmError) -> LlmError:
        """The failure of a malformed response, whose message quotes provider text."""
        return LlmError(self._redact(error.message), error.code)

    async def _open(self) -> Reply:
        signal = self._options.signal
        if signal is not None and signal.aborted:
            raise aborted()
        body = self._builder.build(self._options)
        self._guard = guard = Guard(signal)
        key = await guard.wait(self._key)
        route = self._route
        request = HttpRequest(
            url=f"{route.base_url}/chat/completions",
            headers=request_headers(route.headers, keep_alive=route.keep_alive),
            body=body,
            key=key,
            idle_s=route.idle_s,
        )
        reply = await self._engine.acquire(self).open(request, guard)
        redact = self._redact = _unchanged if key is None else key.redact
        if not 200 <= reply.status < 300 or reply.status in (204, 205):
            self._reply = reply  # so that the failure closes it
            raise await self._failure(reply, redact)
        self._framer = Framer(reply.headers.get("content-type"))
        self._translator = ChunkTranslator(route.label, redact, request_id(reply.headers))
        return reply

    async def _key(self) -> Secret | None:
        return await resolve_key(self._route.name, self._route.api_key_env, self._credentials)

    async def _failure(self, reply: Reply, redact: Callable[[str], str]) -> LlmError:
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
        return http_failure(self._route.label, reply.status, headers, content, redact=redact)


def _unchanged(text: str) -> str:
    return text
