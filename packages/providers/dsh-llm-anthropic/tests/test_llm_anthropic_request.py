"""Request bodies of the Messages protocol (L136-L144, L169-L171, L176, L178)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

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
    ReplayEnvelope,
    RequestUserInput,
    TextBlock,
    ToolCallBlock,
    ToolRegistrySource,
    ToolSchema,
    create_assistant_message,
    create_developer_message,
    create_system_message,
    create_tool_result_message,
    create_user_message,
    request_messages,
)
from dsh_llm_anthropic.profiles import Profile, resolve_route
from dsh_llm_anthropic.replay import envelope
from dsh_llm_anthropic.request import BodyBuilder
from dsh_llm_scripted.dialects import MESSAGES

GENERIC: Mapping[str, Any] = {"base_url": "http://127.0.0.1:1"}
IN_HISTORY = {"system_prompt_update": "in-history"}


def builder(route: str = "x", **profile: Any) -> BodyBuilder:  # any settings of a profile
    return BodyBuilder(resolve_route(route, Profile.model_validate({**GENERIC, **profile})))


def options(*messages: Message, model: str = "m", **fields: Any) -> GenerateOptions:  # any options
    return GenerateOptions(provider="x", model=model, messages=messages, **fields)


def body(given: GenerateOptions, route: str = "x", **profile: Any) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(builder(route, **profile).build(given))
    return parsed


def turns(*messages: Message, **profile: Any) -> list[tuple[str, list[dict[str, Any]]]]:
    found = body(options(*messages), **profile)["messages"]
    return [(turn["role"], turn["content"]) for turn in found]


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def said(*blocks: Block, state: ReplayEnvelope | None = None, model: str = "m") -> Message:
    return create_assistant_message(blocks, ModelSource("x", model, state))


def call(call_id: str = "c1", name: str = "f", arguments: str = "{}") -> ToolCallBlock:
    return ToolCallBlock(CallId(call_id), name, arguments)


def answer(call_id: str, words: str = "ok", *, failed: bool = False) -> Message:
    blocks = (TextBlock(words),) if words else ()
    return create_tool_result_message(CallId(call_id), blocks, failed)


def test_L136_L137_unset_fields_are_left_out_and_a_limit_is_always_sent() -> None:
    user = create_user_message("hi")
    assert body(options(user, tools=[], stop=[])) == {
        "model": "m",
        "max_tokens": 8192,
        "messages": [{"role": "user", "content": [text("hi")]}],
        "stream": True,
    }
    full = body(options(user, temperature=0.0, max_tokens=5, stop=["x"]))
    assert (full["max_tokens"], full["temperature"], full["stop_sequences"]) == (5, 0, ["x"])


def test_L95_equal_requests_give_equal_bytes_with_text_unescaped() -> None:
    messages = [create_user_message("ü 😀\n"), create_user_message("b")]
    build = builder().build
    first = build(options(*messages, temperature=1.0))
    assert build(options(*messages, temperature=1)) == first
    assert builder().build(options(*messages, temperature=1)) == first
    assert "ü 😀\\n".encode() in first


def test_L138_turns_of_one_role_merge_and_results_come_first() -> None:
    found = turns(
        create_user_message("a"),
        create_user_message("b"),
        said(TextBlock("c"), call("1"), call("2")),
        answer("2"),
        create_user_message("d"),
        answer("1", failed=True),
        create_user_message("e"),
    )
    assert found == [
        ("user", [text("a"), text("b")]),
        (
            "assistant",
            [
                text("c"),
                {"type": "tool_use", "id": "1", "name": "f", "input": {}},
                {"type": "tool_use", "id": "2", "name": "f", "input": {}},
            ],
        ),
        (
            "user",
            [
                {"type": "tool_result", "tool_use_id": "2", "content": [text("ok")]},
                {
                    "type": "tool_result",
                    "tool_use_id": "1",
                    "content": [text("ok")],
                    "is_error": True,
                },
                text("d"),
                text("e"),
            ],
        ),
    ]


def test_L139_blank_blocks_and_empty_messages_are_left_out() -> None:
    found = turns(
        said(TextBlock(" ")),
        said(TextBlock("first")),
        create_user_message(" \n\ufeff"),
        said(TextBlock("second"), TextBlock("")),
        create_user_message("ok"),
    )
    assert found == [
        ("user", [text("(no content)")]),
        ("assistant", [text("first"), text("second")]),
        ("user", [text("ok")]),
    ]


def test_L139_a_request_without_any_content_still_has_a_turn() -> None:
    assert turns() == [("user", [text("(no content)")])]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"b":1.50, "a":"ü"}', {"b": 1.5, "a": "ü"}),
        ("", {}),
        ("[1]", {}),
        ('{"a":', {}),
        ("NaN", {}),
        ('{"a": NaN}', {}),
        ('{"a":"\x01"}', {}),
        ("null", {}),
        (" {} ", {}),
    ],
)
def test_L140_arguments_that_are_no_object_become_one(arguments: str, sent: object) -> None:
    found = turns(create_user_message("a"), said(call(arguments=arguments)), answer("c1"))
    assert found[1][1][0]["input"] == sent


def test_L140_an_empty_result_gets_a_text() -> None:
    found = turns(create_user_message("a"), said(call()), answer("c1", ""))
    assert found[2][1][0]["content"] == [text("(no output)")]


SIGNED: JsonValue = {"type": "reasoning", "signature": "sig"}
HIDDEN: JsonValue = {"type": "reasoning", "redactedData": "abc"}


def state(*blocks: JsonValue, **changes: object) -> ReplayEnvelope:
    response = {"kind": "anthropic", "version": 1, "id": "r", "model": "m", "stopReason": None}
    return from_json(ReplayEnvelope, {"response": {**response, **changes}, "blocks": list(blocks)})  # type: ignore[dict-item]  # a test changes any field


def test_L141_signed_and_hidden_thinking_go_back() -> None:
    kept = state(SIGNED, HIDDEN, {"type": "text"}, {"type": "reasoning"})
    message = said(
        ReasoningBlock("hm"),
        ReasoningBlock(""),
        TextBlock("a"),
        ReasoningBlock("unsigned"),
        state=kept,
    )
    with capture_logs() as logs:
        found = turns(create_user_message("q"), message)
    assert found[1][1] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "abc"},
        text("a"),
    ]
    assert logs == []


@pytest.mark.parametrize(
    ("replay", "model"),
    [
        pytest.param(state(SIGNED, {"type": "text"}, kind="other"), "m", id="kind"),
        pytest.param(state(SIGNED, {"type": "text"}, version=2), "m", id="version"),
        pytest.param(state(SIGNED, {"type": "text"}), "older", id="model"),
        pytest.param(state(SIGNED), "m", id="count"),
        pytest.param(state({"type": "text"}, SIGNED), "m", id="tags"),
        pytest.param(state({"type": "reasoning", "signature": 5}, {"type": "text"}), "m", id="x"),
        pytest.param(from_json(ReplayEnvelope, {"response": 5}), "m", id="shape"),
    ],
)
def test_L43_L141_an_unusable_state_leaves_reasoning_out_with_one_warning(
    replay: ReplayEnvelope, model: str
) -> None:
    message = said(ReasoningBlock("hm"), TextBlock("a"), state=replay, model=model)
    build = builder()
    with capture_logs() as logs:
        question = create_user_message("q")
        build.build(options(question, message))
        sent = json.loads(build.build(options(question, message)))
    assert sent["messages"][1]["content"] == [text("a")]
    assert [entry["event"] for entry in logs] == ["llm_anthropic.replay_state_unusable"]


def test_L178_unsigned_thinking_goes_back_where_the_profile_wants_it() -> None:
    message = said(ReasoningBlock("hm"), ReasoningBlock(""), TextBlock("a"))
    found = turns(create_user_message("q"), message, unsigned_thinking="send")
    assert found[1][1] == [{"type": "thinking", "thinking": "hm"}, text("a")]
    signed = said(ReasoningBlock("hm"), state=state(SIGNED))
    found = turns(create_user_message("q"), signed, unsigned_thinking="send")
    assert found[1][1] == [{"type": "thinking", "thinking": "hm", "signature": "sig"}]


def test_L149_what_a_response_leaves_is_what_a_request_reads() -> None:
    kept = envelope("r", "dated-name", "end_turn", [state(SIGNED).blocks[0]])  # type: ignore[index, list-item]  # there is one entry
    found = turns(create_user_message("q"), said(ReasoningBlock("hm"), state=kept))
    assert found[1][1][0]["signature"] == "sig"


def schema(name: str = "t", **fields: Any) -> ToolSchema:  # any further field
    parameters: dict[str, JsonValue] = {"properties": {}}
    return ToolSchema(name, "does it", parameters, **fields)


def test_L142_tools() -> None:
    typed = ToolSchema("u", "d", {"type": "object", "x": 1})
    sent = body(options(create_user_message("a"), tools=[schema(defer_loading=True), typed]))
    assert sent["tools"] == [
        {
            "name": "t",
            "description": "does it",
            "input_schema": {"type": "object", "properties": {}},
            "defer_loading": True,
        },
        {"name": "u", "description": "d", "input_schema": {"type": "object", "x": 1}},
    ]


def refused(given: GenerateOptions, **profile: Any) -> LlmError:
    with pytest.raises(LlmError) as caught:
        body(given, **profile)
    return caught.value


def test_L142_a_blank_stop_is_refused() -> None:
    error = refused(options(create_user_message("a"), stop=["x", " \n"]))
    assert error.code == "UNSUPPORTED_OPTION"


def test_L171_names_and_ids_on_the_wire() -> None:
    assert refused(options(create_user_message("a"), tools=[schema("a.b")])).code == (
        "UNSUPPORTED_OPTION"
    )
    assert refused(options(create_user_message("a"), tools=[schema("x" * 129)])).code == (
        "UNSUPPORTED_OPTION"
    )
    found = turns(
        create_user_message("a"),
        said(call("c.1", "a b"), call("c_1", "a b"), call("c:1", "x" * 200), call("", "")),
        answer("c.1"),
        answer("c_1"),
        answer("c:1"),
        answer(""),
    )
    calls = found[1][1]
    assert [each["name"] for each in calls] == ["a_b", "a_b", "x" * 128, "_"]
    assert [each["id"] for each in calls] == ["c_1_2", "c_1", "c_1_3", "_"]
    assert [each["tool_use_id"] for each in found[2][1]] == ["c_1_2", "c_1", "c_1_3", "_"]


def test_L170_what_the_protocol_cannot_carry_is_skipped_and_images_are_refused() -> None:
    other = from_json(Block, {"type": "strange", "a": 1})
    assert isinstance(other, OpaqueBlock)
    odd = create_user_message([call(), ReasoningBlock("x"), other, TextBlock("kept")])
    note = create_developer_message([TextBlock("tools")], ToolRegistrySource())
    assert turns(odd, note) == [("user", [text("kept")])]
    image = from_json(Block, {"type": "image", "attachment": {}})
    assert refused(options(create_user_message([image]))).code == "UNSUPPORTED_CONTENT"


def test_L164_user_input_without_id_is_accepted() -> None:
    plain = RequestUserInput(content=(TextBlock("hi"),))
    given = GenerateOptions(provider="x", model="m", messages=[plain])
    assert json.loads(builder().build(given))["messages"][0]["content"] == [text("hi")]


def test_L208_half_characters_do_not_stop_a_request() -> None:
    broken = from_json(
        Message,
        {
            "id": "1",
            "role": "user",
            "content": [{"type": "text", "text": "a\ud800"}],
            "source": {"kind": "user"},
        },
    )
    assert turns(broken)[0][1] == [text("a\ufffd")]


EFFORTS: Mapping[str, Any] = {
    "efforts": {
        "low": {"budget_tokens": 2048},
        "deep": {"level": "high"},
    }
}


@pytest.mark.parametrize(
    ("effort", "fields"),
    [
        ("off", {"thinking": {"type": "disabled"}}),
        ("low", {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        ("deep", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        (None, {}),
    ],
)
def test_L143_efforts_on_the_wire(effort: str | None, fields: dict[str, object]) -> None:
    sent = body(options(create_user_message("a"), reasoning_effort=effort), **EFFORTS)
    assert {k: sent[k] for k in ("thinking", "output_config") if k in sent} == fields


def test_L143_a_budget_stays_below_the_output_limit() -> None:
    user = create_user_message("a")
    sent = body(options(user, reasoning_effort="low", max_tokens=1025), **EFFORTS)
    assert sent["thinking"]["budget_tokens"] == 1024
    error = refused(options(user, reasoning_effort="low", max_tokens=1024), **EFFORTS)
    assert error.code == "UNSUPPORTED_OPTION"


@pytest.mark.parametrize("effort", ["low", "deep"])
def test_L143_thinking_excludes_a_temperature(effort: str) -> None:
    user = create_user_message("a")
    error = refused(options(user, reasoning_effort=effort, temperature=0.5), **EFFORTS)
    assert error.code == "UNSUPPORTED_OPTION"
    assert body(options(user, reasoning_effort=effort, temperature=1.0), **EFFORTS)
    assert body(options(user, reasoning_effort="off", temperature=0.5), **EFFORTS)


def test_L57_an_effort_that_is_not_offered_is_refused() -> None:
    error = refused(options(create_user_message("a"), reasoning_effort="max"), **EFFORTS)
    assert error.code == "UNSUPPORTED_REASONING_EFFORT"


@pytest.mark.parametrize("retention", ["none", "short", "long"])
def test_L144_cache_marks(retention: str) -> None:
    messages = [
        create_system_message("prompt"),
        create_user_message("a"),
        said(TextBlock("b")),
        create_user_message([TextBlock("c"), TextBlock("d")]),
        said(TextBlock("e")),
    ]
    given = options(*messages, tools=[schema("a"), schema("b")])
    raw = builder(cache_retention=retention).build(given)
    sent = json.loads(raw)
    mark = {"none": None, "short": {"type": "ephemeral"}}.get(
        retention, {"type": "ephemeral", "ttl": "1h"}
    )
    last = sent["messages"][2]["content"][-1]
    marked = [sent["system"][-1], sent["tools"][-1], last]
    assert [block.get("cache_control") for block in marked] == [mark] * 3
    assert raw.count(b"cache_control") == (0 if mark is None else 3)


def test_L169_the_last_prompt_leads_on_a_route_without_prompts_in_history() -> None:
    sent = body(
        options(
            create_system_message("old"),
            create_user_message("a"),
            create_system_message("new"),
            system="first",
        )
    )
    assert sent["system"] == [text("first\n\nnew")]
    assert [turn["role"] for turn in sent["messages"]] == ["user"]


def test_L176_a_later_prompt_stands_at_the_end_of_its_stretch() -> None:
    sent = body(
        options(
            create_system_message("old"),
            create_user_message("a"),
            said(TextBlock("b")),
            create_system_message("new"),
            create_system_message("newer"),
            create_user_message("c"),
            said(TextBlock("d")),
        ),
        **IN_HISTORY,
    )
    assert sent["system"] == [text("old")]
    assert [(turn["role"], turn["content"][0]["text"]) for turn in sent["messages"]] == [
        ("user", "a"),
        ("assistant", "b"),
        ("user", "c"),
        ("system", "new"),
        ("system", "newer"),
        ("assistant", "d"),
    ]


def test_L176_a_stretch_without_a_user_turn_falls_back_for_the_whole_request() -> None:
    sent = body(
        options(
            create_system_message("old"),
            create_user_message("a"),
            said(TextBlock("b")),
            create_system_message("new"),
            create_user_message(" "),
            said(TextBlock("c")),
        ),
        **IN_HISTORY,
    )
    assert sent["system"] == [text("new")]
    assert [turn["role"] for turn in sent["messages"]] == ["user", "assistant"]


def _messages(draw: Sequence[tuple[str, int]]) -> Iterator[Message]:
    for kind, number in draw:
        words = ["", " ", "x"][number % 3]
        match kind:
            case "user":
                yield create_user_message([TextBlock(words)])
            case "system":
                yield create_system_message(words)
            case "answer":
                yield answer(f"c.{number}", words)
            case "call":
                yield said(call(f"c.{number}", "a b", ["{}", "[", ""][number % 3]))
            case _:
                yield said(ReasoningBlock(words), TextBlock(words))


@given(
    st.lists(
        st.tuples(st.sampled_from(["user", "system", "answer", "call", "said"]), st.integers(0, 5)),
        max_size=14,
    ),
    st.booleans(),
)
def test_L170_a_derived_request_is_always_one_that_strict_providers_take(
    kinds: Sequence[tuple[str, int]], in_history: bool
) -> None:
    history = request_messages(tuple(_messages(kinds)))
    given = GenerateOptions(provider="x", model="m", messages=history)
    sent = body(given, **(IN_HISTORY if in_history else {}))
    assert MESSAGES.broken_rule(sent) is None


def test_a_message_is_encoded_once_for_each_model() -> None:
    user = create_user_message("a")
    build = builder()
    first = build._fragments([user], "m")[0]
    assert build._fragments([user], "m")[0] is first
    assert build._fragments([user], "other")[0] == first


@given(
    st.lists(
        st.tuples(st.sampled_from(["user", "system", "answer", "call", "said"]), st.integers(0, 5)),
        max_size=14,
    ),
    st.booleans(),
    st.sampled_from(["none", "short"]),
)
def test_L95_a_growing_history_gives_the_bytes_of_a_new_one(
    kinds: Sequence[tuple[str, int]], in_history: bool, retention: str
) -> None:
    settings = {"cache_retention": retention, **(IN_HISTORY if in_history else {})}
    messages = list(_messages(kinds))
    grown = builder(**settings)
    for end in (*range(len(messages) + 1), len(messages), len(messages) // 2):
        given = options(*messages[:end])
        assert grown.build(given) == builder(**settings).build(given)
