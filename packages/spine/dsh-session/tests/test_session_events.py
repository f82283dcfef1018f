"""The envelope, the payload classes and what they keep (S1-S14, S23-S30)."""

from typing import Any, ClassVar

import pytest

from dsh_brand import FrozenDict, Json, is_json
from dsh_llm import OpaqueBlock, OpaqueSource
from dsh_session import (
    KNOWN_SESSION_EVENT_TYPES,
    AssistantAttempt,
    DeveloperMessageEvent,
    InvalidEventError,
    OpaqueEnd,
    RawData,
    RequestHeaderEvent,
    SessionEvent,
    SessionEventData,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
    UnsupportedEventError,
    UserMessageEvent,
    adopt_session_event,
    decode_event,
    decode_stored_event,
    encode_event,
    event_from_json,
    event_to_json,
    register_session_event,
)
from dsh_session.testing import new_session, tool_message, user_message

Json_ = dict[str, Any]  # JSON objects, built by hand


def row(event_type: str, data: object, **keys: object) -> Json_:
    return {"type": event_type, "seq": 30, "time": 5, "data": data, **keys}


def message(role: str = "user", kind: str = "user", **keys: object) -> Json_:
    text = [{"type": "text", "text": "hi"}]
    return {"id": "m", "role": role, "content": text, "source": {"kind": kind}, **keys}


def assistant(**keys: object) -> Json_:
    source = {"kind": "model", "provider": "p", "model": "m"}
    return {**message("assistant"), "source": source, **keys}


def settled(data: Json_, **keys: object) -> Json_:
    return {"turn": 1, "step": 1, "message": data, **keys}


def header(**keys: object) -> Json_:
    return {"header": {"config": {"provider": "p", "model": "m"}, **keys}, "reason": "initial"}


def tool(**keys: object) -> Json_:
    source = {"kind": "tool", "callId": "c"}
    return {**message("tool"), "source": source, "toolCallId": "c", **keys}


def developer(*blocks: Json_) -> Json_:
    return message("developer", "tool-registry", content=list(blocks))


ADDITION = {"type": "tool-addition", "toolName": "t"}
REMOVAL = {"type": "tool-removal", "toolName": "t"}


def append(data: object) -> Json_:
    return row("user/message", data, surfaceOp="append")


