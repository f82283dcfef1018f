"""The edge from format 0 to 1: every old spelling, and what has none."""

from typing import Any

import pytest

from dsh_session_jsonl.formats import EDGES, BrokenRowError, CannotConvertError, Row, rows_of

Json = dict[str, Any]  # payloads of every shape
USER = {"kind": "user"}
TEXT = [{"type": "text", "text": "hi"}]
MESSAGE = {"content": TEXT, "source": USER, "role": "user", "id": "m"}


def event(name: str, seq: int, data: Any, **more: Any) -> Row:  # JSON by hand
    (row,) = rows_of({"type": name, "seq": seq, "time": 10 + seq, "data": data, **more}, 0)
    return row


def converted(*rows: Row) -> list[Row]:
    edge = EDGES[0]({"id": "s"})
    return [new for row in rows for new in edge.push(row)] + list(edge.finish())


def payload(row: Row) -> Json:
    assert isinstance(row.data, dict)
    return row.data


def data_of(name: str, data: Any, **more: Any) -> object:
    """The payload of one event after the edge, whose envelope stayed as it was."""
    row = event(name, 0, data, **more)
    (new,) = converted(row)
    assert new == row._replace(type=new.type, data=new.data)
    return new.data


def test_S180_an_event_of_today_passes_as_it_is() -> None:
    for name, data in (
        ("turn/start", {"turn": 1, "note": [1.5, None]}),
        ("user/message", MESSAGE),
        ("tool/result", {"turn": 1, "step": 1, "message": MESSAGE, "meta": None}),
        ("turn/end", {"turn": 1, "reason": {"kind": "aborted", "reason": {"kind": "user"}}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "error", "error": {"message": "m"}}}),
        ("llm/retry", {"retryId": "r", "turn": 1}),
        ("todo/write", ["anything"]),
    ):
        assert data_of(name, data) == data


def test_S180_a_turn_loses_its_trigger() -> None:
    assert data_of("turn/start", {"turn": 1, "trigger": {"kind": "message"}}) == {"turn": 1}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"kind": "aborted"}, {"kind": "aborted", "reason": {"kind": "legacy"}}),
        ({"kind": "disposed"}, {"kind": "aborted", "reason": {"kind": "disposed"}}),
        (
            {"kind": "error", "step": 2, "failure": {"message": "m", "code": "C", "status": 500}},
            {"kind": "error", "error": {"message": "m", "code": "C", "status": 500}},
        ),
        (
            {"kind": "error", "step": 2, "message": "m", "code": "C"},
            {"kind": "error", "error": {"message": "m", "code": "C"}},
        ),
        (
            {"kind": "error", "step": 2, "message": "m"},
            {"kind": "error", "error": {"message": "m", "code": "UNKNOWN"}},
        ),
        ({"kind": "not-known"}, {"kind": "not-known"}),
    ],
)
def test_S180_old_reasons_of_a_turn_end(old: Json, new: Json) -> None:
    assert data_of("turn/end", {"turn": 1, "reason": old}) == {"turn": 1, "reason": new}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"turn": 1, "message": MESSAGE}, MESSAGE),
        (
            {"turn": 1, "content": TEXT, "source": USER},
            {"content": TEXT, "source": USER, "role": "user", "id": "legacy-message:s:0"},
        ),
    ],
)
def test_S180_steering_is_a_user_message(data: Json, message: Json) -> None:
    row = event("steering/message", 0, data, surfaceOp="append")
    assert converted(row) == [row._replace(type="user/message", data=message)]


def test_S180_messages_from_before_ids_get_the_wrapper_of_that_time() -> None:
    assert data_of("user/message", {"content": TEXT, "source": USER}) == {
        "content": TEXT,
        "source": USER,
        "role": "user",
        "id": "legacy-message:s:0",
    }
    old = {"turn": 1, "step": 2, "content": TEXT, "provenance": {"provider": "p", "model": "m"}}
    assert data_of("assistant/message", {**old, "usage": {"inputTokens": 1}}) == {
        "turn": 1,
        "step": 2,
        "message": {
            "role": "assistant",
            "content": TEXT,
            "source": {"kind": "model", "provider": "p", "model": "m"},
            "id": "legacy-message:s:0",
        },
        "usage": {"inputTokens": 1},
    }


def result(seq: int, text: str, **more: Any) -> Row:
    content = [{"type": "text", "text": text}]
    data = {"turn": 1, "step": 1, "callId": "c", "content": content, "isError": False}
    return event("tool/result", seq, data, **more)


def test_S180_a_replacing_result_takes_the_id_of_what_it_replaces() -> None:
    replace: Json = {"surfaceOp": {"op": "replace", "start": 0, "end": 0}, "sourceEventSeqs": [0]}
    again: Json = {"surfaceOp": {"op": "replace", "start": 1, "end": 1}, "sourceEventSeqs": [1]}
    rows = converted(result(0, "long"), result(1, "cut", **replace), result(2, "", **again))
    messages = [payload(row)["message"] for row in rows]
    assert messages[0] == {
        "source": {"kind": "tool", "callId": "c"},
        "content": [
            {
                "type": "tool-result",
                "toolCallId": "c",
                "content": [{"type": "text", "text": "long"}],
                "isError": False,
            }
        ],
        "role": "user",
        "id": "legacy-message:s:0",
    }
    assert {message["id"] for message in messages} == {"legacy-message:s:0"}
    with pytest.raises(BrokenRowError, match="no tool result"):
        converted(event("turn/start", 0, {"turn": 1}), result(1, "cut", **replace))


