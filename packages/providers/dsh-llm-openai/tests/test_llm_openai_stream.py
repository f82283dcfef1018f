"""Payloads to chunks (L122-L135, L175)."""

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_llm import (
    BlockAssembler,
    ErrorFinish,
    LlmError,
    ReasoningDelta,
    StreamChunk,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCallDelta,
)
from dsh_llm_http import Events, StreamFinishes
from dsh_llm_openai.stream import ChunkTranslator

Payload = Mapping[str, Any]  # payloads as providers send them
DONE = Events([b"[DONE]"])


def frame(payload: object, event: str = "") -> Events:
    return Events([json.dumps(payload).encode()], event)


def delta(finish: str | None = None, **fields: object) -> Payload:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def taken(translator: ChunkTranslator, *events: Events) -> list[StreamChunk]:
    out: list[StreamChunk] = []
    for each in events:
        translator.events(each, out)
    return out


def chunks(*payloads: Payload, done: bool = True, document: bool = False) -> list[StreamChunk]:
    translator = ChunkTranslator(
        StreamFinishes("Service", lambda text: text.replace("sk-1", "[redacted]"))
    )
    data = [json.dumps(payload).encode() for payload in payloads]
    out = taken(translator, Events(data, document=document))
    if translator.finished:
        return out
    if done:
        return out + taken(translator, DONE)
    translator.end(out)
    return out


def folded(out: list[StreamChunk]) -> BlockAssembler:
    assembler = BlockAssembler()
    for chunk in out:
        assembler.push(chunk)
    return assembler


def kinds(out: list[StreamChunk]) -> list[str]:
    return [str(chunk.__struct_config__.tag) for chunk in out]


def texts(out: list[StreamChunk]) -> str:
    return "".join(chunk.text for chunk in out if isinstance(chunk, TextDelta))


def call(index: int | None = None, **fields: object) -> Mapping[str, object]:
    function = {name: fields.pop(name) for name in ("name", "arguments") if name in fields}
    return {**({} if index is None else {"index": index}), **fields, "function": function}


def calls(*fragments: Mapping[str, object]) -> list[tuple[str, str, str]]:
    out = chunks(*(delta(tool_calls=[fragment]) for fragment in fragments))
    return [
        (block.id, block.name, block.arguments)
        for block in folded(out).blocks()
        if isinstance(block, ToolCallBlock)
    ]


def failure(out: list[StreamChunk]) -> Any:  # the failure's fields are compared one by one
    finish = folded(out).finish
    assert isinstance(finish, ErrorFinish)
    return finish.failure


def test_L122_empty_fields_and_other_choices_open_nothing() -> None:
    out = chunks(
        {"choices": None},
        {"choices": []},
        {"choices": [{"delta": None}]},
        delta(content="", reasoning_content=None, reasoning="", tool_calls=None),
        {"choices": [{"index": 1, "delta": {"content": "other"}}]},
        {"choices": [{"delta": {"content": "own"}}]},
    )
    assert kinds(out) == ["block-start", "text-delta", "block-end", "finish"]


def test_L123_reasoning_then_text_then_calls_and_one_block_each() -> None:
    out = chunks(
        delta(content="a", reasoning_content="r", reasoning="no", tool_calls=[call(0, id="c")]),
        delta(reasoning="s", content="b", refusal="c"),
    )
    opened = [kind for kind in kinds(out)[:6] if kind != "block-start"]
    assert opened == ["reasoning-delta", "text-delta", "tool-call-delta"]
    assert [chunk.text for chunk in out if isinstance(chunk, ReasoningDelta)] == ["r", "s"]
    assert [chunk.text for chunk in out if isinstance(chunk, TextDelta)] == ["a", "bc"]


def test_L124_ends_come_together_in_opening_order_then_usage_then_finish() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    out = chunks(delta(content="a"), {**delta(reasoning="r"), "usage": usage})
    assert kinds(out)[-4:] == ["block-end", "block-end", "usage", "finish"]
    assert [getattr(chunk, "index", None) for chunk in out[-4:-2]] == [0, 1]


