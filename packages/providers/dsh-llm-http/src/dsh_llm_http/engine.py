"""What the adapter needs of an HTTP library, and the abort that interrupts its waits."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar
from urllib.parse import urlsplit, urlunsplit

import anyio
import msgspec

from dsh_brand import Secret
from dsh_llm import AbortSignal, LlmError, codes

from .routes import KeyHeader

T = TypeVar("T")


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request: a POST, or a GET without body."""

    url: str
    headers: Mapping[str, str]
    body: bytes | None
    key: Secret | None = None
    """Revealed by the engine only."""
    key_header: KeyHeader = "authorization"
    idle_s: float
    """Bound of each single wait on the network."""

    def headers_with_key(self) -> dict[str, str]:
        """The headers as they are sent; they hold the key in plain text."""
        headers = dict(self.headers)
        if self.key is not None:
            plain = self.key.reveal()
            bearer = self.key_header == "authorization"
            headers[self.key_header] = f"Bearer {plain}" if bearer else plain
        return headers


class Reply(Protocol):
    """An answer whose head is there."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Response headers; lookup ignores letter case."""
        ...

    async def read(self) -> bytes:
        """The next bytes of the body, empty at its end.

        Raises:
            LlmError: `TIMEOUT`, `TRANSPORT` or `ABORTED`; the connection is closed then.
        """
        ...

    async def aclose(self, *, drain: bool) -> None:
        """Give the connection back, or close it if the body is not at its end.

        Args:
            drain: Read a rest that arrives within a short time, so that the connection is reused.
        """
        ...


class Engine(Protocol):
    """Opens replies."""

    async def open(self, request: HttpRequest, guard: "Guard") -> Reply:
        """Send a request and wait for the head of its answer.

        Raises:
            LlmError: `TIMEOUT`, `TRANSPORT` or `ABORTED`.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


def shown_endpoint(url: str) -> str:
    """The endpoint for messages: no user info, query or fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def refuse_if_aborted(signal: AbortSignal | None) -> None:
    """Begin nothing for a caller who has already asked to stop.

    Raises:
        LlmError: `ABORTED`.
    """
    if signal is not None and signal.aborted:
        raise aborted()


def aborted() -> LlmError:
    """The failure of a call whose caller asked to stop."""
    return LlmError("the request was aborted by its caller", codes.ABORTED)


class Guard:
    """Lets the caller's abort, or a close from another task, interrupt the wait of one attempt.

    Each wait has one cancel scope, which is left before the wait returns.
    """

    def __init__(self, signal: AbortSignal | None) -> None:
        self._scope: anyio.CancelScope | None = None
        self._left: anyio.Event | None = None
        """Set when the wait of another task was left, for who stops it."""
        self._interrupted = False
        self._detach: Callable[[], None] | None = None
        if signal is not None:
            self._detach = signal.observe(self._interrupt)

    async def wait(self, wait: Callable[[], Awaitable[T]]) -> T:
        """Run one wait.

        Raises:
            LlmError: `ABORTED`: the caller stopped it, before it began or while it ran.
            RuntimeError: Another task waits on the same attempt.
        """
        if self._interrupted:
            raise aborted()
        if self._scope is not None:
            raise RuntimeError("two tasks iterate one stream; give each a stream of its own")
        try:
            with anyio.CancelScope() as self._scope:
                return await wait()
        finally:
            self._scope = None
            if self._left is not None:
                self._left.set()
        raise aborted()

    async def stop(self) -> None:
        """End the guard: interrupt a wait of another task and return once that task has left."""
        if self._detach is not None:
            self._detach()
            self._detach = None
        if self._scope is not None:
            self._left = anyio.Event()
            self._interrupt()
            with anyio.CancelScope(shield=True):
                await self._left.wait()
        self._interrupted = True

    def _interrupt(self) -> None:
        self._interrupted = True
        if self._scope is not None:
            self._scope.cancel()
