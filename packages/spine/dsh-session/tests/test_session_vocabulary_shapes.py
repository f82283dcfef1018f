"""What the payloads look like in JSON, and what is kept of what nobody knows (S3-S10, S41)."""

from typing import Any

import pytest

from dsh_llm import (
    ModelSource,
    OpaqueBlock,
    OpaqueSource,
    ReasoningBlock,
    SystemPromptSource,
    TextBlock,
    ToolAdditionBlock,
    ToolCallBlock,
    ToolRemovalBlock,
    ToolSource,
    UserSource,
)
from dsh_session import (
    Aborted,
    Blocked,
    Completed,
    DisposedCancel,
    ErrorEnd,
    Forked,
    HookCancel,
    Interrupted,
    InvalidEventError,
    LegacyCancel,
    MaxTokens,
    OpaqueCancel,
    OpaqueEnd,
    ParentCancel,
    RawData,
    ReplaceOp,
    RequestHeaderEvent,
    SessionEvent,
    SessionEventData,
    SystemMessageEvent,
    TurnEnd,
    UserCancel,
    decode_event,
    encode_event,
    event_from_json,
    event_to_json,
)

Json_ = dict[str, Any]  # JSON objects, built by hand

TEXT = {"type": "text", "text": "hi"}
SOURCES: dict[str, Json_] = {
    "system": {"kind": "system-prompt"},
    "developer": {"kind": "tool-registry"},
    "user": {"kind": "user"},
    "assistant": {"kind": "model", "provider": "p", "model": "m"},
    "tool": {"kind": "tool", "callId": "c"},
}
AT = {"turn": 1, "step": 2}


def message(role: str, **keys: object) -> Json_:
    found = {"id": "m", "role": role, "source": SOURCES[role], "content": [TEXT], **keys}
    return {"toolCallId": "c", **found} if role == "tool" else found


ADDITION = message("developer", content=[{"type": "tool-addition", "toolName": "t"}])
REMOVAL = message("developer", content=[{"type": "tool-removal", "toolName": "t"}])
FAILED = message("tool", isError=True)
HEADER = {"config": {"provider": "p", "model": "m"}}
FULL_HEADER = {
    "config": {
        "provider": "p",
        "model": "m",
        "reasoningEffort": "high",
        "temperature": 0.5,
        "maxTokens": 10,
        "stop": ["END"],
    },
    "adapterDefaults": {"reasoningEffort": True, "maxTokens": True},
    "tools": [{"name": "t", "description": "d", "parameters": {}, "deferLoading": True}],
}
USAGE = {"inputTokens": 1, "outputTokens": 2}
ERROR = {"name": "E", "code": "C"}

CORE: list[tuple[str, bool, Json_, Json_]] = [
    ("turn/start", False, {"turn": 1}, {}),
    ("turn/end", False, {"turn": 1, "reason": {"kind": "completed"}}, {}),
    ("step/start", False, AT, {}),
    ("step/end", False, AT, {}),
    ("system/message", True, {**AT, "message": message("system")}, {}),
    ("developer/message", True, {**AT, "message": REMOVAL}, {}),
    ("developer/message", True, {**AT, "message": ADDITION, "headerSeq": 4}, {}),
    ("user/message", True, message("user"), {}),
    (
        "assistant/message",
        True,
        {**AT, "message": message("assistant"), "stream": []},
        {"usage": USAGE, "interrupted": True},
    ),
    ("assistant/attempt", False, {**AT, "stream": []}, {}),
    ("tool/call", False, {**AT, "callId": "c", "name": "t", "arguments": "{not json"}, {}),
    ("tool/result", True, {**AT, "message": message("tool")}, {"meta": {"a": [1]}}),
    ("tool/result", True, {**AT, "message": FAILED, "error": ERROR}, {}),
    (
        "tool/result",
        True,
        {**AT, "message": FAILED, "error": {**ERROR, "reason": "r"}},
        {"meta": None},
    ),
    ("request/header", False, {"header": HEADER, "reason": "initial"}, {"startsSeries": True}),
    (
        "request/context",
        False,
        {"provider": "p", "model": "m"},
        {"contextWindow": 8, "systemPromptUpdate": "in-history"},
    ),
    ("session/end-seed", False, {}, {"inherited": True}),
    ("todo/write", False, {"todos": [{"content": "a", "status": "pending"}]}, {}),
    ("model/selection", False, {"provider": "p", "model": "m"}, {"reasoningEffort": "low"}),
    (
        "agent/inbox/spliced",
        False,
        {"target": "next-turn", "start": 0, "inserted": [message("user")]},
        {"removedCount": 1, "outcome": "canceled"},
    ),
]


