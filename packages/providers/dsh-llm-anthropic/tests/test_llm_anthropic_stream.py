"""Messages streams to chunks, over the real HTTP path, whole and one byte per read (L145-L152)."""

import json
from collections.abc import Sequence
from contextlib import aclosing

import anyio
import pytest

from dsh_brand import to_json
from dsh_llm import (
    BlockAssembler,
    BlockEnd,
    BlockStart,
    ErrorFinish,
    FinishChunk,
    FinishReason,
    GenerateOptions,
    LlmError,
    MaxTokensFinish,
    ReasoningBlock,
    ReasoningDelta,
    ReplayEnvelope,
    StopFinish,
    StreamChunk,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCallDelta,
    ToolCallsFinish,
    UsageChunk,
    create_user_message,
)
from dsh_llm_anthropic import AnthropicAdapter
from dsh_llm_scripted import (
    Call,
    MockServer,
    Reply,
    block_delta,
    block_start,
    block_stop,
    bytewise,
    json_reply,
    message_closing,
    message_event,
    message_opening,
    message_text_events,
    message_text_reply,
    message_tool_reply,
    raw_reply,
    stream_reply,
    thinking_events,
)

OPTIONS = GenerateOptions(provider="x", model="m", messages=[create_user_message("hi")])


async def served(reply: Reply) -> list[StreamChunk]:
    async with MockServer(reply) as server:
        adapter = AnthropicAdapter({"x": {"base_url": server.base_url, "name": "Mock"}})
        try:
            with anyio.fail_after(5):
                async with aclosing(adapter.stream(OPTIONS)) as stream:
                    return [chunk async for chunk in stream]
        finally:
            await adapter.aclose()


async def both(*events: bytes) -> list[StreamChunk]:
    """The chunks, the same ones however the body is cut."""
    reply = stream_reply(events)
    chunks = await served(reply)
    cut = await served(bytewise(reply))
    assert [_without_id(chunk) for chunk in cut] == [_without_id(chunk) for chunk in chunks]
    return chunks


def _without_id(chunk: StreamChunk) -> object:
    value = to_json(chunk)
    assert isinstance(value, dict)
    return {key: item for key, item in value.items() if key not in ("id", "block")}


def reason(chunks: Sequence[StreamChunk]) -> FinishReason:
    last = chunks[-1]
    assert isinstance(last, FinishChunk)
    return last.reason


def failure(chunks: Sequence[StreamChunk]) -> tuple[str, str]:
    finish = reason(chunks)
    assert isinstance(finish, ErrorFinish)
    return finish.failure.code, finish.failure.message


async def failing(reply: Reply) -> LlmError:
    with pytest.raises(LlmError) as caught:
        await served(reply)
    return caught.value


def state(chunks: Sequence[StreamChunk]) -> ReplayEnvelope | None:
    last = chunks[-1]
    assert isinstance(last, FinishChunk)
    return last.replay_state


async def test_L146_L149_a_thinking_answer_with_text() -> None:
    reply = message_text_reply("Hello there", reasoning=["Greet", " back."])
    assert (
        await served(reply)
        == await served(bytewise(reply))
        == [
            BlockStart(0, "reasoning"),
            ReasoningDelta(0, "Greet"),
            ReasoningDelta(0, " back."),
            BlockEnd(0, ReasoningBlock("Greet back.")),
            BlockStart(1, "text"),
            TextDelta(1, "Hello "),
            TextDelta(1, "there"),
            BlockEnd(1, TextBlock("Hello there")),
            UsageChunk(TokenUsage(12, 7, 19)),
            FinishChunk(
                StopFinish(),
                ReplayEnvelope(
                    {
                        "kind": "anthropic",
                        "version": 1,
                        "id": "msg_mock",
                        "model": "mock",
                        "stopReason": "end_turn",
                    },
                    (
                        {"type": "reasoning", "signature": "c2lnbmVk"},
                        {"type": "text"},
                    ),
                ),
            ),
        ]
    )