@given(
    text=st.text(st.characters(codec="utf-8"), min_size=1),
    cuts=st.lists(st.integers(0, 60), max_size=8),
    lone=st.sampled_from(["", "\ud83d", "\ude00"]),
)
def test_L125_deltas_concatenate_to_the_block_however_pairs_are_cut(
    text: str, cuts: list[int], lone: str
) -> None:
    units = [
        unit.decode("utf-16-be", "surrogatepass")
        for char in text
        for raw in [char.encode("utf-16-be")]
        for unit in [raw[i : i + 2] for i in range(0, len(raw), 2)]
    ] + [lone]
    edges = sorted({0, len(units), *(cut for cut in cuts if cut < len(units))})
    pieces = ["".join(units[a:b]) for a, b in pairwise(edges)]
    out = chunks(*(delta(content=piece) for piece in pieces))
    expected = text + ("\ufffd" if lone else "")
    assert texts(out) == expected
    assert [getattr(block, "text", None) for block in folded(out).blocks()] == [expected]
    for chunk in out:
        str(getattr(chunk, "text", "")).encode()


def test_L126_an_index_continues_its_call_unless_another_id_comes_with_a_name() -> None:
    assert calls(
        call(0, id="a", name="f", arguments="1"),
        call(0, id="a", name="f", arguments="2"),
        call(0, id="x", arguments="3"),
        call(0, id="b", name="g", arguments="4"),
        call(0, arguments="5"),
        call(0, id="a", name="f", arguments="6"),
    ) == [("a", "f", "1236"), ("b", "g", "45")]


def test_L126_without_index_the_id_a_new_name_or_the_latest_call_decide() -> None:
    assert calls(
        call(id="a", name="f", arguments="1"),
        call(id="b", name="g", arguments="2"),
        call(arguments="3"),
        call(id="a", arguments="4"),
        call(arguments="5"),
    ) == [("a", "f", "145"), ("b", "g", "23")]
    found = calls(call(name="f", arguments="1"), call(name="f", arguments="2"), call(arguments="3"))
    assert [entry[1:] for entry in found] == [("f", "1"), ("f", "23")]
    assert len({entry[0] for entry in found}) == 2


def test_L127_the_first_id_and_the_latest_name_count() -> None:
    assert calls(
        call(0, id="a", name="f"), call(0, id="", name=None, arguments="1"), call(0, name="g")
    ) == [("a", "g", "1")]
    generated = calls(call(0, name="f"), call(0, id="late", arguments="1"))
    assert generated[0][0] not in ("", "late")


def test_L127_L128_every_delta_carries_the_id_and_the_known_name() -> None:
    out = chunks(
        delta(tool_calls=[call(0, id="a")]),
        delta(tool_calls=[call(0, arguments="")]),
        delta(tool_calls=[call(0, name="f")]),
        delta(tool_calls=[call(0, name="f")]),
        delta(tool_calls=[call(0, arguments="{}")]),
    )
    seen = [
        (chunk.id, chunk.name, chunk.arguments_delta)
        for chunk in out
        if isinstance(chunk, ToolCallDelta)
    ]
    assert seen == [("a", None, ""), ("a", "f", ""), ("a", "f", "{}")]


def test_L128_object_arguments_become_compact_text() -> None:
    assert calls(call(0, id="a", name="f", arguments={"ü": [1, 2.5], "b": None})) == [
        ("a", "f", '{"ü":[1,2.5],"b":null}')
    ]


def test_L129_legacy_function_calls_are_one_call() -> None:
    out = chunks(
        delta(function_call={"name": "f", "arguments": "{"}),
        delta("function_call", function_call={"arguments": "}"}),
    )
    block = folded(out).blocks()[0]
    assert isinstance(block, ToolCallBlock)
    assert (block.name, block.arguments) == ("f", "{}")
    assert folded(out).finish.kind == "tool-calls"


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        *((word, "stop") for word in ("stop", "eos", "eos_token", "stop_sequence", "end_turn")),
        *((word, "tool-calls") for word in ("tool_calls", "function_call", "tool_use")),
        *((word, "max-tokens") for word in ("length", "max_tokens", "model_length")),
    ],
)
def test_L130_finish_words(word: str, kind: str) -> None:
    out = chunks(delta(content="x"), delta("wrong"), delta(word), delta(None), delta(""))
    assert folded(out).finish.kind == kind


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("content_filter", "CONTENT_FILTER"),
        ("network_error", "TRANSPORT"),
        ("connection_error", "TRANSPORT"),
        ("timeout", "TIMEOUT"),
        ("server_error", "SERVER"),
        ("overloaded", "SERVER"),
        ("rate_limit", "RATE_LIMIT"),
    ],
)
def test_L130_L175_other_words_are_errors(word: str, code: str) -> None:
    found = failure(chunks(delta(word, content="x")))
    assert found.code == code
    assert word in found.message


