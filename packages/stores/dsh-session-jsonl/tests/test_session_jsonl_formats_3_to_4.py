"""The edge from format 3 to 4: tool messages, sources, blocks, open turns."""

import json
from typing import Any

import pytest

from dsh_session_jsonl.formats import EDGES, BrokenRowError, CannotConvertError, Replace, Row

Json = dict[str, Any]  # payloads of every shape
TEXT = [{"type": "text", "text": "1"}]
TOOL = {"kind": "tool", "callId": "c"}


def converted(*events: tuple[Any, ...]) -> list[Row]:
    """Rows with dense seqs from (type, data, surface op?, cited?), after the edge."""
    edge = EDGES[3]({"id": "s"})
    new: list[Row] = []
    for seq, (name, data, *surface) in enumerate(events):
        op = surface[0] if surface else None
        cited = surface[1] if len(surface) > 1 else None
        new += edge.push(Row(name, seq, 100 + seq, data, seq, op, cited))
    assert [row.seq for row in new] == list(range(len(new))), "seqs must be dense"
    return new


def data_of(name: str, data: Json) -> object:
    (row,) = converted((name, data))
    return row.data


def result(block: Json | None = None, message: Json | None = None) -> Json:
    wrapper = {"type": "tool-result", "toolCallId": "c", "content": TEXT, **(block or {})}
    outer = {"source": TOOL, "content": [wrapper], "role": "user", "id": "r"}
    return {"turn": 1, "step": 1, "message": {**outer, **(message or {})}}


def test_S186_a_tool_result_is_a_message_of_its_own_role() -> None:
    new = data_of("tool/result", {**result({"isError": False}), "meta": None})
    message = {
        "role": "tool",
        "source": TOOL,
        "toolCallId": "c",
        "content": TEXT,
        "isError": False,
        "id": "r",
    }
    # The order of the keys is part of the format.
    assert json.dumps(new) == json.dumps({"turn": 1, "step": 1, "message": message, "meta": None})
    bare = data_of("tool/result", result())
    message.pop("isError")
    assert json.dumps(bare) == json.dumps({"turn": 1, "step": 1, "message": message})


def test_S186_other_fields_are_kept_under_the_names_of_foreign_ones() -> None:
    new = data_of("tool/result", result({"note": 1}, {"mark": {"a": None}}))
    assert new == {
        "turn": 1,
        "step": 1,
        "message": {
            "role": "tool",
            "source": TOOL,
            "toolCallId": "c",
            "content": TEXT,
            "id": "r",
            "plugin:result:note": 1,
            "plugin:message:mark": {"a": None},
        },
    }


@pytest.mark.parametrize(
    "data",
    [
        result(message={"role": "tool"}),
        result(message={"source": {"kind": "plugin", "plugin": "x"}}),
        result(message={"content": []}),
        result(message={"content": TEXT}),
        result(
            message={"content": [*TEXT, {"type": "tool-result", "toolCallId": "c", "content": []}]}
        ),
        result({"toolCallId": "d"}),
        result({"isError": 1}),
        result({"content": "text"}),
        result({"content": [{"type": "tool-result", "toolCallId": "d", "content": []}]}),
    ],
)
def test_S186_any_other_shape_is_unsupported(data: Json) -> None:
    with pytest.raises(CannotConvertError, match="'tool/result' at seq 0"):
        converted(("tool/result", data))


def test_S186_a_tool_result_in_another_message_is_unsupported() -> None:
    block = {"type": "tool-result", "toolCallId": "c", "content": []}
    with pytest.raises(CannotConvertError, match="'user/message' at seq 0"):
        converted(("user/message", {"content": [block]}))


@pytest.mark.parametrize(
    ("plugin", "kind"),
    [
        ("compact", "compact-checkpoint"),
        ("tools-code-mode", "ptc-mode"),
        ("tools-ptc", "ptc-mode"),
        ("dsh-compaction-basic", "compact-basic"),
        ("@deepseek-ai/dsh-system-prompt", "runtime-context"),
        ("goal", "goal"),
        ("skill-catalog", "skill-catalog"),
        ("dsh-session-title-llm", "dsh-session-title-llm"),
        ("acme", "plugin:acme"),
        ("user", "plugin:user"),
    ],
)
def test_S187_a_plugin_source_names_its_producer(plugin: str, kind: str) -> None:
    old = {"role": "user", "source": {"form": "notice", "plugin": plugin, "kind": "plugin", "x": 1}}
    new = {"role": "user", "source": {"kind": kind, "form": "notice", "x": 1}}
    nested = {"source": {"kind": "user", "by": {"kind": "plugin", "plugin": "acme"}}}
    rows = converted(
        ("user/message", old),
        ("assistant/message", {"message": old, "stream": []}),
        ("system/message", {"message": old}),
        ("agent/inbox/spliced", {"inserted": [old, nested]}),
        ("session/title-llm-request", {"messages": [old]}),
        ("todo/write", old),
    )
    assert [row.data for row in rows] == [
        new,
        {"message": new, "stream": []},
        {"message": new},
        {"inserted": [new, nested]},
        {"messages": [new]},
        old,
    ]