async def test_L146_a_tool_call_announces_itself_with_an_empty_delta() -> None:
    chunks = await served(message_tool_reply(Call("read", {"a": 1}, "toolu_9")))
    deltas = [chunk for chunk in chunks if isinstance(chunk, ToolCallDelta)]
    assert [(d.id, d.name, d.arguments_delta) for d in deltas] == [
        ("toolu_9", "read", ""),
        ("toolu_9", "read", '{"a'),
        ("toolu_9", "read", '":1}'),
    ]
    assert chunks[0] == BlockStart(0, "tool-call")
    assert reason(chunks) == ToolCallsFinish()


async def test_L145_unknown_things_are_ignored_and_the_event_name_is_a_last_resort() -> None:
    chunks = await both(
        message_opening(),
        message_event("ping"),
        message_event("later_invention", delta=5),
        block_start(0, {"type": "server_tool_use", "id": "s", "name": "web"}),
        block_delta(0, "input_json_delta", partial_json="{}"),
        block_stop(0),
        block_start(1, {"type": "text", "text": ""}),
        block_delta(1, "citations_delta", citation={}),
        b'event: content_block_delta\ndata: {"index":1,"delta":{"type":"text_delta","text":"a"}}\n\n',
        block_stop(1),
        *message_closing("end_turn"),
    )
    assert chunks[:3] == [BlockStart(0, "text"), TextDelta(0, "a"), BlockEnd(0, TextBlock("a"))]


async def test_L145_an_error_event_without_type_is_an_error() -> None:
    chunks = await both(message_opening(), b'event: error\ndata: {"message":"down"}\n\n')
    assert failure(chunks) == ("PROVIDER_ERROR", "down")


async def test_L146_text_opens_at_its_first_text_and_indexes_follow_the_opening() -> None:
    chunks = await both(
        message_opening(),
        block_start(0, {"type": "text", "text": ""}),
        block_start(1, {"type": "redacted_thinking", "data": "xyz"}),
        block_start(2, {"type": "text", "text": "now"}),
        block_delta(0, "text_delta", text="late"),
        *message_closing("end_turn"),
    )
    assert [c for c in chunks if isinstance(c, BlockStart | BlockEnd)] == [
        BlockStart(0, "reasoning"),
        BlockStart(1, "text"),
        BlockStart(2, "text"),
        BlockEnd(0, ReasoningBlock("")),
        BlockEnd(1, TextBlock("now")),
        BlockEnd(2, TextBlock("late")),
    ]
    kept = state(chunks)
    assert kept is not None
    assert kept.blocks == (
        {"type": "reasoning", "redactedData": "xyz"},
        {"type": "text"},
        {"type": "text"},
    )


async def test_a_text_block_without_text_opens_nothing() -> None:
    chunks = await both(message_opening(), *message_text_events([]), *message_closing("end_turn"))
    assert failure(chunks)[0] == "EMPTY_RESPONSE"
    assert state(chunks) is None


@pytest.mark.parametrize(
    ("given", "sent"), [({}, "{}"), ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'), (None, "{}")]
)
async def test_L148_a_call_without_argument_text_has_the_input_of_its_start(
    given: object, sent: str
) -> None:
    start = {"type": "tool_use", "id": "t", "name": "f", "input": given}
    chunks = await both(
        message_opening(), block_start(0, start), block_stop(0), *message_closing("tool_use")
    )
    assert [c.arguments_delta for c in chunks if isinstance(c, ToolCallDelta)] == ["", sent]
    assert BlockEnd(0, ToolCallBlock("t", "f", sent)) in chunks  # type: ignore[arg-type]  # a branded id


async def test_call_ids_are_given_and_distinct() -> None:
    events = []
    for index, given in enumerate(["a", "a", ""]):
        start = {"type": "tool_use", "id": given, "name": "f", "input": {}}
        events += [block_start(index, start), block_stop(index)]
    chunks = await served(stream_reply([message_opening(), *events, *message_closing("tool_use")]))
    ids = [
        c.block.id for c in chunks if isinstance(c, BlockEnd) and isinstance(c.block, ToolCallBlock)
    ]
    assert ids[0] == "a"
    assert len(set(ids)) == 3
    assert all(ids)


async def test_L125_a_character_split_over_two_payloads_is_joined() -> None:
    halves = [block_delta(0, "text_delta", text="x") for _ in range(2)]
    first = halves[0].replace(b'"x"', b'"a\\ud83d"')
    second = halves[1].replace(b'"x"', b'"\\ude00b\\ud83d"')
    start = block_start(0, {"type": "text", "text": ""})
    chunks = await both(
        message_opening(), start, first, second, block_stop(0), *message_closing("end_turn")
    )
    texts = [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)]
    assert texts == ["a", "😀b", "\ufffd"]
    assert BlockEnd(0, TextBlock("a😀b\ufffd")) in chunks


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ({"input_tokens": 5}, {"output_tokens": 3}, TokenUsage(5, 3, 8)),
        (
            {"input_tokens": 5, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 0},
            {
                "input_tokens": None,
                "output_tokens": 3,
                "output_tokens_details": {"thinking_tokens": 2},
            },
            TokenUsage(5, 3, 15, 7, 0, 2),
        ),
        ({"input_tokens": 5}, {"input_tokens": 6, "output_tokens": 4}, TokenUsage(6, 4, 10)),
        ({"input_tokens": "5"}, {"output_tokens": 4}, TokenUsage(0, 4)),
    ],
)
async def test_L150_usage_takes_every_count_that_is_given(
    first: dict[str, object], last: dict[str, object], expected: TokenUsage
) -> None:
    message = message_event("message_start", message={"usage": first})
    ending = message_event("message_delta", delta={"stop_reason": "end_turn"}, usage=last)
    chunks = await both(message, *message_text_events("a"), ending, message_event("message_stop"))
    assert [c.usage for c in chunks if isinstance(c, UsageChunk)] == [expected]