def test_L41_a_response_without_a_block_is_an_error_unless_cut_or_calling() -> None:
    assert failure(chunks(delta("stop"))).code == "EMPTY_RESPONSE"
    assert failure(chunks()).code == "EMPTY_RESPONSE"
    assert folded(chunks(delta("length"))).finish.kind == "max-tokens"
    assert folded(chunks(delta("tool_calls"))).finish.kind == "tool-calls"
    assert folded(chunks(delta("stop", content=" "))).finish.kind == "stop"
    assert folded(chunks(delta("stop", reasoning="r"))).finish.kind == "stop"


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ({"prompt_tokens": 5}, TokenUsage(5, 0)),
        ({"completion_tokens": 0}, TokenUsage(0, 0)),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 4,
                "total_tokens": 14,
                "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 2},
                "completion_tokens_details": {"reasoning_tokens": 1},
            },
            TokenUsage(5, 4, 14, 3, 2, 1),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 4, "prompt_cache_hit_tokens": 0},
            TokenUsage(10, 4, 14, 0),
        ),
        (
            {"prompt_tokens": 2, "completion_tokens": 4, "prompt_cache_hit_tokens": 3},
            TokenUsage(0, 4, None, 3),
        ),
        (
            {"prompt_tokens": 2, "completion_tokens": 4, "total_tokens": 7},
            TokenUsage(2, 4),
        ),
        ({"prompt_tokens": 2, "completion_tokens": "4", "x": {}}, TokenUsage(2, 0)),
    ],
)
def test_L131_usage(reported: Payload, expected: TokenUsage) -> None:
    assert folded(chunks({"choices": [], "usage": reported})).usage == expected


def test_L131_the_last_usable_report_counts_wherever_it_stands() -> None:
    first = {"prompt_tokens": 1, "completion_tokens": 1}
    second = {"prompt_tokens": 2, "completion_tokens": 2}
    out = chunks(
        {"choices": [], "usage": first},
        {"choices": [{"index": 0, "delta": {"content": "x"}, "usage": second}]},
        {"choices": [], "usage": None},
        {"choices": [], "usage": {}},
    )
    assert folded(out).usage == TokenUsage(2, 2, 4)
    assert kinds(out).count("usage") == 1


def test_L132_a_clean_end_needs_a_finish_reason() -> None:
    assert folded(chunks(delta("stop", content="x"), done=False)).finish.kind == "stop"
    with pytest.raises(LlmError) as caught:
        chunks(delta(content="x"), done=False)
    assert caught.value.code == "STREAM_CLOSED"


def test_L111_nothing_after_the_end_mark_is_looked_at() -> None:
    translator = ChunkTranslator(StreamFinishes("Service", str))
    taken(translator, frame(delta(content="x")), Events([b" [DONE] "]))
    assert translator.finished


@pytest.mark.parametrize(
    ("payload", "event"),
    [
        ({"error": {"message": "no sk-1", "code": 1}}, ""),
        ({"error": "no sk-1"}, ""),
        ({"object": "error", "message": "no sk-1"}, ""),
        ({"message": "no sk-1", **delta(content="ignored")}, "error"),
    ],
)
def test_L133_L104_a_provider_error_ends_the_stream(payload: Payload, event: str) -> None:
    translator = ChunkTranslator(
        StreamFinishes("Service", lambda text: text.replace("sk-1", "[redacted]"))
    )
    out = taken(translator, frame(delta(content="x")))
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    out += taken(translator, frame({**payload, "usage": usage, "request_id": "r1"}, event))
    assert translator.finished
    assert kinds(out) == ["block-start", "text-delta", "usage", "finish"]
    assert failure(out).message == "no [redacted]"
    assert failure(out).request_id == "r1"


