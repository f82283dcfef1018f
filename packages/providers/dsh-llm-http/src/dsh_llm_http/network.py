"""The default transport for httpx: httpcore over sockets that join small HTTP chunks."""

import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from contextlib import suppress

import httpcore
import httpx
from typing_extensions import override

from .joining import ChunkJoiner
from .pool import Connection, ConnectionPool

_SocketOption = httpcore.SOCKET_OPTION
_COPIED_BYTES = 64 * 1024
"""A larger body is sent by itself: copying it would cost more than sending twice."""


class JoiningTransport(httpx.AsyncBaseTransport):
    """Sends requests straight to their origin; proxies are the business of httpx's own transport.

    Errors are those of httpcore.
    """

    def __init__(self) -> None:
        backend = JoiningBackend(httpcore.AnyIOBackend())
        context = httpx.create_ssl_context()
        context.set_alpn_protocols(["http/1.1"])
        self._pool = ConnectionPool(backend, context)

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See `httpx.AsyncBaseTransport`."""
        url = request.url
        sent = httpcore.Request(
            method=request.method,
            url=httpcore.URL(
                scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        timeouts: Mapping[str, float | None] = request.extensions.get("timeout", {})
        connection = await self._pool.take(sent.url.origin, timeouts.get("connect"))
        try:
            response = await connection.handle_async_request(sent)
        except BaseException:
            await self._pool.give_back(connection)
            raise
        return httpx.Response(
            status_code=response.status,
            headers=response.headers,
            stream=_Body(response, self._pool, connection),
            extensions=response.extensions,
        )

    @override
    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    def __init__(
        self, response: httpcore.Response, pool: ConnectionPool, connection: Connection
    ) -> None:
        assert isinstance(response.stream, AsyncIterable)  # of a connection that is asynchronous
        self._response = response
        self._stream = response.stream
        self._pool = pool
        self._connection = connection

    @override
    def __aiter__(self) -> AsyncIterator[bytes]:
        # The stream itself: `aiter_stream` would be one more generator for each chunk.
        return aiter(self._stream)

    @override
    async def aclose(self) -> None:
        try:
            await self._response.aclose()
        finally:
            await self._pool.give_back(self._connection)


class JoiningBackend(httpcore.AsyncNetworkBackend):
    """Opens the connections of another backend, their chunks joined."""

    def __init__(self, inner: httpcore.AsyncNetworkBackend) -> None:
        self._inner = inner

    @override
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[_SocketOption] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """See `httpcore.AsyncNetworkBackend`."""
        stream = await self._inner.connect_tcp(host, port, timeout, local_address, socket_options)
        return JoinedStream(stream)

    @override
    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[_SocketOption] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """See `httpcore.AsyncNetworkBackend`."""
        return JoinedStream(await self._inner.connect_unix_socket(path, timeout, socket_options))

    @override
    async def sleep(self, seconds: float) -> None:
        """See `httpcore.AsyncNetworkBackend`."""
        await self._inner.sleep(seconds)


class JoinedStream(httpcore.AsyncNetworkStream):
    """One connection: the head of a request leaves with its body, when the answer is waited for."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._joiner = ChunkJoiner()
        self._unsent = b""

    @override
    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """See `httpcore.AsyncNetworkStream`."""
        if self._unsent:
            # A server may answer and close before it has read everything: what it says counts.
            with suppress(httpcore.WriteError):
                await self._send(timeout)
        while True:
            data = await self._inner.read(max_bytes, timeout)
            passed = self._joiner.feed(data) if data else self._joiner.finish()
            if passed or not data:
                return passed

    @override
    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """See `httpcore.AsyncNetworkStream`."""
        self._joiner.begin()
        if self._unsent and len(buffer) > _COPIED_BYTES:
            await self._send(timeout)
        self._unsent += buffer

    async def _send(self, timeout_s: float | None) -> None:
        unsent, self._unsent = self._unsent, b""
        await self._inner.write(unsent, timeout_s)

    @override
    async def aclose(self) -> None:
        """See `httpcore.AsyncNetworkStream`."""
        await self._inner.aclose()

    @override
    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """See `httpcore.AsyncNetworkStream`."""
        return JoinedStream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    @override
    def get_extra_info(self, info: str) -> object:
        """See `httpcore.AsyncNetworkStream`."""
        found: object = self._inner.get_extra_info(info)
        return found
