"""The HTTP engine on httpx: the one module that knows the library.

It is imported when the first request opens, since httpx takes longer to import than everything
else of this package.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import TypeVar, cast
from urllib.request import getproxies

import anyio
import httpcore
import httpx
from anyio.lowlevel import current_token
from typing_extensions import override

from dsh_llm import LlmError, codes
from dsh_llm.outbound import is_loopback

from .engine import Guard, HttpRequest, shown_endpoint
from .network import JoiningTransport

T = TypeVar("T")

_URLS_KEPT = 64
_CLOSE_GRACE_S = 2.0
_DRAIN_GRACE_S = 0.1
_FAULTS = (
    httpx.HTTPError,
    httpx.StreamError,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
    OSError,
    anyio.BrokenResourceError,
)


class HttpxEngine:
    """httpx transports, made when first needed: loopback endpoints go around configured proxies.

    Requests are given to the transports themselves. What a client of httpx does besides, cookies,
    redirects and authentication, is not wanted here and costs a third of a request.

    Args:
        fast: Use the transport of the extra `fast`, which works on asyncio only; by default it is
            used where it is installed and works.
    """

    def __init__(self, *, fast: bool | None = None) -> None:
        self._fast = fast
        self._transports: dict[bool, httpx.AsyncBaseTransport] = {}
        self._urls: dict[str, httpx.URL] = {}

    async def open(self, request: HttpRequest, guard: Guard) -> "HttpxReply":
        """See `Engine.open`."""
        transport = self._transport(proxied=not is_loopback(request.url))
        timeout = httpx.Timeout(request.idle_s, pool=None)
        sent = httpx.Request(
            "GET" if request.body is None else "POST",
            self._url(request.url),
            content=request.body,
            headers=request.headers_with_key(),
            extensions={"timeout": timeout.as_dict()},
        )
        endpoint = shown_endpoint(request.url)
        response = await _translated(
            endpoint,
            request.idle_s,
            lambda: guard.wait(lambda: transport.handle_async_request(sent)),
        )
        return HttpxReply(response, guard, endpoint, request.idle_s)

    async def aclose(self) -> None:
        """See `Engine.aclose`."""
        transports = list(self._transports.values())
        self._transports.clear()
        with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_GRACE_S):
            for transport in transports:
                await transport.aclose()

    def _url(self, url: str) -> httpx.URL:
        known = self._urls.get(url)
        if known is None:
            if len(self._urls) >= _URLS_KEPT:
                self._urls.clear()
            known = self._urls[url] = httpx.URL(url)
        return known

    def _transport(self, *, proxied: bool) -> httpx.AsyncBaseTransport:
        transport = self._transports.get(proxied)
        if transport is None:
            transport = self._transports[proxied] = self._new_transport(proxied=proxied)
        return transport

    def _new_transport(self, *, proxied: bool) -> httpx.AsyncBaseTransport:
        if proxied and getproxies():
            return _ProxiedTransport()
        if self._fast is not False and _fast_is_possible():
            from .fast import FastTransport  # of an optional package

            return FastTransport()
        return JoiningTransport()


class _ProxiedTransport(httpx.AsyncBaseTransport):
    """A client of httpx, which knows the proxies of the environment."""

    def __init__(self) -> None:
        self._client = httpx.AsyncClient(
            follow_redirects=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        )

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._client.send(request, stream=True)

    @override
    async def aclose(self) -> None:
        await self._client.aclose()


def _fast_is_possible() -> bool:
    on_asyncio = "asyncio" in current_token().backend_class.__module__
    return on_asyncio and find_spec("httpx_aiohttp") is not None


class HttpxReply:
    """One response, read as it arrives."""

    def __init__(
        self, response: httpx.Response, guard: Guard, endpoint: str, idle_s: float
    ) -> None:
        self._response = response
        self._guard = guard
        self._endpoint = endpoint
        self._idle_s = idle_s
        # An async generator: nothing less has the `aclose` that ends it.
        self._blocks = cast("AsyncGenerator[bytes, None]", response.aiter_raw())
        self._begun = False
        self._ended = False
        self._closed = False

    @property
    def status(self) -> int:
        """See `Reply.status`."""
        return self._response.status_code

    @property
    def headers(self) -> Mapping[str, str]:
        """See `Reply.headers`."""
        return self._response.headers

    async def read(self) -> bytes:
        """See `Reply.read`."""
        return await _translated(self._endpoint, self._idle_s, lambda: self._guard.wait(self._next))

    async def aclose(self, *, drain: bool) -> None:
        """See `Reply.aclose`."""
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            await self._guard.stop()
            if drain:
                await self._run_out()
            if self._ended:
                await self._response.aclose()  # nothing is left to wait for
            else:
                with anyio.move_on_after(_CLOSE_GRACE_S):
                    await self._response.aclose()
                # The library's generators end by themselves on the closed connection; left
                # suspended, they would be finalized by the garbage collector.
                await self._run_out()
            await self._blocks.aclose()

    async def _next(self) -> bytes:
        self._begun = True
        try:
            async for block in self._blocks:
                if block:
                    return block
        except BaseException:
            self._ended = True  # the library has closed the connection on its way out
            raise
        self._ended = True
        return b""

    async def _run_out(self) -> None:
        with anyio.move_on_after(_DRAIN_GRACE_S):
            with suppress(*_FAULTS):  # a rest that nobody asked for
                while self._begun and not self._ended:
                    await self._next()


async def _translated(endpoint: str, idle_s: float, wait: Callable[[], Awaitable[T]]) -> T:
    try:
        return await wait()
    except (httpx.TimeoutException, httpcore.TimeoutException) as error:
        message = f"no answer from {endpoint} within {idle_s:g} s"
        raise LlmError(message, codes.TIMEOUT, cause=error) from error
    except _FAULTS as error:
        reason = str(error) or type(error).__name__
        message = f"cannot talk to {endpoint}: {reason}"
        raise LlmError(message, codes.TRANSPORT, cause=error) from error