def row(event_type: str, surface: bool, data: object) -> Json_:
    found = {"type": event_type, "seq": 9, "time": 5, "data": data}
    return {**found, "surfaceOp": "append"} if surface else found


def on_surface(role: str, data: Json_) -> Json_:
    adds = role == "developer" and data["content"] == ADDITION["content"]
    extra = {"headerSeq": 4} if adds else {}
    kind = {"tool": "tool/result"}.get(role, f"{role}/message")
    wrapped = data if role == "user" else {**AT, "message": data, **extra}
    stream: Json_ = {"stream": []} if role == "assistant" else {}
    return row(kind, True, {**wrapped, **stream})


def null_paths(value: object, path: str = "") -> list[str]:
    match value:
        case None:
            return [path]
        case dict():
            return [p for key, item in value.items() for p in null_paths(item, f"{path}.{key}")]
        case list():
            return [p for item in value for p in null_paths(item, f"{path}[]")]
        case _:
            return []


@pytest.mark.parametrize(("name", "surface", "required", "optional"), CORE)
def test_S5_core_payloads_are_typed_and_keep_further_fields(
    name: str, surface: bool, required: Json_, optional: Json_
) -> None:
    for data in (required, {**required, **optional}, {**required, **optional, "later": {"x": [1]}}):
        event = event_from_json(row(name, surface, data))
        assert isinstance(event.data, SessionEventData)
        assert (event.data.type, event.data.surface) == (name, surface)
        assert event_to_json(event) == row(name, surface, data)
        assert decode_event(encode_event(event)) == event


@pytest.mark.parametrize(("name", "surface", "required", "optional"), CORE)
def test_S5_a_payload_without_a_required_field_is_none_of_its_class(
    name: str, surface: bool, required: Json_, optional: Json_
) -> None:
    for key in required:
        data = {field: item for field, item in required.items() if field != key}
        try:
            event = event_from_json(row(name, surface, data))
        except InvalidEventError:
            continue
        assert isinstance(event.data, RawData) or key == "error"


@pytest.mark.parametrize(("name", "surface", "required", "optional"), CORE)
def test_S3_what_is_absent_is_left_out_and_key_order_says_nothing(
    name: str, surface: bool, required: Json_, optional: Json_
) -> None:
    event = event_from_json(row(name, surface, required))
    assert null_paths(event_to_json(event)) == []
    assert b"null" not in encode_event(event)
    turned = dict(reversed(row(name, surface, dict(reversed(required.items()))).items()))
    assert event_from_json(turned) == event


def test_S3_names_are_snake_case_here_and_camel_case_in_json() -> None:
    data = event_from_json(
        row("request/header", False, {"header": FULL_HEADER, "reason": "series"})
    )
    header = data.data
    assert isinstance(header, RequestHeaderEvent)
    assert header.header.config.reasoning_effort == "high"
    assert header.header.config.max_tokens == 10
    assert b'"reasoningEffort":"high"' in encode_event(data)
    assert b"reasoning_effort" not in encode_event(data)


@pytest.mark.parametrize("role", list(SOURCES))
def test_S6_the_role_of_a_message_follows_its_event(role: str) -> None:
    good = ADDITION if role == "developer" else message(role)
    event = event_from_json(on_surface(role, {**good, "note": {"kept": [1]}}))
    assert event_to_json(event)["data"] == on_surface(role, {**good, "note": {"kept": [1]}})["data"]
    for other in SOURCES.keys() - {role}:
        with pytest.raises(InvalidEventError):
            event_from_json(on_surface(role, {**good, "role": other}))
    for broken in ({"id": ""}, {"content": "hi"}, {"source": {"kind": ""}}, {"source": "user"}):
        with pytest.raises(InvalidEventError):
            event_from_json(on_surface(role, {**good, **broken}))


def test_S6_a_tool_message_holds_the_blocks_of_the_result_directly() -> None:
    event = event_from_json(on_surface("tool", message("tool", isError=False)))
    data = event.data
    assert isinstance(data, SessionEventData)
    found = getattr(data, "message", None)
    assert found is not None
    assert (found.tool_call_id, found.is_error, found.content) == ("c", False, (TextBlock("hi"),))