def test_S187_the_prompt_is_told_from_its_context_by_the_role() -> None:
    source = {"kind": "plugin", "plugin": "@deepseek-ai/dsh-system-prompt"}
    message = {"role": "system", "source": source, "content": []}
    assert data_of("system/message", {"message": message}) == {
        "message": {**message, "source": {"kind": "system-prompt"}}
    }
    with pytest.raises(BrokenRowError, match="names the plugin"):
        converted(("user/message", {"source": {"kind": "plugin"}}))


def test_S188_unknown_blocks_get_the_name_of_foreign_ones() -> None:
    blocks = [*TEXT, {"type": "chart", "inner": [{"type": "deep"}]}, {"type": "image"}, "odd"]
    native = [
        *TEXT,
        {"type": "plugin:chart", "inner": [{"type": "deep"}]},
        {"type": "image"},
        "odd",
    ]
    stream: list[Json] = [
        {"type": "chunk", "time": 1, "chunk": {"type": "block-start", "blockType": "chart"}},
        {"type": "chunk", "time": 1, "chunk": {"type": "block-start", "blockType": "text"}},
        {"type": "chunk", "time": 1, "chunk": {"type": "block-end", "block": {"type": "chart"}}},
        {"type": "text-chunks", "texts": ["chart"]},
        {"type": "chunk", "time": 1, "chunk": {"type": "other", "blockType": "chart"}},
    ]
    said = [dict(record) for record in stream]
    said[0]["chunk"] = {"type": "block-start", "blockType": "plugin:chart"}
    said[2]["chunk"] = {"type": "block-end", "block": {"type": "plugin:chart"}}
    assert data_of("user/message", {"content": blocks}) == {"content": native}
    old = {"message": {"content": blocks}, "stream": stream}
    assert data_of("assistant/message", old) == {"message": {"content": native}, "stream": said}
    assert data_of("assistant/attempt", {"stream": stream}) == {"stream": said}
    nested = data_of("tool/result", result({"content": blocks}))
    assert isinstance(nested, dict)
    assert nested["message"]["content"] == native


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("request/header", {"header": {"tools": [{"name": "t", "deferLoading": True}]}}),
        ("session-log-deepseek/delivery-accepted", {"sessionFormatVersion": 4}),
    ],
)
def test_S188_what_format_4_would_read_differently_is_unsupported(name: str, data: Json) -> None:
    with pytest.raises(CannotConvertError, match=f"'{name}' at seq 0"):
        converted((name, data))


def test_S188_a_repaired_turn_moves_what_comes_behind() -> None:
    queued = ("agent/inbox/spliced", {"target": "next-turn", "inserted": [{"id": "q"}]})
    user: Json = {"content": []}
    rows = converted(
        ("turn/start", {"turn": 1}),
        queued,
        ("turn/start", {"turn": 2}),
        ("user/message", user, "append"),
        ("user/message", user, Replace(3, 3), (3,)),
        ("session/title", {"messageSeqs": [3]}),
        ("image/offload", {"targets": [{"seq": 3, "imageIndexes": [3]}]}),
        ("request/header", {"header": {"tools": "{{tools}}"}}),
        ("developer/message", {"message": {"content": []}, "headerSeq": 7}, "append"),
    )
    assert rows[2].data == {"turn": 1, "reason": {"kind": "interrupted"}}
    assert (rows[5].op, rows[5].cited) == (Replace(4, 4), (4,))
    assert [row.data for row in rows[6:8]] == [
        {"messageSeqs": [4]},
        {"targets": [{"seq": 4, "imageIndexes": [3]}]},
    ]
    assert rows[9].data == {"message": {"content": []}, "headerSeq": 8}
    with pytest.raises(CannotConvertError, match="turn 1 is open"):
        converted(("turn/start", {"turn": 1}), ("turn/start", {"turn": 2}))