REFUSED = [
    pytest.param(row("turn/start", {"turn": 1}, extra=1), id="S2-unknown-key"),
    pytest.param({"type": "turn/start", "seq": 0, "time": 0}, id="S1-no-data"),
    pytest.param({**row("x/y", 1), "seq": True}, id="S4-boolean-seq"),
    pytest.param({**row("x/y", 1), "seq": -1}, id="S1-negative-seq"),
    pytest.param({**row("x/y", 1), "seq": 2**53}, id="S1-unsafe-seq"),
    pytest.param({**row("x/y", 1), "seq": -0.0}, id="S4-minus-zero"),
    pytest.param({**row("x/y", 1), "time": 1.5}, id="S1-fractional-time"),
    pytest.param({**row("x/y", 1), "type": ""}, id="S1-empty-type"),
    pytest.param(row("x/y", 1, ignorable=False), id="S1-ignorable-false"),
    pytest.param(row("x/y", 1, ignorable=1), id="S4-ignorable-one"),
    pytest.param(row("turn/start", {"turn": 1}, surfaceOp="append"), id="S34-log-only-op"),
    pytest.param(row("approval/policy", {}, sourceEventSeqs=[1], ignorable=True), id="S2-known"),
    pytest.param(row("user/message", message()), id="S34-surface-without-op"),
    pytest.param(
        row(
            "assistant/message",
            settled(assistant(), stream=[]),
            surfaceOp="append",
            sourceEventSeqs=[1],
        ),
        id="S34-assistant-cites",
    ),
    pytest.param(
        row("user/message", message(), surfaceOp={"op": "replace", "start": 1, "end": 1}),
        id="S41-old-names",
    ),
    pytest.param(
        row(
            "user/message",
            message(),
            sourceEventSeqs=[1],
            surfaceOp={"op": "replace", "startSeq": 30, "endSeq": 30},
        ),
        id="S41-not-earlier",
    ),
    pytest.param(append(message()) | {"sourceEventSeqs": []}, id="S45-empty"),
    pytest.param(append(message()) | {"sourceEventSeqs": [2, 2]}, id="S45-repeated"),
    pytest.param(append(message()) | {"sourceEventSeqs": [30]}, id="S45-not-earlier"),
    pytest.param(append(message()) | {"sourceEventSeqs": [[1, 3]]}, id="S139-range-in-memory"),
    pytest.param(append(message(id="")), id="S14-empty-id"),
    pytest.param(append(message("assistant")), id="S6-role"),
    pytest.param(append(message(kind="plugin")), id="S7-plugin"),
    pytest.param(append(message(kind="")), id="S7-empty-kind"),
    pytest.param(append(message(content=[{"type": "tool-result"}])), id="S8-tool-result"),
    pytest.param(append(message(content=[ADDITION])), id="S13-addition-elsewhere"),
    pytest.param(append(message("developer")), id="S13-developer-elsewhere"),
    pytest.param(append(message(isError=1)), id="S13-is-error"),
    pytest.param(append(message(content="hi")), id="S14-content"),
    pytest.param(
        row("system/message", settled(message("system")), surfaceOp="append"),
        id="S14-system-source",
    ),
    pytest.param(
        row("assistant/message", settled(message("assistant"), stream=[]), surfaceOp="append"),
        id="S14-assistant-source",
    ),
    pytest.param(
        row("assistant/message", settled(assistant(), stream={}), surfaceOp="append"),
        id="S14-stream",
    ),
    pytest.param(
        row(
            "assistant/message", {**settled(assistant(), stream=[]), "turn": -1}, surfaceOp="append"
        ),
        id="S14-turn",
    ),
    pytest.param(
        row("tool/result", settled(tool(toolCallId="d")), surfaceOp="append"), id="S14-call-id"
    ),
    pytest.param(
        row("tool/result", settled(tool(), error={"name": "E", "code": "C"}), surfaceOp="append"),
        id="S13-error-without-flag",
    ),
    pytest.param(
        row("developer/message", settled(developer(ADDITION)), surfaceOp="append"),
        id="S13-no-header-seq",
    ),
    pytest.param(
        row("developer/message", settled(developer(REMOVAL), headerSeq=1), surfaceOp="append"),
        id="S13-header-seq",
    ),
    pytest.param(
        row(
            "developer/message",
            settled(developer({**ADDITION, "tool": {}}), headerSeq=1),
            surfaceOp="append",
        ),
        id="S13-own-tool",
    ),
    pytest.param(
        row(
            "developer/message",
            settled(developer({**ADDITION, "toolName": ""}), headerSeq=1),
            surfaceOp="append",
        ),
        id="S13-no-tool-name",
    ),
    pytest.param(row("request/header", header(system="x")), id="S10-system"),
    pytest.param(row("request/header", header(system=None, tools="{{tools}}")), id="S10-raw"),
    pytest.param(row("request/header", header(tools=[])), id="S13-empty-tools"),
    pytest.param(row("request/header", header(adapterDefaults={})), id="S13-empty-defaults"),
    pytest.param(row("request/header", header(adapterDefaults={"maxTokens": True})), id="S14-mark"),
    pytest.param(row("request/header", {**header(), "reason": "why"}), id="S14-reason"),
    pytest.param(row("request/header", {**header(), "startsSeries": False}), id="S14-series"),
    pytest.param(row("request/header", header(config={"provider": "", "model": "m"})), id="S14-p"),
    pytest.param(row("x/y", {1: 2}), id="S24-key"),
    pytest.param(row("x/y", float("nan")), id="S24-nan"),
    pytest.param(row("x/y", {"a": [b"x"]}), id="S24-bytes"),
]


@pytest.mark.parametrize("value", REFUSED)
def test_S13_S14_broken_events_are_refused(value: Json_) -> None:
    with pytest.raises(InvalidEventError):
        event_from_json(value)


def test_S13_the_error_names_type_and_seq() -> None:
    with pytest.raises(InvalidEventError, match=r"'user/message' at seq 30: .*'plugin'") as caught:
        event_from_json(append(message(kind="plugin")))
    assert caught.value.seq == 30