PRODUCERS = [
    {"kind": "runtime-context", "form": "snapshot", "sections": [{"name": "day", "text": "Mon"}]},
    {"kind": "skill-catalog", "form": "catalog"},
    {"kind": "goal", "form": "notice", "summary": "done"},
    {"kind": "plugin:acme", "form": "recall", "whatever": {"x": 1}},
]


def source_of(event: SessionEvent) -> object:
    found = getattr(event.data, "message", None)
    assert found is not None
    return found.source


@pytest.mark.parametrize(
    ("role", "cls"),
    [
        ("user", UserSource),
        ("assistant", ModelSource),
        ("tool", ToolSource),
        ("system", SystemPromptSource),
    ],
)
def test_S7_sources_have_classes(role: str, cls: type) -> None:
    assert type(source_of(event_from_json(on_surface(role, message(role))))) is cls


@pytest.mark.parametrize("source", PRODUCERS)
def test_S7_a_producers_own_kind_is_kept_with_its_fields(source: Json_) -> None:
    value = on_surface("user", message("user", source=source))
    event = event_from_json(value)
    assert event_to_json(event) == value
    assert source_of(event).kind == source["kind"]  # type: ignore[attr-defined]  # a source


@pytest.mark.parametrize(
    ("role", "source"),
    [
        ("user", {"kind": "plugin", "name": "x"}),
        ("tool", {"kind": "tool", "callId": "other"}),
        ("tool", {"kind": "tool", "callId": ""}),
        ("assistant", {"kind": "user"}),
        ("assistant", {"kind": "model", "provider": "", "model": "m"}),
        ("system", {"kind": "user"}),
    ],
)
def test_S7_sources_that_may_not_stand_there_are_refused(role: str, source: Json_) -> None:
    with pytest.raises(InvalidEventError):
        event_from_json(on_surface(role, message(role, source=source)))


def test_S7_an_unknown_kind_is_opaque() -> None:
    value = on_surface("user", message("user", source={"kind": "acme", "x": 1}))
    assert type(source_of(event_from_json(value))) is OpaqueSource


BLOCKS = [
    ("user", TEXT, TextBlock),
    ("assistant", {"type": "reasoning", "text": "hm"}, ReasoningBlock),
    (
        "assistant",
        {"type": "tool-call", "id": "c", "name": "t", "arguments": "{not json"},
        ToolCallBlock,
    ),
    ("developer", {"type": "tool-addition", "toolName": "t"}, ToolAdditionBlock),
    ("developer", {"type": "tool-removal", "toolName": "t"}, ToolRemovalBlock),
    ("user", {"type": "image", "mediaType": "image/png", "data": "AA=="}, None),
    ("tool", {"type": "file", "name": "a.txt", "nested": [{"type": "text"}]}, None),
    ("user", {"type": "hologram", "inner": [{"type": "tool-result", "content": [1]}]}, OpaqueBlock),
]


@pytest.mark.parametrize(("role", "block", "cls"), BLOCKS)
def test_S8_blocks_are_kept_as_found_at_every_level(
    role: str, block: Json_, cls: type | None
) -> None:
    data = message(role, content=[block])
    value = on_surface(role, data)
    if block["type"] == "tool-addition":
        value["data"]["headerSeq"] = 4
    event = event_from_json(value)
    assert event_to_json(event) == value
    (found,) = getattr(event.data, "message").content  # noqa: B009  # one of five classes
    assert cls is None or type(found) is cls


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_S8_the_retired_block_is_refused_in_any_message(role: str) -> None:
    content = [TEXT, {"type": "tool-result", "content": []}]
    with pytest.raises(InvalidEventError, match="retired"):
        event_from_json(on_surface(role, message(role, content=content)))


REASONS: list[tuple[Json_, type]] = [
    ({"kind": "completed"}, Completed),
    ({"kind": "blocked"}, Blocked),
    ({"kind": "max-tokens"}, MaxTokens),
    ({"kind": "interrupted"}, Interrupted),
    ({"kind": "forked"}, Forked),
    (
        {
            "kind": "error",
            "error": {
                "message": "busy",
                "code": "SERVER",
                "status": 503,
                "providerRetryAfterMs": 10,
                "requestId": "r",
            },
        },
        ErrorEnd,
    ),
    ({"kind": "error", "error": {"message": "m", "code": "C"}}, ErrorEnd),
    ({"kind": "bored", "why": {"x": [1]}}, OpaqueEnd),
]


