"""What the mock server answers: bytes, pauses and how the connection ends.

Upstream: packages/llm/llm-mock/src (the behaviours of its HTTP server).
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

Ending = Literal["complete", "disconnect", "reset", "stall"]
"""How a reply ends: whole; connection closed half-way; connection aborted; silence."""

EVENT_STREAM = (("content-type", "text/event-stream"),)
JSON = (("content-type", "application/json"),)


class Part(msgspec.Struct, frozen=True):
    """Bytes that travel as one HTTP chunk, so that a client reads them by themselves."""

    data: bytes
    pause_s: float = 0.0
    """Waiting time before the bytes are sent."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the mock server."""

    name: str
    """The behaviour's name, as the record of the request shows it."""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = EVENT_STREAM
    parts: tuple[Part, ...] = ()
    ending: Ending = "complete"
    head: bool = True
    """Whether status line and headers are sent at all."""
    chunked: bool = True
    """Chunked transfer coding; otherwise one body with a content length."""

    @property
    def body(self) -> bytes:
        """The whole body, as a client has it that reads to the end."""
        return b"".join(part.data for part in self.parts)


def raw_reply(
    parts: Iterable[bytes | Part],
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    ending: Ending = "complete",
    name: str = "raw",
) -> Reply:
    """Answer with exactly these byte strings, each read by the client on its own."""
    return Reply(
        name=name,
        status=status,
        headers=EVENT_STREAM if headers is None else tuple(headers.items()),
        parts=tuple(part if isinstance(part, Part) else Part(part) for part in parts),
        ending=ending,
    )


def json_reply(
    document: object,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    name: str = "json",
) -> Reply:
    """Answer with one JSON document and its length."""
    return Reply(
        name=name,
        status=status,
        headers=(*JSON, *(headers or {}).items()),
        parts=(Part(msgspec.json.encode(document)),),
        chunked=False,
    )


def split_at(reply: Reply, offsets: Sequence[int]) -> Reply:
    """The same reply with a read ending at each of these byte offsets."""
    body = reply.body
    edges = [0, *offsets, len(body)]
    pieces = [body[start:end] for start, end in pairwise(edges)]
    return msgspec.structs.replace(reply, parts=tuple(Part(piece) for piece in pieces if piece))


def bytewise(reply: Reply) -> Reply:
    """The same reply, one byte per read."""
    return split_at(reply, range(1, len(reply.body)))


def slowly(reply: Reply, pause_s: float) -> Reply:
    """The same reply with a pause before every part."""
    parts = tuple(msgspec.structs.replace(part, pause_s=pause_s) for part in reply.parts)
    return msgspec.structs.replace(reply, parts=parts)


def error_reply(
    name: str,
    status: int,
    message: str,
    *,
    code: str,
    kind: str,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """An HTTP error in the form chat-completions services give it."""
    document = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return json_reply(document, status=status, headers=headers, name=name)


def rate_limit(retry_after_s: float = 1.0) -> Reply:
    """429 with `retry-after` in whole seconds, rounded up."""
    return error_reply(
        "rate_limit",
        429,
        "Rate limit reached for requests",
        code="rate_limit_exceeded",
        kind="requests",
        headers={"retry-after": whole_seconds(retry_after_s)},
    )


def whole_seconds(duration_s: float) -> str:
    """A duration as the header `retry-after` has it: in whole seconds, rounded up."""
    return str(int(-(-duration_s // 1)))


def stall(parts: Iterable[bytes] = ()) -> Reply:
    """Send what is given, then nothing more; the connection stays open."""
    return raw_reply(parts, ending="stall", name="stall")


def reset(parts: Iterable[bytes] = ()) -> Reply:
    """Send what is given, then abort the connection; without parts not even a status line."""
    sent = tuple(parts)
    return Reply(
        name="reset" if sent else "connection_reset",
        parts=tuple(Part(part) for part in sent),
        ending="reset",
        head=bool(sent),
    )