@pytest.mark.parametrize("error", [None, {}, "", [], 0])
def test_L133_an_empty_error_is_none(error: object) -> None:
    assert folded(chunks({**delta("stop", content="x"), "error": error})).finish.kind == "stop"


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        ({"status": 503, "message": "m"}, "SERVER", 503),
        ({"code": "429", "message": "m"}, "RATE_LIMIT", 429),
        ({"code": 400, "message": "maximum context length is 5"}, "CONTEXT_WINDOW_EXCEEDED", 400),
        ({"code": "insufficient_quota", "message": "m"}, "QUOTA", None),
        ({"message": "prompt is too long"}, "CONTEXT_WINDOW_EXCEEDED", None),
        ({"type": "authentication_error", "message": "m"}, "AUTH", None),
        ({"type": "rate_limit_error", "message": "m"}, "RATE_LIMIT", None),
        ({"code": "request_timeout", "message": "m"}, "TIMEOUT", None),
        ({"type": "overloaded_error", "message": "m"}, "SERVER", None),
        ({"type": "invalid_request_error", "message": "m"}, "INVALID_REQUEST", None),
        ({"code": 17, "message": "m"}, "PROVIDER_ERROR", None),
    ],
)
def test_L134_codes_of_errors_in_a_stream(error: Payload, code: str, status: int | None) -> None:
    found = failure(chunks({"error": error}))
    assert (found.code, found.status) == (code, status)


@pytest.mark.parametrize(
    "payload",
    [
        b"[1]",
        b"{",
        b"12",
        b'{"choices": {}}',
        b'{"choices": [1]}',
        b'{"choices": [{"delta": []}]}',
        b'{"choices": [{"delta": {"tool_calls": {}}}]}',
        b'{"choices": [{"delta": {"tool_calls": ["x"]}}]}',
        b'{"choices": [{"delta": {"tool_calls": [{"function": {"arguments": {"a": 1e400}}}]}}]}',
    ],
)
def test_L112_malformed_payloads(payload: bytes) -> None:
    with pytest.raises(LlmError) as caught:
        taken(ChunkTranslator(StreamFinishes("Service", str)), Events([payload]))
    assert caught.value.code == "MALFORMED_RESPONSE"


def test_L112_wrong_scalars_and_malformed_utf8_are_no_fault() -> None:
    translator = ChunkTranslator(StreamFinishes("Service", str))
    data = b'{"choices":[{"index":0,"delta":{"content":"a\xff\\ud83d","reasoning":5}}],"usage":7}'
    out = taken(translator, Events([data]), DONE)
    assert texts(out) == "a\ufffd\ufffd"


def test_L135_a_document_is_one_payload_and_the_end_mark() -> None:
    message = {"content": "hi", "tool_calls": [call(id="a", name="f", arguments="{}")]}
    document = {
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    out = chunks(document, document=True)
    assert folded(out).finish.kind == "tool-calls"
    assert [block.type for block in folded(out).blocks()] == ["text", "tool-call"]
    translator = ChunkTranslator(StreamFinishes("Service", str))
    wrapped = Events([json.dumps([document]).encode()], document=True)
    assert kinds(taken(translator, wrapped)) == kinds(out)


def test_L135_L133_a_document_may_be_an_error() -> None:
    assert failure(chunks({"error": {"code": 503, "message": "down"}}, document=True)).status == 503


def attempted(payload: object) -> tuple[list[StreamChunk], str | None]:
    translator = ChunkTranslator(StreamFinishes("Service", str))
    try:
        out = taken(translator, frame(payload))
        if not translator.finished:
            out += taken(translator, DONE)
    except LlmError as error:
        return [], error.code
    return out, None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "delta",
                        "index",
                        "content",
                        "reasoning",
                        "tool_calls",
                        "function",
                        "name",
                        "arguments",
                        "id",
                        "finish_reason",
                        "usage",
                        "prompt_tokens",
                        "completion_tokens",
                        "error",
                        "object",
                        "code",
                    ]
                ),
                inner,
                max_size=5,
            )
        ),
        max_leaves=12,
    )
)
def test_L37_any_json_gives_well_formed_chunks_or_one_known_error(payload: object) -> None:
    out, code = attempted(payload)
    if code is not None:
        assert code == "MALFORMED_RESPONSE"
        return
    seen = kinds(out)
    assert seen[-1] == "finish"
    assert seen.count("finish") == 1
    assert seen.count("usage") <= 1
    folded(out).blocks()
