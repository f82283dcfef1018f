"""A transport for httpx whose parser is written in C; asyncio only, with the extra `fast`."""

import aiohttp  # type: ignore[import-not-found, unused-ignore]  # of the extra
import httpx
from httpx_aiohttp import AiohttpTransport  # type: ignore[import-not-found, unused-ignore]  # same
from typing_extensions import override


class FastTransport(httpx.AsyncBaseTransport):
    """`httpx-aiohttp` without limits of its own, and with exact kinds of failures."""

    def __init__(self) -> None:
        self._inner = AiohttpTransport(client=_session)

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See `httpx.AsyncBaseTransport`."""
        try:
            response: httpx.Response = await self._inner.handle_async_request(request)
        except httpx.TimeoutException as error:
            if isinstance(error.__cause__, TimeoutError):
                raise
            # The library shows every broken connection as a timeout.
            raise httpx.ConnectError(str(error)) from error
        return response

    @override
    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()


def _session() -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=0)
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
