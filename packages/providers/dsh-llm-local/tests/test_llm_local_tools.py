"""Tool calls by replies of a fixed form: what is sent, and how replies become chunks."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_llm import (
    BlockEnd,
    CallId,
    FinishChunk,
    GenerateOptions,
    ModelSource,
    ReasoningBlock,
    StreamChunk,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolSchema,
    create_assistant_message,
    create_system_message,
    create_tool_result_message,
    create_user_message,
)
from dsh_llm.testing import check_stream
from dsh_llm_http import Events, StreamFinishes
from dsh_llm_local import Config, LocalAdapter
from dsh_llm_local.protocol import in_reply_form, reply_format
from dsh_llm_local.replies import ReplyTranslator
from dsh_llm_openai.stream import ChunkTranslator
from dsh_llm_scripted import MockServer, text_reply

GLOB = ToolSchema(
    "glob",
    "Lists files.",
    {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "pattern": "^a", "maxLength": 9},
            "kind": {"$ref": "#/$defs/Kind"},
        },
        "required": ["pattern"],
        "$defs": {"Kind": {"enum": ["file", "folder"]}},
    },
)


def frames(pieces: list[str], finish: str = "stop") -> list[Events]:
    deltas = [{"delta": {"content": piece}} for piece in pieces]
    choices = [*deltas, {"delta": {}, "finish_reason": finish}]
    return [Events([json.dumps({"choices": [c]}).encode()]) for c in choices] + [
        Events([b"[DONE]"])
    ]


def taken(translator: ReplyTranslator, events: Events) -> list[StreamChunk]:
    out: list[StreamChunk] = []
    translator.events(events, out)
    return out


def translated(pieces: list[str], finish: str = "stop") -> list[StreamChunk]:
    translator = ReplyTranslator(ChunkTranslator(StreamFinishes("x", str)))
    chunks = [chunk for frame in frames(pieces, finish) for chunk in taken(translator, frame)]
    assert translator.finished
    check_stream(chunks)
    return chunks


def blocks(chunks: list[StreamChunk]) -> list[Any]:
    return [chunk.block for chunk in chunks if isinstance(chunk, BlockEnd)]


def kind(chunks: list[StreamChunk]) -> str:
    last = chunks[-1]
    assert isinstance(last, FinishChunk)
    return last.reason.kind


@given(text=st.text(), data=st.data(), ascii_only=st.booleans())
def test_an_answer_streams_whatever_it_holds_and_however_it_is_cut(
    text: str, data: st.DataObject, ascii_only: bool
) -> None:
    reply = json.dumps({"answer": text}, ensure_ascii=ascii_only)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(reply)), max_size=8)))
    pieces = [reply[a:b] for a, b in zip([0, *cuts], [*cuts, len(reply)], strict=True)]
    chunks = translated(pieces)
    assert blocks(chunks) == [TextBlock(text)]
    assert "".join(c.text for c in chunks if isinstance(c, TextDelta)) == text
    assert kind(chunks) == "stop"


def test_an_answer_comes_as_it_grows() -> None:
    translator = ReplyTranslator(ChunkTranslator(StreamFinishes("x", str)))
    texts = []
    for frame in frames(['{ "ans', 'wer": "One', " two\\", "n", 'three" }']):
        chunks = taken(translator, frame)
        texts.append("".join(c.text for c in chunks if isinstance(c, TextDelta)))
    assert texts == ["", "One", " two", "\n", "three", "", ""]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_call_becomes_an_ordinary_call(size: int) -> None:
    reply = '{\n "tool": "glob",\n "arguments": {"pattern": "*.pÿ", "n": 1.0}\n}'
    chunks = translated([reply[i : i + size] for i in range(0, len(reply), size)])
    [call] = blocks(chunks)
    assert isinstance(call, ToolCallBlock)
    assert (call.name, call.arguments) == ("glob", '{"pattern":"*.pÿ","n":1}')
    assert call.id.startswith("call_")
    assert kind(chunks) == "tool-calls"


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        pytest.param('{"tool": "glob", "arguments": {"pat', "tool-call", id="in the arguments"),
        pytest.param('{"tool": "gl', None, id="in the name"),
        pytest.param('{"answer": "Half an ans', "text", id="in an answer"),
        pytest.param('{"an', None, id="before it says what it is"),
    ],
)
def test_L76_a_reply_that_the_limit_cuts_is_cut_as_what_it_was(
    reply: str, expected: str | None
) -> None:
    chunks = translated([reply], "length")
    assert [block.type for block in blocks(chunks)] == ([expected] if expected else [])
    assert kind(chunks) == "max-tokens"


@pytest.mark.parametrize(
    "reply", ["Plain words.", "[1]", '{"tool": 5, "arguments": {}}', '{"tool": "x"}', "x" * 500]
)
def test_a_reply_without_the_form_is_text(reply: str) -> None:
    chunks = translated(list(reply))
    assert blocks(chunks) == [TextBlock(reply)]
    assert kind(chunks) == "stop"


def test_the_form_holds_each_tool_with_its_own_definitions() -> None:
    schema: Any = reply_format([GLOB])["json_schema"]["schema"]  # type: ignore[index, call-overload]  # JSON, looked into
    answer, call = schema["anyOf"]
    assert list(answer["properties"]) == ["answer"]
    assert call["properties"]["tool"] == {"const": "glob"}
    assert call["properties"]["arguments"] == {"$ref": "#/$defs/tool0"}
    assert schema["$defs"]["tool0"]["properties"] == {
        "pattern": {"type": "string"},
        "kind": {"$ref": "#/$defs/tool0/$defs/Kind"},
    }


def history(unreadable: str = "{") -> GenerateOptions:
    source = ModelSource(provider="local", model="m")
    call = ToolCallBlock(CallId("c1"), "glob", '{"pattern":"*"}')
    bad = ToolCallBlock(CallId("c2"), "read", unreadable)
    return GenerateOptions(
        provider="local",
        model="m",
        tools=[GLOB],
        messages=[
            create_system_message("Be brief."),
            create_user_message("Which files?"),
            create_assistant_message([ReasoningBlock("hm"), TextBlock("Look."), call, bad], source),
            create_tool_result_message(CallId("c1"), [TextBlock("a.py")], False),
            create_tool_result_message(CallId("c2"), [TextBlock("no such file")], True),
            create_assistant_message([TextBlock("Only a.py.")], source),
            create_user_message("Thanks."),
        ],
    )


@pytest.mark.parametrize("unreadable", ["{", '{"at":1e400}'])
async def test_history_and_tools_are_told_in_the_form_of_replies(unreadable: str) -> None:
    async with MockServer([text_reply('{"answer": "Yes."}')]) as server:
        adapter = LocalAdapter(server.base_url, Path("small.gguf"), Config(tools=True))
        with anyio.fail_after(5):
            chunks = [chunk async for chunk in adapter.stream(history(unreadable))]
        await adapter.aclose()
    assert blocks(chunks) == [TextBlock("Yes.")]
    [request] = server.requests
    body: Any = request.body
    assert body is not None
    assert "tools" not in body
    assert body["response_format"] == reply_format([GLOB])
    system, *rest = body["messages"]
    assert system["content"].startswith("Reply with one JSON object")
    assert system["content"].endswith("\n\nBe brief.")
    assert "- glob: Lists files." in system["content"]
    assert [(message["role"], message["content"]) for message in rest] == [
        ("user", "Which files?"),
        (
            "assistant",
            '{"answer":"Look."}\n{"tool":"glob","arguments":{"pattern":"*"}}\n'
            '{"tool":"read","arguments":{}}',
        ),
        ("user", "glob returned:\na.py\n\nread failed:\nno such file"),
        ("assistant", '{"answer":"Only a.py."}'),
        ("user", "Thanks."),
    ]


def test_equal_requests_are_told_alike() -> None:
    once, again = in_reply_form(history()), in_reply_form(history())
    assert once.system == again.system
    assert [m.content for m in once.messages] == [m.content for m in again.messages]
