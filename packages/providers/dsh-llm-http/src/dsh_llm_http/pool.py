"""Connections by origin: a request takes a free one or opens another, however many run."""

import ssl
from collections import deque

import anyio
import httpcore

_FREE_KEPT = 20
"""So many connections stay open without requests; while more are in use, as many as these."""
_CLOSE_GRACE_S = 2.0

Connection = httpcore.AsyncHTTP11Connection
_Key = tuple[bytes, bytes, int]


class ConnectionPool:
    """Connections of httpcore; of the free ones the last used goes first.

    The library's own pool looks at all its connections whenever a request begins or ends, which is
    most of the cost where many run at once. Here neither depends on the others.

    Args:
        backend: Opens the sockets.
        ssl_context: For origins with TLS.
    """

    def __init__(self, backend: httpcore.AsyncNetworkBackend, ssl_context: ssl.SSLContext) -> None:
        self._backend = backend
        self._ssl_context = ssl_context
        self._free: dict[_Key, deque[Connection]] = {}
        self._taken: dict[Connection, _Key] = {}
        """The connections in use, with their origins."""
        self._closed = False

    async def take(self, origin: httpcore.Origin, timeout_s: float | None) -> Connection:
        """A connection for one request; give it back in any case.

        Args:
            origin: Where to.
            timeout_s: The longest wait for a new one.

        Raises:
            httpcore.ConnectError: It cannot be opened; likewise `ConnectTimeout`.
        """
        key = (origin.scheme, origin.host, origin.port)
        free = self._free.setdefault(key, deque())
        connection = None
        while free and connection is None:
            connection = free.pop()
            if connection.has_expired():
                await _close(connection)
                connection = None
        if connection is None:
            connection = Connection(origin, await self._connected(origin, timeout_s))
        self._taken[connection] = key
        return connection

    async def give_back(self, connection: Connection) -> None:
        """The request is over: keep the connection if it can be used again. Again does nothing."""
        key = self._taken.pop(connection, None)
        if key is None:
            return
        if self._closed or not connection.is_idle():
            await _close(connection)
            return
        free = self._free[key]
        free.append(connection)
        kept = max(_FREE_KEPT, len(self._taken))
        while len(free) > kept or (len(free) > 1 and free[0].has_expired()):
            await _close(free.popleft())

    async def aclose(self) -> None:
        """Close all connections, those in use too."""
        self._closed = True
        connections = [*self._taken, *(each for free in self._free.values() for each in free)]
        self._taken.clear()
        self._free.clear()
        for connection in connections:
            await _close(connection)

    async def _connected(
        self, origin: httpcore.Origin, timeout_s: float | None
    ) -> httpcore.AsyncNetworkStream:
        host = origin.host.decode("ascii")
        stream = await self._backend.connect_tcp(host, origin.port, timeout_s)
        if origin.scheme != b"https":
            return stream
        try:
            return await stream.start_tls(self._ssl_context, host, timeout_s)
        except BaseException:
            await _close(stream)  # the library leaves it open when the wait is cancelled
            raise


async def _close(connection: Connection | httpcore.AsyncNetworkStream) -> None:
    with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_GRACE_S):
        await connection.aclose()
