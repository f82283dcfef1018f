"""Requests, prompts, prices and retry policies."""

import gc
from typing import Any

import pytest

from dsh_brand import FrozenDict, JsonValue, encode, to_json
from dsh_llm import (
    AdapterDefaults,
    AlwaysRetryPolicy,
    Block,
    CallId,
    GenerateOptions,
    LlmCallConfig,
    NormalRetryPolicy,
    RequestUserInput,
    RetryBackoff,
    RetryPolicyError,
    TextBlock,
    ToolAdditionBlock,
    ToolCallBlock,
    ToolRemovalBlock,
    ToolSchema,
    call_config_equals,
    create_system_message,
    create_user_message,
    effective_prompt,
    estimate_block,
    estimate_message,
    estimate_messages,
    estimate_text,
    estimate_tools,
    is_agent_loop_request,
    leading_prompt,
    mark_agent_loop_request,
    resolve_retry_policy,
)


def test_L5_whole_numbers_are_written_without_a_fraction() -> None:
    assert encode(LlmCallConfig("p", "m", temperature=1.0)) == (
        b'{"provider":"p","model":"m","temperature":1}'
    )
    assert b'"temperature":0.1' in encode(LlmCallConfig("p", "m", temperature=0.1))


def test_L21_a_schema_is_detached_and_keeps_its_key_order() -> None:
    parameters: dict[str, JsonValue] = {"type": "object", "properties": {"b": {}, "a": {}}}
    schema = ToolSchema("ls", "List.", parameters)
    parameters["type"] = "changed"
    assert isinstance(schema.parameters, FrozenDict)
    assert encode(schema) == (
        b'{"name":"ls","description":"List.","parameters":'
        b'{"type":"object","properties":{"b":{},"a":{}}}}'
    )


def test_L22_configs_compare_field_by_field() -> None:
    config = LlmCallConfig("p", "m", stop=("a",))
    options = GenerateOptions(provider="p", model="m", messages=[], stop=["a"])
    assert call_config_equals(config, options)
    assert not call_config_equals(config, LlmCallConfig("p", "m"))
    assert not call_config_equals(LlmCallConfig("p", "m", stop=()), LlmCallConfig("p", "m"))
    assert not call_config_equals(config, LlmCallConfig("p", "m", max_tokens=1, stop=("a",)))


def test_L23_a_mark_is_never_false() -> None:
    assert to_json(AdapterDefaults(max_tokens=True)) == {"maxTokens": True}
    with pytest.raises(ValueError, match="mark"):
        AdapterDefaults(max_tokens=False)


def test_L26_marks_belong_to_the_object() -> None:
    options = GenerateOptions(provider="p", model="m", messages=[])
    twin = GenerateOptions(provider="p", model="m", messages=[])
    mark_agent_loop_request(options)
    assert options == twin
    assert (is_agent_loop_request(options), is_agent_loop_request(twin)) == (True, False)
    del options
    gc.collect()
    assert not is_agent_loop_request(GenerateOptions(provider="p", model="m", messages=[]))


def test_L169_without_in_history_the_last_prompt_leads() -> None:
    user = create_user_message("u")
    history = [
        create_system_message("one"),
        user,
        create_system_message("two"),
        create_system_message(""),
    ]
    assert leading_prompt(history) == ("two", [user])
    assert leading_prompt(history, "opt") == ("opt\n\ntwo", [user])
    assert leading_prompt([user], "opt") == ("opt", [user])
    assert leading_prompt([user]) == ("", [user])
    assert effective_prompt(history) == "two"


def test_L169_in_history_later_prompts_keep_their_place() -> None:
    user = create_user_message("u")
    later = create_system_message("three")
    history = [
        create_system_message("one"),
        create_system_message("two"),
        create_system_message(""),
        user,
        create_system_message(""),
        later,
    ]
    assert leading_prompt(history, "opt", in_history=True) == ("opt\n\ntwo", [user, later])


def test_L162_prices_count_utf16_units() -> None:
    assert [estimate_text(text) for text in ("", "abcd", "abcde", "😀😀😀")] == [0, 1, 2, 2]


@pytest.mark.parametrize(
    ("block", "price"),
    [
        pytest.param(TextBlock("abcde"), 6, id="text"),
        pytest.param(ToolCallBlock(CallId("c"), "ls", "{}"), 6, id="call"),
        pytest.param(ToolAdditionBlock("x"), 14, id="json"),
        pytest.param(ToolRemovalBlock("y"), 14, id="removal"),
    ],
)
def test_L162_prices_of_blocks(block: Block, price: int) -> None:
    assert estimate_block(block) == price