@pytest.mark.parametrize(
    ("word", "content", "expected"),
    [
        ("end_turn", True, "stop"),
        ("stop_sequence", True, "stop"),
        ("pause_turn", True, "stop"),
        (None, True, "stop"),
        ("pause_turn", False, "EMPTY_RESPONSE"),
        ("tool_use", False, "tool-calls"),
        ("max_tokens", False, "max-tokens"),
        ("model_context_window_exceeded", True, "max-tokens"),
        ("model_context_window_exceeded", False, "CONTEXT_WINDOW_EXCEEDED"),
        ("refusal", True, "REFUSAL"),
        ("overloaded", True, "SERVER"),
        ("odd", True, "ODD"),
    ],
)
async def test_L151_stop_reasons(word: str | None, content: bool, expected: str) -> None:
    delta = {"stop_reason": word, "stop_details": {"explanation": "not allowed"}}
    chunks = await both(
        message_opening(),
        *(message_text_events("a") if content else []),
        message_event("message_delta", delta=delta, usage={}),
        message_event("message_stop"),
    )
    finish = reason(chunks)
    if isinstance(finish, ErrorFinish):
        assert finish.failure.code == expected
        assert (expected == "REFUSAL") == ("not allowed" in finish.failure.message)
        assert state(chunks) is None
    else:
        assert finish.kind == expected
        assert state(chunks) is not None


async def test_L152_a_clean_end_after_a_stop_reason_completes() -> None:
    events = [message_opening(), *message_text_events("a")[:-1], message_closing("end_turn")[0]]
    chunks = await both(*events)
    assert chunks[-3] == BlockEnd(0, TextBlock("a"))
    assert reason(chunks) == StopFinish()


@pytest.mark.parametrize("events", [[], [message_opening(), *message_text_events("a")]])
async def test_L152_a_clean_end_without_one_is_a_closed_stream(events: list[bytes]) -> None:
    assert (await failing(stream_reply(events))).code == "STREAM_CLOSED"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, "SERVER"),
        ({"type": "api_error", "message": "x"}, "SERVER"),
        ({"type": "rate_limit_error", "message": "x"}, "RATE_LIMIT"),
        ({"type": "authentication_error", "message": "x"}, "AUTH"),
        ({"type": "permission_error", "message": "x"}, "AUTH"),
        ({"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}, "CONTEXT_WINDOW_EXCEEDED"),
        ({"type": "invalid_request_error", "message": "x"}, "INVALID_REQUEST"),
        ({"type": "request_too_large", "message": "x"}, "INVALID_REQUEST"),
        ({"type": "billing_error", "message": "x"}, "QUOTA"),
        ({"type": "not_found_error", "message": "x"}, "PROVIDER_ERROR"),
    ],
)  # fmt: skip
async def test_L133_L134_L152_errors_inside_the_stream(error: dict[str, str], code: str) -> None:
    fault = message_event("error", error=error, request_id="req_1")
    chunks = await both(message_opening(), *message_text_events("a")[:-1], fault)
    assert failure(chunks) == (code, error["message"])
    assert chunks[-2] == UsageChunk(TokenUsage(12, 1, 13))
    finish = reason(chunks)
    assert isinstance(finish, ErrorFinish)
    assert finish.failure.request_id == "req_1"


