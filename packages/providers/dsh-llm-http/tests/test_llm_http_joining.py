"""Joined chunks read as the chunks themselves do (L94, L105, L160)."""

from collections.abc import Sequence
from itertools import pairwise

import h11
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dsh_llm_http.joining import ChunkJoiner

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def read(
    reads: Sequence[bytes], *, joined: bool, closed: bool = True
) -> tuple[bytes, object, bytes]:
    """Body, how it ended, and what followed it, as the HTTP library sees them."""
    connection = h11.Connection(our_role=h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    connection.send(h11.EndOfMessage())
    joiner = ChunkJoiner()
    joiner.begin()
    body = b""
    parts = [joiner.feed(data) for data in reads if data] if joined else list(reads)
    if closed:
        parts += [joiner.finish()] if joined else []
    try:
        for data in [*filter(None, parts), *([b""] if closed else [])]:
            connection.receive_data(data)
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    break
                if isinstance(event, h11.Data):
                    body += bytes(event.data)
                if isinstance(event, h11.EndOfMessage):
                    return body, event.headers.raw_items(), connection.trailing_data[0]
                if isinstance(event, h11.ConnectionClosed):
                    return body, "closed", b""
    except h11.RemoteProtocolError:
        return body, "fault", b""
    return body, "waiting", b""


def cut(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(each for each in cuts if each < len(data))})
    return [data[a:b] for a, b in pairwise(edges)]


def chunk(data: bytes, extension: bytes = b"") -> bytes:
    return b"%x%b\r\n%b\r\n" % (len(data), extension, data)


def test_the_chunks_of_one_read_become_one() -> None:
    joiner = ChunkJoiner()
    body = chunk(b"data: 1\n\n") + chunk(b"data: 2\n\n") + b"0\r\n\r\n"
    joined = chunk(b"data: 1\n\ndata: 2\n\n") + b"0\r\n\r\n"
    assert joiner.feed(HEAD + body) == HEAD + joined
    joiner.begin()
    assert joiner.feed(HEAD) == HEAD
    assert joiner.feed(body) == joined


def test_a_part_of_a_chunk_is_passed_on_without_waiting_for_its_rest() -> None:
    joiner = ChunkJoiner()
    joiner.feed(HEAD)
    assert joiner.feed(b"a\r\n0123") == chunk(b"0123")
    assert joiner.feed(b"456789") == chunk(b"456789")
    assert joiner.feed(b"\r") == b""
    assert joiner.feed(b"\n5") == b""
    assert joiner.feed(b"\r\nhello\r\n0\r\n") == chunk(b"hello") + b"0\r\n"


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
    ],
)
def test_other_bodies_pass_unchanged(head: bytes) -> None:
    joiner = ChunkJoiner()
    body = chunk(b"a") + chunk(b"b")
    assert joiner.feed(head + body) == head + body


def test_informational_heads_come_before_the_head() -> None:
    joiner = ChunkJoiner()
    early = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    data = early + HEAD + chunk(b"a") + chunk(b"b")
    assert joiner.feed(data) == early + HEAD + chunk(b"ab")
    joiner.begin()
    assert b"".join(joiner.feed(bytes([byte])) for byte in early + HEAD) == early + HEAD


def test_a_head_without_end_is_passed_on() -> None:
    joiner = ChunkJoiner()
    data = b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000
    assert joiner.feed(data) == data
    assert joiner.feed(b"\r\n\r\n") == b"\r\n\r\n"


_PIECES = st.one_of(
    st.binary(max_size=40).map(lambda data: chunk(data) if data else b""),
    st.binary(min_size=1, max_size=20).map(lambda data: chunk(data, b";a=b")),
    st.sampled_from([b"0\r\n\r\n", b"0\r\nx: y\r\n\r\n", b"5\r\nab", b"\r\n", b"g\r\n", b"3\r\nabcXX"]),
    st.sampled_from([b"0", b"00000003\r\nabc\r\n", b"FFFFFFFFF\r\n", b" 3\r\nabc\r\n", b"3 \r\nabc\r\n"]),
    st.binary(max_size=8),
)  # fmt: skip


@given(
    pieces=st.lists(_PIECES, max_size=8),
    cuts=st.lists(st.integers(0, 300), max_size=15),
    head=st.sampled_from([HEAD, HEAD.lower().replace(b"http", b"HTTP"), b""]),
    closed=st.booleans(),
)
@settings(max_examples=600, deadline=None)
@example(pieces=[b"3\r\nabcXX", b"5\r\nhello\r\n"], cuts=[6, 7, 8], head=HEAD, closed=True)
def test_any_body_in_any_cut_reads_as_it_does_unjoined(
    pieces: Sequence[bytes], cuts: Sequence[int], head: bytes, closed: bool
) -> None:
    reads = [*cut(head, cuts), *cut(b"".join(pieces), cuts)]
    assert read(reads, joined=True, closed=closed) == read(reads, joined=False, closed=closed)