def test_L162_prices_of_messages_and_tools() -> None:
    system = create_system_message("abcd")
    user = create_user_message([TextBlock("abcd"), TextBlock("abcd")])
    assert estimate_message(create_system_message("")) == 0
    assert (estimate_message(system), estimate_message(user)) == (5, 14)
    assert estimate_messages([system, user, RequestUserInput(content=())]) == 23
    assert (estimate_tools(None), estimate_tools(())) == (0, 0)
    tools = (ToolSchema("a", "", {}),)
    text = '[{"name":"a","description":"","parameters":{}}]'
    assert estimate_tools(tools) == -(-len(text) // 4) + 4


def test_L79_omission_gives_the_normal_policy() -> None:
    expected = NormalRetryPolicy(
        20,
        ("EMPTY_RESPONSE", "RATE_LIMIT", "SERVER", "STREAM_CLOSED", "TIMEOUT", "TRANSPORT"),
        RetryBackoff(500, 10_000, 0.1),
    )
    assert resolve_retry_policy() == resolve_retry_policy({}) == expected
    assert resolve_retry_policy(expected) == expected


def test_L80_values_are_taken_in_both_spellings_and_detached() -> None:
    codes: list[str] = ["AUTH"]
    policy = resolve_retry_policy(
        {"max_retries": 1.0, "retryableCodes": codes, "backoff": {"jitter_ratio": 1}}
    )
    codes.append("QUOTA")
    assert policy == NormalRetryPolicy(1, ("AUTH",), RetryBackoff(500, 10_000, 1))


def test_L80_always_drops_what_it_does_not_need() -> None:
    policy = resolve_retry_policy({"mode": "always", "maxRetries": -1, "retryableCodes": []})
    assert policy == AlwaysRetryPolicy(RetryBackoff(500, 10_000, 0.1))


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"retries": 1}, "retryPolicy.retries"),
        ({"mode": "never"}, "retryPolicy.mode"),
        ({"maxRetries": -1}, "retryPolicy.maxRetries"),
        ({"maxRetries": True}, "retryPolicy.maxRetries"),
        ({"maxRetries": 1.5}, "retryPolicy.maxRetries"),
        ({"maxRetries": 2**53}, "retryPolicy.maxRetries"),
        ({"maxRetries": 1, "max_retries": 1}, "retryPolicy.max_retries"),
        ({"retryableCodes": []}, "retryPolicy.retryableCodes"),
        ({"retryableCodes": ["A", "A"]}, "retryPolicy.retryableCodes[1]"),
        ({"retryableCodes": [1]}, "retryPolicy.retryableCodes[0]"),
        ({"backoff": []}, "retryPolicy.backoff"),
        ({"backoff": {"base": 1}}, "retryPolicy.backoff.base"),
        ({"backoff": {"initialDelayMs": 0}}, "retryPolicy.backoff.initialDelayMs"),
        ({"backoff": {"initialDelayMs": 10_001}}, "retryPolicy.backoff.initialDelayMs"),
        ({"backoff": {"maxDelayMs": 2**31}}, "retryPolicy.backoff.maxDelayMs"),
        ({"backoff": {"maxDelayMs": float("inf")}}, "retryPolicy.backoff.maxDelayMs"),
        ({"backoff": {"jitterRatio": 1.1}}, "retryPolicy.backoff.jitterRatio"),
    ],
)
def test_L80_bad_policies_are_refused_by_path(config: dict[str, JsonValue], path: str) -> None:
    with pytest.raises(RetryPolicyError) as caught:
        resolve_retry_policy(config)
    assert caught.value.path == path
    assert path in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        pytest.param({"messages": "hi"}, "`messages` of a request holds str", id="text"),
        pytest.param({"messages": [{"role": "user", "content": "hi"}]}, "holds dict", id="mapping"),
        pytest.param({"messages": create_user_message("hi")}, "holds Message", id="one message"),
        pytest.param({"stop": "END"}, "`stop` of a request holds str", id="one stop"),
        pytest.param({"tools": [{"name": "ls"}]}, "`tools` of a request holds dict", id="tools"),
    ],
)
def test_a_slip_in_a_hand_written_request_is_told_at_once(
    fields: dict[str, Any],  # what no checker would let pass
    problem: str,
) -> None:
    with pytest.raises(TypeError, match=problem):
        GenerateOptions(**{"provider": "p", "model": "m", "messages": [], **fields})
