"""The words of the model layer: ids, finish reasons, facts, codes, tool changes."""

from pathlib import Path
from typing import get_args

import pytest

from dsh_brand import JsonValue, Secret, Wire, decode, encode, from_json, to_json
from dsh_llm import (
    AbortedFinish,
    CallId,
    ErrorFinish,
    FinishChunk,
    FinishReason,
    GenerateOptions,
    LlmConfigurableProvider,
    LlmDiscoveredModel,
    LlmFailure,
    LlmModelContext,
    LlmModelDiscoveryRequest,
    LlmModelInfo,
    LlmModelReasoningInfo,
    LlmProviderInfo,
    LlmReasoningEffortInfo,
    LlmResolvedModelInfo,
    MaxTokensFinish,
    Message,
    MessageId,
    ModelSource,
    OpaqueFinish,
    ProviderRequestId,
    Purpose,
    ReasoningEffortId,
    ReplayEnvelope,
    RetryId,
    StopFinish,
    TextBlock,
    ToolAdditionBlock,
    ToolCallsFinish,
    ToolHistory,
    ToolRegistrySource,
    ToolRemovalBlock,
    ToolSchema,
    ToolUpdate,
    codes,
    create_assistant_message,
    create_developer_message,
    create_user_message,
    is_context_window_exceeded_error,
    is_quota_exceeded_error,
    register_finish,
    request_messages,
)

PACKAGES = Path(__file__).parents[3]


def test_L6_ids_are_plain_strings_and_checked_by_nobody() -> None:
    for make in (MessageId, CallId, ProviderRequestId, ReasoningEffortId, RetryId):
        for text in ("", "not a uuid", "\ud800"):
            assert make(text) is text


@pytest.mark.parametrize(
    ("reason", "stored"),
    [
        (StopFinish(), {"kind": "stop"}),
        (ToolCallsFinish(), {"kind": "tool-calls"}),
        (MaxTokensFinish(), {"kind": "max-tokens"}),
        (
            AbortedFinish(LlmFailure("m", "ABORTED")),
            {"kind": "aborted", "failure": {"message": "m", "code": "ABORTED"}},
        ),
        (
            ErrorFinish(LlmFailure("m", "SERVER", status=500)),
            {"kind": "error", "failure": {"message": "m", "code": "SERVER", "status": 500}},
        ),
    ],
)
def test_L17_finish_reasons_have_these_forms(
    reason: FinishReason, stored: dict[str, JsonValue]
) -> None:
    assert to_json(reason) == stored
    assert from_json(FinishReason, stored) == reason
    assert reason.kind == stored["kind"]


def test_L17_further_kinds_may_be_registered() -> None:
    text = b'{"type":"finish","reason":{"kind":"test-paused","untilMs":9}}'
    before = decode(FinishChunk, text).reason
    assert isinstance(before, OpaqueFinish)

    @register_finish
    class Paused(FinishReason, frozen=True, tag="test-paused"):
        until_ms: int

    after = decode(FinishChunk, text)
    assert after.reason == Paused(9)
    assert encode(after) == text


def test_L18_replay_state_is_opaque_and_kept_on_the_source() -> None:
    state = ReplayEnvelope({"z": [None, 1.5], "a": {}}, ({"sig": "s"}, None))
    source = ModelSource("p", "m", replay_state=state)
    message = create_assistant_message([TextBlock("a"), TextBlock("b")], source)
    stored = to_json(message)
    assert isinstance(stored, dict)
    assert encode(message.source) == (
        b'{"kind":"model","provider":"p","model":"m","replayState":'
        b'{"response":{"z":[null,1.5],"a":{}},"blocks":[{"sig":"s"},null]}}'
    )
    assert from_json(Message, stored) == message
    bare = ReplayEnvelope({"id": 1})
    assert encode(bare) == b'{"response":{"id":1}}'
    assert encode(ReplayEnvelope(None, ())) == b'{"response":null,"blocks":[]}'
    finish = FinishChunk(StopFinish(), bare)
    assert encode(finish) == (
        b'{"type":"finish","reason":{"kind":"stop"},"replayState":{"response":{"id":1}}}'
    )
    assert decode(FinishChunk, encode(finish)) == finish