def test_S180_a_retry_chain_gets_one_id() -> None:
    first = {"turn": 1, "step": 1, "provider": "p", "policyKey": "k"}
    rows = converted(
        event("llm/retry", 0, first),
        event("llm/retry-started", 1, {"turn": 1, "step": 1, "retry": 1}),
        event("llm/retry", 2, first),
        event("llm/retry", 3, {**first, "policyKey": "other"}),
        event("llm/retry", 4, {**first, "retryId": "declared"}),
    )
    ids = [payload(row)["retryId"] for row in rows]
    assert ids == [
        *["legacy-retry:s:0"] * 3,
        "legacy-retry:s:3",
        "declared",
    ]


@pytest.mark.parametrize("prefix", ["compact", "compaction"])
def test_S180_a_compaction_from_before_ids_gets_one(prefix: str) -> None:
    checkpoint = {"kind": "plugin", "plugin": "compact"}
    rows = converted(
        event("user/message", 0, MESSAGE),
        event(f"{prefix}/start", 1, {"turn": 1}),
        event(f"{prefix}/summary", 2, {"summary": []}),
        event("user/message", 3, {**MESSAGE, "source": checkpoint}),
        event(f"{prefix}/end", 4, {"turn": 1}),
        event("user/message", 5, {**MESSAGE, "source": checkpoint}),
        event(f"{prefix}/start", 6, {"compactionId": "c"}),
        event(f"{prefix}/end", 7, {"compactionId": "c"}),
        event(f"{prefix}/prune", 8, {"shadowedSeqs": []}),
    )
    name = {"compactionId": "legacy-compaction:s:1"}
    assert [row.type for row in rows if "/message" not in row.type] == [
        *("compaction/start", "compaction/summary", "compaction/end"),
        *("compaction/start", "compaction/end", "compaction/prune"),
    ]
    expected: list[Json] = [
        MESSAGE,
        {"turn": 1, **name},
        {"summary": [], **name},
        {**MESSAGE, "source": {**checkpoint, **name}},
        {"turn": 1, **name},
        {**MESSAGE, "source": checkpoint},
        {"compactionId": "c"},
        {"compactionId": "c"},
        {"shadowedSeqs": []},
    ]
    assert [row.data for row in rows] == expected


def test_S180_the_marker_of_a_restart_ends_a_compaction() -> None:
    rows = converted(
        event("compaction/start", 0, {}),
        event("session/end-seed", 1, {}),
        event("compaction/summary", 2, {}),
    )
    assert [row.data for row in rows] == [{"compactionId": "legacy-compaction:s:0"}, {}, {}]


def test_S180_the_rest() -> None:
    assert data_of("subagent/descriptor", {"version": 2, "mode": "x"}) == {
        "version": 3,
        "mode": "x",
    }
    assert data_of("subagent/descriptor", {"version": 1}) == {"version": 1}
    header = {"config": {"provider": "p", "model": "m"}, "system": "x"}
    old = {"header": {**header, "messagePrefix": [MESSAGE]}, "reason": "initial"}
    assert data_of("request/header", old) == {"header": header, "reason": "initial"}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("turn/end", {"turn": 1, "reason": {"kind": "error"}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1, "error": {}}}),
        ("turn/end", {"turn": 1, "reason": "error"}),
        ("steering/message", {"turn": 1}),
        ("steering/message", {"turn": 1, "message": MESSAGE, "content": TEXT}),
        ("user/message", {"content": TEXT}),
        ("user/message", {"content": TEXT, "source": USER, "turn": 1}),
        ("assistant/message", {"turn": 1, "step": 1, "content": TEXT}),
        ("assistant/message", {"turn": 1, "step": 1, "message": MESSAGE, "provenance": {}}),
        ("tool/result", {"turn": 1, "step": 1, "callId": "c", "content": TEXT}),
        ("tool/result", {"turn": 1, "step": 1, "message": MESSAGE, "callId": "c"}),
        ("llm/retry-started", {"turn": 1, "step": 1, "retry": 1}),
    ],
)
def test_S180_half_of_an_old_shape_is_corruption(name: str, data: Json) -> None:
    with pytest.raises(BrokenRowError, match=f"event '{name}' at seq 0"):
        converted(event(name, 0, data))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("request/header-delta", {}),
        ("mode/set", {"mode": "code"}),
        ("request/header", {"header": {}, "reason": "fallback"}),
    ],
)
def test_S180_what_has_no_later_form_is_unsupported(name: str, data: Json) -> None:
    with pytest.raises(CannotConvertError, match=f"event '{name}' at seq 0"):
        converted(event(name, 0, data))
