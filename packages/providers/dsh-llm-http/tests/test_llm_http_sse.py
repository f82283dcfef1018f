"""Framing of response bodies (L105-L110)."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_brand import is_blank
from dsh_llm import LlmError
from dsh_llm_http.sse import EVENT_LIMIT_BYTES, EXCERPT_CHARS, Events, Framer

Seen = list[tuple[str, str]]


def events(reads: Sequence[bytes], content_type: str | None = None) -> Seen:
    framer = Framer(content_type)
    found = [each for read in reads for each in framer.feed(read)]
    found += framer.finish()
    return [(each.name, data.decode("utf-8", "replace")) for each in found for data in each.data]


def whole_and_bytewise(body: bytes) -> Seen:
    seen = events([body])
    assert events([bytes([byte]) for byte in body]) == seen
    return seen


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_L106_lines_end_with_lf_crlf_or_cr(end: str) -> None:
    body = f": hello{end}event: a{end}data: 1{end}data:2{end}{end}data: 3{end}{end}".encode()
    assert whole_and_bytewise(body) == [("a", "1\n2"), ("", "3")]


def test_L106_no_other_character_ends_a_line() -> None:
    text = "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g"
    assert whole_and_bytewise(f"data: {text}\n\n".encode()) == [("", text)]


def test_L105_bytes_are_utf8_and_one_mark_is_dropped() -> None:
    body = b"\xef\xbb\xbfdata: \xef\xbb\xbf\xe2\x82\n\n"
    assert whole_and_bytewise(body) == [("", "\ufeff\ufffd")]


def test_L107_other_fields_and_comments_are_no_events() -> None:
    body = b":\n\nid: 7\nretry: 10\nfoo\n\ndata\ndata: x\n: note\n\n"
    assert whole_and_bytewise(body) == [("", "\nx")]


def test_L108_an_unfinished_tail_and_blank_data_are_discarded() -> None:
    body = "data: \u2003 \n\ndata:\n\n\n\nevent: e\n\ndata: kept\n\ndata: cut".encode()
    assert whole_and_bytewise(body) == [("", "kept")]


def test_L109_an_event_over_the_limit_is_refused_without_waiting_for_its_end() -> None:
    framer = Framer()
    assert framer.feed(b"data: " + b"x" * (EVENT_LIMIT_BYTES - 6)) == []
    with pytest.raises(LlmError, match="larger than") as caught:
        framer.feed(b"x")
    assert caught.value.code == "MALFORMED_RESPONSE"


def test_L110_json_is_one_document_whatever_the_content_type() -> None:
    assert whole_and_bytewise(b' \n\t{"a":\n\n1}') == [("", '{"a":\n\n1}')]
    assert events([b"[1]"], "text/event-stream") == [("", "[1]")]


@pytest.mark.parametrize("body", [b"<html>", b"  data: x\n\n", b"hello", b"da", b"\xe2\x82"])
def test_L110_anything_else_is_malformed_and_names_the_content_type(body: bytes) -> None:
    for reads in ([body], [bytes([byte]) for byte in body]):
        with pytest.raises(LlmError, match="text/html") as caught:
            events(reads, "text/html")
        assert caught.value.code == "MALFORMED_RESPONSE"


@pytest.mark.parametrize("body", [b"", b" \r\n\t\n", "\ufeff \u3000".encode()])
def test_L110_a_blank_body_is_an_empty_stream(body: bytes) -> None:
    assert whole_and_bytewise(body) == []


@pytest.mark.parametrize(
    "body", [b"\n\ndata: x\n\n", b"id: 1\ndata: x\n\n", b"retry: 1\ndata: x\n\n"]
)
def test_L110_a_stream_may_begin_with_any_field(body: bytes) -> None:
    assert whole_and_bytewise(body) == [("", "x")]


def test_L112_excerpts_are_short() -> None:
    with pytest.raises(LlmError) as caught:
        events([b"<" + b"x" * 5000])
    assert len(caught.value.message) < EXCERPT_CHARS + 250


_line = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12)
_end = st.sampled_from(["\n", "\r\n", "\r"])


@given(
    lines=st.lists(st.lists(_line, min_size=1, max_size=3), max_size=5),
    end=_end,
    cuts=st.lists(st.integers(0, 400), max_size=12),
)
def test_L106_L107_any_way_of_cutting_gives_the_same_events(
    lines: list[list[str]], end: str, cuts: list[int]
) -> None:
    # One kind of line end for a body: a CR written before an LF would read as one line end.
    text = "".join("".join(f"data: {line}{end}" for line in event) + end for event in lines)
    body = (f": start{end}{text}").encode()
    edges = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    reads = [body[a:b] for a, b in pairwise(edges)]
    assert events(reads) == events([body])
    expected = ["\n".join(event) for event in lines]
    assert [data for _, data in events([body])] == [data for data in expected if not is_blank(data)]


_LINES = ["data: {}", "data: {1", "data:{}", "data: [DONE]", "data: \u2003", "data: ", "event: a"]
_LINES += ["event: b", "event:a", "event: ", "id: 1", ": note", "data", "", ""]


@given(lines=st.lists(st.sampled_from(_LINES), max_size=24), cuts=st.lists(st.integers(0, 200)))
def test_L107_events_that_are_alike_are_read_like_any_others(
    lines: list[str], cuts: list[int]
) -> None:
    body = "".join(f"{line}\n" for line in [": start", *lines, ""]).encode()
    edges = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    # A field that is not read makes any event an unusual one.
    unusual = body.replace(b"\n\n", b"\nid: 1\n\n")
    seen = events([body[a:b] for a, b in pairwise(edges)])
    assert seen == events([body]) == events([bytes([byte]) for byte in body]) == events([unusual])


def test_L107_events_of_one_read_come_together() -> None:
    framer = Framer()
    body = b"event: a\ndata: {}\n\n" * 3
    assert framer.feed(body) == [Events([b"{}"] * 3, "a")]
    assert framer.feed(body + b"id: 1\ndata: {}\n\n") == [
        *[Events([b"{}"], "a")] * 3,
        Events([b"{}"]),
    ]