@pytest.mark.parametrize(("reason", "cls"), REASONS)
def test_S9_reasons_of_a_turn_end_have_classes(reason: Json_, cls: type) -> None:
    value = row("turn/end", False, {"turn": 1, "reason": reason})
    event = event_from_json(value)
    assert isinstance(event.data, TurnEnd)
    assert type(event.data.reason) is cls
    assert event_to_json(event) == value


@pytest.mark.parametrize(
    ("cause", "cls"),
    [
        ({"kind": "user"}, UserCancel),
        ({"kind": "parent"}, ParentCancel),
        ({"kind": "hook", "reason": "quota"}, HookCancel),
        ({"kind": "disposed"}, DisposedCancel),
        ({"kind": "legacy"}, LegacyCancel),
        ({"kind": "eclipse", "of": "sun"}, OpaqueCancel),
    ],
)
def test_S9_causes_of_a_cancellation_have_classes(cause: Json_, cls: type) -> None:
    value = row("turn/end", False, {"turn": 1, "reason": {"kind": "aborted", "reason": cause}})
    event = event_from_json(value)
    assert isinstance(event.data, TurnEnd)
    assert isinstance(event.data.reason, Aborted)
    assert type(event.data.reason.reason) is cls
    assert event_to_json(event) == value


def test_S10_a_header_holds_config_marks_and_tools() -> None:
    value = row("request/header", False, {"header": FULL_HEADER, "reason": "change"})
    event = event_from_json(value)
    assert isinstance(event.data, RequestHeaderEvent)
    assert event.data.header.tools is not None
    assert event.data.header.tools[0].defer_loading is True
    assert event_to_json(event) == value


@pytest.mark.parametrize("system", ["be kind", "", None, [], {"x": 1}, False])
def test_S10_a_header_has_no_system_whatever_its_value(system: object) -> None:
    with pytest.raises(InvalidEventError, match="system/message"):
        event_from_json(
            row(
                "request/header",
                False,
                {"header": {**HEADER, "system": system}, "reason": "change"},
            )
        )


@pytest.mark.parametrize(
    "op",
    [
        {"op": "replace", "start": 1, "end": 2},
        {"op": "replace", "startSeq": 1, "end": 2},
        {"op": "replace", "startSeq": 1, "endSeq": 2, "why": 1},
        {"op": "replace", "startSeq": 1},
        {"op": "remove", "startSeq": 1, "endSeq": 2},
        {"startSeq": 1, "endSeq": 2},
        {"op": "replace", "startSeq": -1, "endSeq": 2},
        {"op": "replace", "startSeq": True, "endSeq": 2},
        {"op": "replace", "startSeq": 1, "endSeq": 9},
        {"op": "replace", "startSeq": 1.5, "endSeq": 2},
        {"op": "replace", "startSeq": "1", "endSeq": 2},
        "replace",
        "prepend",
        None,
        [],
    ],
)
def test_S41_no_other_surface_op_is_taken(op: object) -> None:
    value = {**row("user/message", True, message("user")), "surfaceOp": op}
    with pytest.raises(InvalidEventError):
        event_from_json({**value, "sourceEventSeqs": [1, 2]})


def test_S41_an_append_or_a_replacement() -> None:
    value = row("user/message", True, message("user"))
    assert event_from_json(value).surface_op == "append"
    op = {"op": "replace", "startSeq": 5, "endSeq": 2}
    event = event_from_json({**value, "surfaceOp": op, "sourceEventSeqs": [5, 2]})
    assert event.surface_op == ReplaceOp(start_seq=5, end_seq=2)
    assert event_to_json(event)["surfaceOp"] == op


def test_S67_a_developer_message_of_the_reference_is_read_and_kept() -> None:
    data = {
        **AT,
        "headerSeq": 4,
        "message": message(
            "developer",
            content=[
                {"type": "tool-addition", "toolName": "new"},
                {"type": "tool-removal", "toolName": "old"},
            ],
        ),
    }
    event = event_from_json(row("developer/message", True, data))
    assert event_to_json(event) == row("developer/message", True, data)
    assert not isinstance(event.data, SystemMessageEvent | RawData)