@pytest.mark.parametrize(
    "data",
    [b"nonsense", b"[1]", b'"a"', b'{"type":"content_block_delta","delta":[]}',
     b'{"type":"content_block_start","content_block":7}', b'{"type":"message_start","message":""}',
     b'{"type":"content_block_start","content_block":{"type":"tool_use","id":7,"input":{"a":1e400}}}'],
)  # fmt: skip
async def test_L112_malformed_payloads(data: bytes) -> None:
    error = await failing(raw_reply([message_opening(), b"data: " + data + b"\n\n"]))
    assert error.code == "MALFORMED_RESPONSE"


@pytest.mark.parametrize("given", ['{"a":18014398509481984}', '{"a":1e400}'])
async def test_numbers_of_a_given_input_stay_as_they_are(given: str) -> None:
    started = (
        b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
        b'"content_block":{"type":"tool_use","id":"t","name":"x","input":'
        + given.encode()
        + b"}}\n\n"
    )
    chunks = await both(message_opening(), started, block_stop(0), *message_closing("tool_use"))
    [end] = [chunk for chunk in chunks if isinstance(chunk, BlockEnd)]
    assert isinstance(end.block, ToolCallBlock)
    assert end.block.arguments == given


async def test_L112_a_wrong_scalar_counts_as_absent() -> None:
    odd = (
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":7}}\n\n'
    )
    start, *rest = message_text_events("a")
    chunks = await both(message_opening(), start, odd, *rest, *message_closing("end_turn"))
    assert BlockEnd(0, TextBlock("a")) in chunks


async def test_L110_L135_a_whole_message_instead_of_a_stream() -> None:
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "hello"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
    ]
    document = {
        "type": "message",
        "id": "msg_1",
        "model": "mock",
        "content": content,
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    chunks = await served(json_reply(document))
    assembler = BlockAssembler()
    for chunk in chunks:
        assembler.push(chunk)
    assert [json.loads(json.dumps(to_json(block))) for block in assembler.blocks()] == [
        {"type": "reasoning", "text": "hm"},
        {"type": "text", "text": "hello"},
        {"type": "tool-call", "id": "t", "name": "f", "arguments": '{"a":1}'},
    ]
    assert assembler.replay_state is not None
    assert assembler.usage == TokenUsage(1, 2, 3)


async def test_L76_calls_cut_by_the_limit_leave_with_their_replay_entries() -> None:
    reply = message_tool_reply(Call("f", {"a": 1}), text="a", stop_reason="max_tokens")
    assembler = BlockAssembler()
    for chunk in await served(reply):
        assembler.push(chunk)
    assert assembler.blocks() == (TextBlock("a"),)
    assert assembler.finish == MaxTokensFinish()
    assert assembler.replay_state is not None
    assert assembler.replay_state.blocks == ({"type": "text"},)


async def test_thinking_without_a_signature_is_remembered_as_such() -> None:
    chunks = await both(
        message_opening(), *thinking_events("a", signature=""), *message_closing("end_turn")
    )
    kept = state(chunks)
    assert kept is not None
    assert kept.blocks == ({"type": "reasoning"},)


async def test_deltas_that_do_not_fit_their_block_are_ignored() -> None:
    chunks = await both(
        message_opening(),
        block_delta(4, "input_json_delta", partial_json="{}"),
        block_start(0, {"type": "thinking", "thinking": ""}),
        block_delta(0, "text_delta", text="wrong"),
        block_delta(7, "text_delta", text="unannounced"),
        *message_closing("end_turn"),
    )
    assert [c for c in chunks if isinstance(c, BlockEnd)] == [
        BlockEnd(0, ReasoningBlock("")),
        BlockEnd(1, TextBlock("unannounced")),
    ]
