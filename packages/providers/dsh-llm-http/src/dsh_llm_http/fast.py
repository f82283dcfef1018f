"""A transport for httpx whose parser is written in C; asyncio only, with the extra `fast`."""

import aiohttp  # type: ignore[import-not-found, unused-ignore]  # of the extra
import httpx
from httpx_aiohttp.transport import (  # type: ignore[import-not-found, unused-ignore]  # same
    AiohttpResponseStream,
    AiohttpTransport,
)
from typing_extensions import override

_READ_BYTES = 256 * 1024
_BUFFER_BYTES = 16 * 1024
"""What the library keeps before it stops reading.

As long as less lies there, it wakes the parser with every HTTP chunk that is taken out.
"""


class FastTransport(httpx.AsyncBaseTransport):
    """`httpx-aiohttp` without limits of its own, and with exact kinds of failures."""

    def __init__(self) -> None:
        self._kept = AiohttpTransport(client=lambda: _session(force_close=False))
        self._once = AiohttpTransport(client=lambda: _session(force_close=True))

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See `httpx.AsyncBaseTransport`."""
        # The library reuses a connection whatever the request says about it.
        inner = self._once if request.headers.get("connection") == "close" else self._kept
        try:
            response: httpx.Response = await inner.handle_async_request(request)
        except httpx.TimeoutException as error:
            if isinstance(error.__cause__, TimeoutError):
                raise
            # The library shows every broken connection as a timeout.
            raise httpx.ConnectError(str(error)) from error
        stream = response.stream
        if isinstance(stream, AiohttpResponseStream):
            stream.CHUNK_SIZE = _READ_BYTES  # what has arrived, in one piece
        return response

    @override
    async def aclose(self) -> None:
        """Close all connections."""
        await self._kept.aclose()
        await self._once.aclose()


def _session(*, force_close: bool) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=0, force_close=force_close)
    return aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=_BUFFER_BYTES
    )
