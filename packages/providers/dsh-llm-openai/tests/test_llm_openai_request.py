"""Request bodies (L95, L113-L121, L169-L171)."""

import gc
import json
from collections.abc import Mapping
from typing import Any

import pytest

from dsh_brand import JsonValue, from_json
from dsh_llm import (
    Block,
    CallId,
    GenerateOptions,
    LlmError,
    Message,
    ModelSource,
    OpaqueBlock,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolRegistrySource,
    ToolSchema,
    UserSource,
    create_assistant_message,
    create_developer_message,
    create_system_message,
    create_tool_result_message,
    create_user_message,
)
from dsh_llm.ids import MessageId
from dsh_llm_http.wire import NO_OUTPUT
from dsh_llm_openai.profiles import Profile, resolve_route
from dsh_llm_openai.request import BodyBuilder

SOURCE = ModelSource("p", "m")
GENERIC: Mapping[str, Any] = {"base_url": "http://127.0.0.1:1/v1"}


def builder(route: str = "x", **profile: Any) -> BodyBuilder:  # any settings of a profile
    return BodyBuilder(resolve_route(route, Profile.model_validate({**GENERIC, **profile})))


def options(*messages: Message, **fields: Any) -> GenerateOptions:  # any options
    return GenerateOptions(provider="x", model="m", messages=messages, **fields)


def body(given: GenerateOptions, route: str = "x", **profile: Any) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(builder(route, **profile).build(given))
    return parsed


def sent(*messages: Message, **profile: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body(options(*messages), **profile)["messages"]
    return found


def test_L113_unset_fields_are_left_out_and_zero_is_set() -> None:
    user = create_user_message("hi")
    assert body(options(user, tools=[], stop=[])) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    full = body(options(user, temperature=0.0, max_tokens=5, stop=["x"]))
    assert list(full)[4:] == ["temperature", "max_tokens", "stop"]
    assert full["temperature"] == 0


def test_L95_equal_requests_give_equal_bytes_with_text_unescaped() -> None:
    messages = [create_user_message("ü 😀\n"), create_user_message("b")]
    build = builder().build
    first = build(options(*messages, temperature=1.0))
    assert build(options(*messages, temperature=1)) == first
    assert builder().build(options(*messages, temperature=1)) == first
    assert "ü 😀\\n".encode() in first
    assert b'"temperature":1}' in first


def test_L169_one_leading_prompt_or_later_ones_in_history() -> None:
    messages = [
        create_system_message("one"),
        create_user_message("a"),
        create_system_message("two"),
        create_system_message(""),
    ]
    assert [(m["role"], m["content"]) for m in sent(*messages)] == [
        ("system", "two"),
        ("user", "a"),
    ]
    later = body(
        options(*messages, system="zero"), models={"m": {"system_prompt_update": "in-history"}}
    )["messages"]
    assert [(m["role"], m["content"]) for m in later] == [
        ("system", "zero\n\none"),
        ("user", "a"),
        ("system", "two"),
    ]
    assert sent(create_system_message(""), create_user_message("a"))[0]["role"] == "user"


def test_L115_assistant_messages_carry_text_reasoning_and_calls() -> None:
    message = create_assistant_message(
        [
            ReasoningBlock("r1"),
            TextBlock("a"),
            ToolCallBlock(CallId("c1"), "f", " \ufeff"),
            ReasoningBlock("r2"),
            TextBlock("b"),
            ToolCallBlock(CallId("c2"), "g", '{"x": 1'),
        ],
        SOURCE,
    )
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "c2", "type": "function", "function": {"name": "g", "arguments": '{"x": 1'}},
    ]
    plain = {"role": "assistant", "content": "ab", "tool_calls": calls}
    assert sent(message) == [{**plain, "reasoning_content": "r1r2"}]
    assert sent(message, reasoning_field="reasoning") == [{**plain, "reasoning": "r1r2"}]
    assert sent(message, reasoning_field="none") == [plain]
    only_calls = create_assistant_message([ToolCallBlock(CallId("c"), "f", "{}")], SOURCE)
    assert sent(only_calls)[0]["content"] == ""


def test_L116_users_tools_and_developers() -> None:
    tool = create_tool_result_message(CallId("c"), [TextBlock("a"), TextBlock("b")], True)
    silent = create_tool_result_message(CallId("c"), [], False)
    developer = create_developer_message([TextBlock("note")], ToolRegistrySource())
    assert sent(create_user_message(""), tool, silent, developer) == [
        {"role": "user", "content": ""},
        {"role": "tool", "tool_call_id": "c", "content": "ab"},
        {"role": "tool", "tool_call_id": "c", "content": NO_OUTPUT},
    ]


def test_L170_what_cannot_be_carried_is_skipped_block_by_block() -> None:
    user = create_user_message(
        [
            ReasoningBlock("r"),
            ToolCallBlock(CallId("c"), "f", "{}"),
            opaque("chart"),
            TextBlock("a"),
        ]
    )
    lost = create_assistant_message([opaque("chart")], SOURCE)
    assert sent(user, lost) == [{"role": "user", "content": "a"}]


def opaque(kind: str) -> Block:
    block = from_json(Block, {"type": kind, "data": 1})
    assert isinstance(block, OpaqueBlock)
    return block


