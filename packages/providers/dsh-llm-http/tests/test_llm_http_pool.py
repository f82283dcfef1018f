"""Connections of the default transport: reuse, bounds, clean-up (L92, L93, L111, L160)."""

from collections.abc import Iterable, Sequence

import anyio
import httpcore
import httpx
import pytest
from anyio import wait_all_tasks_blocked
from typing_extensions import override

from dsh_llm_http.network import JoiningTransport
from dsh_llm_http.pool import ConnectionPool

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class FakeStream(httpcore.AsyncNetworkStream):
    """Answers each request; `gone` says that the server has closed."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.written: list[bytes] = []
        self.gone = False
        self.closed = False
        self._refuses = refuses

    @override
    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return ANSWER

    @override
    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self._refuses:
            raise httpcore.WriteError("reset")
        self.written.append(buffer)

    @override
    async def aclose(self) -> None:
        self.closed = True

    @override
    async def start_tls(
        self, ssl_context: object, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        await anyio.sleep_forever()
        raise AssertionError

    @override
    def get_extra_info(self, info: str) -> object:
        return self.gone if info == "is_readable" else None


class FakeBackend(httpcore.AsyncNetworkBackend):
    """Keeps the streams that it opened."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.streams: list[FakeStream] = []
        self._refuses = refuses

    @override
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self.streams.append(FakeStream(refuses=self._refuses))
        return self.streams[-1]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    fake = FakeBackend()
    monkeypatch.setattr("httpcore.AnyIOBackend", lambda: fake)
    return fake


async def post(transport: JoiningTransport, url: str = "http://h/v1", size: int = 2) -> bytes:
    sent = httpx.Request("POST", url, content=b"x" * size)
    response = await transport.handle_async_request(sent)
    return await response.aread()


def still_open(streams: Sequence[FakeStream]) -> int:
    return sum(not stream.closed for stream in streams)


async def test_a_request_leaves_in_one_piece_unless_its_body_is_large(backend: FakeBackend) -> None:
    transport = JoiningTransport()
    assert await post(transport) == b"ok"
    assert await post(transport, size=200_000) == b"ok"
    [stream] = backend.streams
    small, head, body = stream.written
    assert small.startswith(b"POST /v1 HTTP/1.1\r\n")
    assert small.endswith(b"\r\n\r\nxx")
    assert head.endswith(b"\r\n\r\n")
    assert len(body) == 200_000


async def test_an_answer_counts_even_if_the_request_was_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeBackend(refuses=True)
    monkeypatch.setattr("httpcore.AnyIOBackend", lambda: fake)
    assert await post(JoiningTransport()) == b"ok"


async def test_L111_free_connections_are_used_again_by_their_origin_alone(
    backend: FakeBackend,
) -> None:
    transport = JoiningTransport()
    for url in ("http://h/a", "http://h/b", "http://h:81/a", "http://i/a", "http://h/c"):
        await post(transport, url)
    assert len(backend.streams) == 3
    await transport.aclose()
    assert still_open(backend.streams) == 0


async def test_a_connection_that_the_server_closed_is_not_used_again(backend: FakeBackend) -> None:
    transport = JoiningTransport()
    await post(transport)
    backend.streams[0].gone = True
    await post(transport)
    assert [stream.closed for stream in backend.streams] == [True, False]


async def test_L92_as_many_connections_as_requests_and_few_stay_without_them(
    backend: FakeBackend,
) -> None:
    transport = JoiningTransport()
    responses = [
        await transport.handle_async_request(httpx.Request("GET", "http://h/")) for _ in range(100)
    ]
    assert still_open(backend.streams) == 100
    for response in responses[:50]:
        await response.aread()
    for _ in range(3):  # while others are in use, all that are free are kept
        await post(transport)
    assert still_open(backend.streams) == len(backend.streams) == 100
    for response in responses[50:]:
        await response.aread()
    assert still_open(backend.streams) == 20
    backend.streams[0].gone = True
    await post(transport)
    await transport.aclose()
    assert still_open(backend.streams) == 0


async def test_L93_closing_the_transport_closes_what_is_in_use(backend: FakeBackend) -> None:
    transport = JoiningTransport()
    response = await transport.handle_async_request(httpx.Request("GET", "http://h/"))
    await transport.aclose()
    assert still_open(backend.streams) == 0
    await response.aclose()
    await response.aclose()


async def test_L93_an_abort_during_the_handshake_leaves_no_socket(backend: FakeBackend) -> None:
    pool = ConnectionPool(backend, httpx.create_ssl_context())
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pool.take, httpcore.URL("https://h/").origin, None)
            await wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert len(backend.streams) == 1
    assert still_open(backend.streams) == 0
