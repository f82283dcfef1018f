"""The default transport for httpx: httpcore's pool over sockets that join small HTTP chunks."""

import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable

import httpcore
import httpx
from typing_extensions import override

from .joining import ChunkJoiner

_SocketOption = httpcore.SOCKET_OPTION


class JoiningTransport(httpx.AsyncBaseTransport):
    """Sends requests straight to their origin; proxies are the business of httpx's own transport.

    Errors are those of httpcore.
    """

    def __init__(self) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=httpx.create_ssl_context(),
            max_connections=None,
            max_keepalive_connections=20,
            network_backend=JoiningBackend(httpcore.AnyIOBackend()),
        )

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See `httpx.AsyncBaseTransport`."""
        url = request.url
        response = await self._pool.handle_async_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(
            status_code=response.status,
            headers=response.headers,
            stream=_Body(response),
            extensions=response.extensions,
        )

    @override
    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        assert isinstance(response.stream, AsyncIterable)  # the pool is an asynchronous one
        self._response = response
        self._stream = response.stream

    @override
    def __aiter__(self) -> AsyncIterator[bytes]:
        # The stream itself: `aiter_stream` would be one more generator for each chunk.
        return aiter(self._stream)

    @override
    async def aclose(self) -> None:
        await self._response.aclose()


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
    """One connection."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._joiner = ChunkJoiner()

    @override
    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """See `httpcore.AsyncNetworkStream`."""
        while True:
            data = await self._inner.read(max_bytes, timeout)
            passed = self._joiner.feed(data) if data else self._joiner.finish()
            if passed or not data:
                return passed

    @override
    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """See `httpcore.AsyncNetworkStream`."""
        self._joiner.begin()
        await self._inner.write(buffer, timeout)

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
