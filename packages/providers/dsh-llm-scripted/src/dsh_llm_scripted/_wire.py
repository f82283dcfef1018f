"""HTTP/1.1 over one accepted socket: just enough for a mock, with every way to end badly."""

import socket
import struct
from collections.abc import Mapping

import anyio
import msgspec

_HEAD_LIMIT = 64 * 1024
_READ_SIZE = 64 * 1024


class Request(msgspec.Struct, frozen=True):
    """A request as it came in."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case; the last of equal names counts."""
    body: bytes


class ClientGoneError(Exception):
    """The peer closed or aborted the connection."""


class Connection:
    """A socket whose ends are under control: a clean close, or an abort the peer sees as reset."""

    def __init__(self, accepted: socket.socket, client_port: int) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = accepted
        self.client_port = client_port
        self._buffer = bytearray()

    async def request(self) -> Request | None:
        """The next request, or `None` when the peer is done.

        Raises:
            ValueError: The head cannot be read or the body has no length.
        """
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > _HEAD_LIMIT:
                raise ValueError("the request head is larger than 64 KiB")
            if not await self._fill():
                return None
        lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        method, path, headers = _head(lines)
        del self._buffer[: end + 4]
        if "transfer-encoding" in headers:
            raise ValueError("the mock reads bodies with a content-length only")
        length = int(headers.get("content-length", "0"))
        while len(self._buffer) < length:
            if not await self._fill():
                return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return Request(method, path, headers, body)

    async def send(self, data: bytes) -> None:
        """Send all of it.

        Raises:
            ClientGoneError: The peer is gone.
        """
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)
            except OSError as error:
                raise ClientGoneError from error

    async def pause(self, delay_s: float | None) -> None:
        """Wait, `None` for ever.

        Raises:
            ClientGoneError: The peer left meanwhile.
        """
        with anyio.move_on_after(delay_s):
            while await self._fill():
                pass
            raise ClientGoneError

    async def _fill(self) -> bool:
        while True:
            await anyio.wait_readable(self._socket)
            try:
                data = self._socket.recv(_READ_SIZE)
            except BlockingIOError:
                continue
            except OSError:
                return False
            self._buffer += data
            return bool(data)

    def close(self) -> None:
        """Close it; the peer reads an end of stream."""
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()

    def abort(self) -> None:
        """Close it so that the peer gets a reset."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()


def _head(lines: list[str]) -> tuple[str, str, dict[str, str]]:
    words = lines[0].split(" ")
    if len(words) != 3:
        raise ValueError(f"not a request line: {lines[0]!r}")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return words[0], words[1], headers


def head_bytes(status: int, headers: list[tuple[str, str]]) -> bytes:
    """Status line and headers."""
    lines = [f"HTTP/1.1 {status} Mock"]
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chunk_bytes(data: bytes) -> bytes:
    """One chunk of the chunked coding."""
    return b"%x\r\n%b\r\n" % (len(data), data)