def test_L14_an_image_is_refused_not_dropped() -> None:
    with pytest.raises(LlmError) as caught:
        sent(create_user_message([TextBlock("look"), opaque("image")]))
    assert caught.value.code == "UNSUPPORTED_CONTENT"


def test_L117_tools_and_strict_only_where_the_schema_is() -> None:
    closed: dict[str, JsonValue] = {
        "type": "object",
        "properties": {"b": {"type": "string"}, "a": {"type": "number", "minimum": 1.0}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    tools = [
        ToolSchema("f", "Does f", closed),
        ToolSchema("g", "Does g", {**closed, "required": ["a"]}),
        ToolSchema("h", "Does h", {"type": "object"}),
    ]
    given = options(create_user_message("a"), tools=tools)
    found = [tool["function"] for tool in body(given, strict_tools=True)["tools"]]
    assert [tool.get("strict") for tool in found] == [True, None, None]
    assert list(found[0]["parameters"]["properties"]) == ["b", "a"]
    assert b'"minimum":1}' in builder().build(given)
    assert "strict" not in body(given)["tools"][0]["function"]


def test_L118_switches() -> None:
    given = options(create_system_message("s"), create_user_message("a"), max_tokens=3)
    found = body(
        given,
        system_role="developer",
        max_tokens_field="max_completion_tokens",
        stream_usage=False,
    )
    assert found["messages"][0]["role"] == "developer"
    assert found["max_completion_tokens"] == 3
    assert "stream_options" not in found


@pytest.mark.parametrize(
    ("effort", "purpose", "expected"),
    [
        ("off", None, {"thinking": {"type": "disabled"}}),
        ("high", None, {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
        ("high", "session-title", {"thinking": {"type": "disabled"}}),
        (None, None, {}),
    ],
)
def test_L119_deepseek_thinking(
    effort: str | None, purpose: Any, expected: Mapping[str, object]
) -> None:
    given = options(create_user_message("a"), reasoning_effort=effort, purpose=purpose)
    found = body(given, "deepseek-official")
    assert {k: v for k, v in found.items() if k in ("thinking", "reasoning_effort")} == expected


def test_L120_efforts_alone_or_none() -> None:
    given = options(create_user_message("a"), reasoning_effort="low")
    found = body(given, thinking_format="effort", efforts=["low"])
    assert found["reasoning_effort"] == "low"
    assert "thinking" not in found
    for efforts in ([], ["high"]):
        with pytest.raises(LlmError) as caught:
            body(given, thinking_format="effort", efforts=efforts)
        assert caught.value.code == "UNSUPPORTED_REASONING_EFFORT"


def test_L171_names_that_a_model_invented_are_made_sendable() -> None:
    names = ["read file", "read file", "ok-Name_1", "ü" * 70, ""]
    blocks = [ToolCallBlock(CallId(f"c{i}"), name, "{}") for i, name in enumerate(names)]
    calls = sent(create_assistant_message(blocks, SOURCE))[0]["tool_calls"]
    assert [call["function"]["name"] for call in calls] == [
        "read_file",
        "read_file",
        "ok-Name_1",
        "_" * 64,
        "_",
    ]


def test_L171_a_declared_tool_with_such_a_name_is_refused() -> None:
    with pytest.raises(LlmError) as caught:
        body(options(create_user_message("a"), tools=[ToolSchema("a b", "d", {})]))
    assert caught.value.code == "UNSUPPORTED_OPTION"


def test_L4_half_characters_from_a_log_become_replacement_characters() -> None:
    message = Message(
        id=MessageId("i"),
        role="user",
        content=(TextBlock("a\ud83d"), TextBlock("\ude00\ud83d")),
        source=UserSource(),
    )
    assert sent(message)[0]["content"] == "a😀\ufffd"


def test_fragments_are_kept_by_identity_and_keep_nothing_alive() -> None:
    build = builder()
    messages = [create_user_message("a"), create_user_message("a")]
    build.build(options(*messages))
    assert len(build._messages) == 2  # the cache is not part of the API
    del messages
    gc.collect()
    assert len(build._messages) == 0  # see above


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({"reasoning_effort": "on"}, True),
        ({"reasoning_effort": "off"}, False),
        ({"reasoning_effort": "on", "purpose": "session-title"}, False),
        ({}, None),
    ],
)
def test_L118_services_that_switch_thinking_by_a_flag(
    fields: dict[str, Any], sent: bool | None
) -> None:
    found = body(options(create_user_message("a"), **fields), preset="dashscope")
    assert found.get("enable_thinking") is sent
    assert "reasoning_effort" not in found


def test_L95_a_growing_history_gives_the_bytes_of_a_new_one() -> None:
    messages = []
    for number in range(60):
        call = ToolCallBlock(CallId(f"c{number}"), "f", "{}")
        messages += [
            create_user_message(f"{number}"),
            create_assistant_message([call] if number % 3 else [], SOURCE),
        ]
    grown = builder()
    for end in (*range(0, 121, 7), 120, 120, 30, 90):
        given = options(*messages[:end])
        assert grown.build(given) == builder().build(given)
    changed = [*messages[:40], create_user_message("another"), *messages[41:]]
    assert grown.build(options(*changed)) == builder().build(options(*changed))