ACCEPTED = [
    pytest.param(row("x/y", None), id="S1-null-data"),
    pytest.param(row("x/y", {"a": [1, "é", None, 1.5, {}]}), id="S33-unknown-type"),
    pytest.param(
        row("x/y", 1, ignorable=True, surfaceOp=[7], sourceEventSeqs="no"), id="S2-opaque"
    ),
    pytest.param(row("turn/end", {"turn": 1, "reason": {"kind": "bored", "why": [1]}}), id="S9"),
    pytest.param(
        row(
            "turn/end",
            {"turn": 1, "reason": {"kind": "aborted", "reason": {"kind": "hook", "reason": "r"}}},
        ),
        id="S9-cause",
    ),
    pytest.param(row("turn/start", {"turn": 1, "by": {"x": 1}}), id="S5-extra-field"),
    pytest.param(append(message(content=[{"type": "hologram", "x": [1]}])), id="S8-block"),
    pytest.param(append(message(kind="acme", depth={"a": 1})), id="S7-source"),
    pytest.param(append({**message(), "note": 1}), id="S6-extra-key"),
    pytest.param(
        row("tool/result", settled(tool(isError=False), meta=None), surfaceOp="append"),
        id="S5-null-meta",
    ),
    pytest.param(row("tool/result", settled(tool()), surfaceOp="append"), id="S5-no-meta"),
    pytest.param(row("session/end-seed", {}), id="S72-plain"),
    pytest.param(row("request/header", header(tools="{{tools}}")), id="S14-tools"),
    pytest.param(
        row("request/header", header(config={"provider": "p", "model": "m", "stop": []})),
        id="S13-stop",
    ),
    pytest.param(
        row(
            "assistant/attempt",
            {
                "turn": 1,
                "step": 1,
                "stream": [{"type": "text-chunks", "dt": "?"}, {"type": "new", "x": 1}],
            },
        ),
        id="S21-odd-records",
    ),
    pytest.param(row("tool/call", {"turn": 1}), id="S14-nothing-beyond"),
    pytest.param(append(message(content=[{"type": "text", "words": 1}])), id="S14-odd-block"),
    pytest.param(
        row("tool/result", settled(tool(content=[{"type": "text"}])), surfaceOp="append"),
        id="S14-odd-result-block",
    ),
    pytest.param(
        row(
            "assistant/message",
            settled(assistant(), stream=[{"type": "chunk"}], interrupted=True),
            surfaceOp="append",
        ),
        id="S21-odd-message-stream",
    ),
]


@pytest.mark.parametrize("value", ACCEPTED)
def test_S174_events_keep_every_value(value: Json_) -> None:
    event = event_from_json(value)
    assert event_to_json(event) == value
    assert decode_event(encode_event(event)) == event


def test_S2_opaque_surface_keys_never_touch_the_surface() -> None:
    event = event_from_json(row("x/y", 1, ignorable=True, surfaceOp="append"))
    assert (event.surface_op, event.source_event_seqs) == (None, None)
    assert event.opaque == {"surfaceOp": "append"}


def test_S4_integral_numbers_of_a_row_are_integers() -> None:
    line = b'{"type":"turn/start","seq":3.0,"time":1e2,"data":{"turn":2.0}}'
    assert decode_event(line) == SessionEvent(
        type="turn/start", seq=3, time=100, data=TurnStart(turn=2)
    )


@pytest.mark.parametrize(
    "change",
    [b'"ignorable":false', b'"ignorable":1', b'"more":1', b'"surfaceOp":"append"', b'"seq":true'],
)
def test_S1_S2_broken_rows_are_refused(change: bytes) -> None:
    with pytest.raises(InvalidEventError):
        decode_event(b'{"type":"turn/start","seq":0,"time":0,"data":{"turn":1},' + change + b"}")


def test_S12_the_vocabulary_has_59_names() -> None:
    assert len(KNOWN_SESSION_EVENT_TYPES) == 59


def test_S21_odd_records_stay_and_the_rest_is_typed() -> None:
    data = {"turn": 1, "step": 1, "stream": [{"type": "text-chunks", "dt": 1}]}
    event = event_from_json(row("assistant/attempt", data))
    assert isinstance(event.data, AssistantAttempt)
    assert event.data.stream[0].extra == {"type": "text-chunks", "dt": 1}


def test_S118_required_unknown_and_retired_types_are_refused_when_stored() -> None:
    for name in ("x/y", "tool/code-dispatch"):
        line = f'{{"type":"{name}","seq":0,"time":0,"data":1}}'.encode()
        with pytest.raises(UnsupportedEventError, match=name):
            decode_stored_event(line)
        skippable = line[:-1] + b',"ignorable":true}'
        assert decode_stored_event(skippable).data == RawData(1)


def test_S55_an_event_that_needs_a_projection_is_refused() -> None:
    with pytest.raises(UnsupportedEventError, match="image/offload"):
        event_from_json(row("image/offload", {}))
    session = new_session()
    with pytest.raises(UnsupportedEventError, match="image/offload"):
        session.append("image/offload", {})
    assert session.seq == 0


def test_S26_lone_surrogates_survive() -> None:
    event = event_from_json(append(message(id="m\ud800")))
    line = encode_event(event)
    assert b"\\ud800" in line
    assert decode_event(line) == event