def test_L20_a_request_has_these_fields_and_no_others() -> None:
    required = {"provider", "model", "messages"}
    optional = {
        "reasoning_effort",
        "system",
        "tools",
        "tool_history",
        "temperature",
        "max_tokens",
        "stop",
        "signal",
        "session_id",
        "purpose",
    }
    assert set(GenerateOptions.__struct_fields__) == required | optional
    with pytest.raises(TypeError, match="required"):
        GenerateOptions()  # type: ignore[call-arg]  # what is required is the question
    bare = GenerateOptions(provider="p", model="m", messages=[])
    assert [getattr(bare, name) for name in optional] == [None] * len(optional)
    assert get_args(Purpose) == ("compaction", "session-title")


MODEL_FACTS = LlmResolvedModelInfo(
    provider="p",
    id="m",
    name="M",
    description="d",
    input_modalities=("text", "image"),
    context=LlmModelContext(100),
    default_max_tokens=9,
    reasoning=LlmModelReasoningInfo(
        (LlmReasoningEffortInfo("low", "Low"), LlmReasoningEffortInfo("high", "High", "slow")),
        "low",
    ),
    system_prompt_update="in-history",
    tool_update="addition-only",
)


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (LlmProviderInfo("p", "P"), b'{"id":"p","name":"P"}'),
        (LlmModelInfo("p", "m", "M"), b'{"provider":"p","id":"m","name":"M"}'),
        (
            LlmModelInfo("p", "m", "M", "d", ("text",)),
            b'{"provider":"p","id":"m","name":"M","description":"d","inputModalities":["text"]}',
        ),
        (LlmResolvedModelInfo("p", "m", "M"), b'{"provider":"p","id":"m","name":"M"}'),
        (
            MODEL_FACTS,
            b'{"provider":"p","id":"m","name":"M","description":"d",'
            b'"inputModalities":["text","image"],"context":{"contextWindow":100},'
            b'"defaultMaxTokens":9,"reasoning":{"efforts":[{"id":"low","name":"Low"},'
            b'{"id":"high","name":"High","description":"slow"}],"defaultEffort":"low"},'
            b'"systemPromptUpdate":"in-history","toolUpdate":"addition-only"}',
        ),
    ],
)
def test_L24_facts_about_models_have_these_keys(facts: Wire, text: bytes) -> None:
    assert encode(facts) == text
    assert decode(type(facts), text) == facts


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (
            LlmConfigurableProvider("p", "P", "ns", ("a", "b")),
            b'{"provider":"p","displayName":"P","settingsNs":"ns","settingsPath":["a","b"]}',
        ),
        (
            LlmConfigurableProvider("p", "P", "ns", (), declared=False, error="e"),
            b'{"provider":"p","displayName":"P","settingsNs":"ns","settingsPath":[],'
            b'"declared":false,"error":"e"}',
        ),
        (LlmDiscoveredModel("m"), b'{"id":"m"}'),
        (
            LlmDiscoveredModel("m", "M", 100, 9, ("text",)),
            b'{"id":"m","name":"M","contextWindow":100,"maxTokens":9,"inputModalities":["text"]}',
        ),
    ],
)
def test_L25_the_directory_and_discoveries_have_these_keys(entry: Wire, text: bytes) -> None:
    assert encode(entry) == text
    assert decode(type(entry), text) == entry


def test_L25_a_discovery_may_ask_about_a_draft_and_hides_its_key() -> None:
    names = ("provider", "base_url", "api", "api_key", "signal")
    assert LlmModelDiscoveryRequest.__struct_fields__ == names
    bare = LlmModelDiscoveryRequest()
    assert [getattr(bare, name) for name in names] == [None] * len(names)
    assert "sk-1" not in repr(LlmModelDiscoveryRequest(base_url="u", api_key=Secret("sk-1")))