def test_S27_3000_levels_survive() -> None:
    deep: object = 1
    for _ in range(3000):
        deep = {"a": [deep]}
    session = new_session()
    event = session.append("x/y", {"deep": deep})
    again = decode_event(encode_event(event))
    assert encode_event(again) == encode_event(event)
    result = ToolResultEvent(turn=1, step=1, message=tool_message("c"), meta=event.data.json)  # type: ignore[union-attr]  # the line above made it RawData
    stored = session.append(result, surface_op="append")
    assert encode_event(decode_event(encode_event(stored))) == encode_event(stored)


def test_S29_numbers_are_written_as_javascript_prints_them() -> None:
    event = new_session().append("x/y", [1.0, 1e21, 5e-324, 0.1, -7])
    assert encode_event(event).endswith(b'"data":[1,1e+21,5e-324,0.1,-7]}')


def test_S29_large_literals_take_double_semantics_on_load() -> None:
    event = decode_event(b'{"type":"x/y","seq":0,"time":0,"data":[9007199254740993]}')
    assert event.data == RawData([9007199254740992])
    with pytest.raises(InvalidEventError):
        decode_event(b'{"type":"x/y","seq":0,"time":0,"data":NaN}')


@pytest.mark.parametrize(
    "bad",
    [float("nan"), float("inf"), -0.0, 2**53, b"x", {1}, object(), {1: 2}, iter(()), TurnStart],
)
def test_S24_append_refuses_what_json_cannot_hold(bad: object) -> None:
    session = new_session()
    result = ToolResultEvent(turn=1, step=1, message=tool_message("c"), meta=bad)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(InvalidEventError, match="'tool/result'"):
        session.append(result, surface_op="append")
    with pytest.raises(InvalidEventError, match="'x/y'"):
        session.append("x/y", {"a": [bad]})
    with pytest.raises(InvalidEventError, match="'turn/start'"):
        session.append(TurnStart(turn=bad))  # type: ignore[arg-type]  # what is tested
    assert session.seq == 0


def test_S24_cycles_are_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(InvalidEventError):
        new_session().append("x/y", loop)


def test_S25_a_shared_object_is_stored_twice() -> None:
    part = {"a": 1}
    event = new_session().append("x/y", [part, part])
    assert event_to_json(event)["data"] == [{"a": 1}, {"a": 1}]


class Noted(SessionEventData, frozen=True, kw_only=True):
    """For the tests of registration."""

    type: ClassVar[str] = "test-session/noted"
    text: str
    more: Json = None


def test_S33_registered_payloads_are_typed_and_known() -> None:
    register_session_event(Noted)
    event = new_session().append(Noted(text="a", more={"b": [1]}))
    assert decode_stored_event(encode_event(event)) == event
    assert isinstance(event.data, Noted)
    assert isinstance(event.data.more, FrozenDict)
    assert decode_event(encode_event(event).replace(b'"a"', b"7")).data == RawData(
        {"text": 7, "more": {"b": [1]}}
    )


def test_S37_nobody_adds_a_surface_type() -> None:
    class Shown(SessionEventData, frozen=True, kw_only=True):
        type: ClassVar[str] = "test-session/shown"
        surface: ClassVar[bool] = True

    with pytest.raises(TypeError, match="closed"):
        register_session_event(Shown)


def test_S13_adoption_checks_and_gives_the_event_itself() -> None:
    data = UserMessageEvent(message=user_message())
    good = SessionEvent(type=data.type, seq=0, time=0, data=data, surface_op="append")
    assert adopt_session_event(good) is good
    with pytest.raises(InvalidEventError):
        adopt_session_event(SessionEvent(type="user/message", seq=0, time=0, data=data))


def test_S174_unknown_tags_are_opaque_classes() -> None:
    event = event_from_json(append(message(kind="acme", content=[{"type": "hologram"}])))
    assert isinstance(event.data, UserMessageEvent)
    assert isinstance(event.data.message.source, OpaqueSource)
    assert isinstance(event.data.message.content[0], OpaqueBlock)
    end = event_from_json(row("turn/end", {"turn": 1, "reason": {"kind": "bored"}}))
    assert isinstance(end.data, TurnEnd)
    assert isinstance(end.data.reason, OpaqueEnd)
    assert is_json(event_to_json(end))


def test_S13_a_tool_change_is_read_typed() -> None:
    event = event_from_json(
        row("developer/message", settled(developer(ADDITION), headerSeq=1), surfaceOp="append")
    )
    assert isinstance(event.data, DeveloperMessageEvent)
    assert event.data.header_seq == 1
    head = event_from_json(row("request/header", header()))
    assert isinstance(head.data, RequestHeaderEvent)