PROVIDER_CODES = [
    "AUTH",
    "QUOTA",
    "RATE_LIMIT",
    "SERVER",
    "TIMEOUT",
    "TRANSPORT",
    "EMPTY_RESPONSE",
    "CONTEXT_WINDOW_EXCEEDED",
    "INVALID_REQUEST",
    "STREAM_CLOSED",
    "MALFORMED_RESPONSE",
    "ABORTED",
    "MISSING_CREDENTIAL",
    "INVALID_CREDENTIAL",
    "UNSUPPORTED_CONTENT",
    "UNSUPPORTED_OPTION",
    "UNSUPPORTED_REASONING_EFFORT",
    "UNKNOWN_MODEL",
    "IMAGE_OFFLOAD_REQUIRED",
    "PROVIDER_ERROR",
    "UNKNOWN",
    "ACCOUNT_QUOTA",
]

SERVICE_CODES = [
    "NO_ADAPTER",
    "DUPLICATE_ADAPTER",
    "INVALID_ADAPTER",
    "REGISTRATION_DISPOSED",
    "INVALID_DIRECTORY",
    "DUPLICATE_DIRECTORY",
    "INVALID_DISCOVERY",
    "DUPLICATE_DISCOVERY",
    "NO_DISCOVERY",
    "DISCOVERY_FAILED",
    "DISCOVERY_UNSUPPORTED",
    "INVALID_CATALOG",
    "INVALID_MODEL_INFO",
    "INVALID_MODEL_CONTEXT",
    "INVALID_MODEL_MAX_TOKENS",
    "INVALID_MODEL_REASONING",
    "INVALID_PREPARED_CALL",
    "INVALID_REPLAY_STATE",
]


def test_L29_codes_of_providers_have_these_spellings() -> None:
    assert [getattr(codes, name) for name in PROVIDER_CODES] == PROVIDER_CODES
    assert codes.http_code(418) == "HTTP_418"


def test_L30_codes_of_the_service_have_these_spellings() -> None:
    assert [getattr(codes, name) for name in SERVICE_CODES] == SERVICE_CODES


def test_L31_only_providers_read_the_wording_of_failures() -> None:
    readers = {is_context_window_exceeded_error.__name__, is_quota_exceeded_error.__name__}
    sources = list(PACKAGES.glob("*/*/src/**/*.py"))
    if not any("providers" in path.parts for path in sources):
        pytest.skip("the other packages lie in a full checkout only")
    outside = {
        path.name
        for path in sources
        if "providers" not in path.parts
        and any(name in path.read_text(encoding="utf-8") for name in readers)
    }
    assert outside == {"wording.py", "__init__.py"}


def test_L165_a_developer_message_tells_of_tools_in_order_with_words_between() -> None:
    change = create_developer_message(
        [ToolAdditionBlock("a"), TextBlock("and no longer:"), ToolRemovalBlock("b")],
        ToolRegistrySource(),
    )
    assert to_json(change.content) == [
        {"type": "tool-addition", "toolName": "a"},
        {"type": "text", "text": "and no longer:"},
        {"type": "tool-removal", "toolName": "b"},
    ]
    assert decode(Message, encode(change)) == change
    history = [create_user_message("hi"), change, create_user_message("go on")]
    assert request_messages(history) is history


def test_L167_a_tool_history_is_a_baseline_and_the_additions_of_each_message() -> None:
    update = ToolUpdate(MessageId("d1"), (ToolSchema("b", "", {}),))
    known = ToolHistory((ToolSchema("a", "", {}),), (update, ToolUpdate(MessageId("d2"), ())))
    assert encode(known) == (
        b'{"tools":[{"name":"a","description":"","parameters":{}}],"updates":['
        b'{"messageId":"d1","additions":[{"name":"b","description":"","parameters":{}}]},'
        b'{"messageId":"d2","additions":[]}]}'
    )
    assert decode(ToolHistory, encode(known)) == known
    assert decode(ToolHistory, b'{"tools":[],"updates":[]}') == ToolHistory(())
