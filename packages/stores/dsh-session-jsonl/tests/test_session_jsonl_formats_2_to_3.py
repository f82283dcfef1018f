"""The edge from format 2 to 3: the prompt becomes messages, names change."""

import hashlib
from collections.abc import Sequence
from typing import Any

import pytest

from dsh_session_jsonl.formats import (
    EDGES,
    BrokenRowError,
    CannotConvertError,
    Replace,
    Row,
    native_row,
)

Json = dict[str, Any]  # payloads of every shape
CONFIG = {"provider": "p", "model": "m"}
STEP: tuple[str, Json] = ("step/start", {"turn": 1, "step": 1})
STEP_END: tuple[str, Json] = ("step/end", {"turn": 1, "step": 1})
USER: tuple[Any, ...] = ("user/message", {"id": "u", "source": {"kind": "user"}}, "append")


def log(*events: tuple[Any, ...]) -> list[Row]:
    """Rows with dense seqs from (type, data, surface op?, cited?)."""
    rows = []
    for seq, (name, data, *surface) in enumerate(events):
        op = surface[0] if surface else None
        cited = surface[1] if len(surface) > 1 else None
        rows.append(Row(name, seq, 100 + seq, data, seq, op, cited))
    return rows


def header(system: str | None = None, **more: object) -> tuple[str, Json]:
    said = {} if system is None else {"system": system}
    return "request/header", {"header": {"config": CONFIG, **said, **more}, "reason": "initial"}


def converted(*events: tuple[Any, ...]) -> list[Row]:
    edge = EDGES[2]({"id": "s"})
    new = [new for row in log(*events) for new in edge.push(row)] + list(edge.finish())
    assert [row.seq for row in new] == list(range(len(new))), "seqs must be dense"
    return new


def prompt(anchor: int, kind: str, text: str, step: int = 1) -> Json:
    digest = hashlib.sha256(f'["session-format-v2-to-v3","s",{anchor},"{kind}"]'.encode())
    return {
        "turn": 1,
        "step": step,
        "message": {
            "id": f"v2-to-v3-system-{digest.hexdigest()}",
            "role": "system",
            "source": {"kind": "plugin", "plugin": "@deepseek-ai/dsh-system-prompt"},
            "content": [{"type": "text", "text": text}] if text else [],
        },
    }


def prompts(rows: Sequence[Row]) -> list[tuple[object, ...]]:
    """Seq, time, surface keys and payload of each prompt."""
    found = [row for row in rows if row.type == "system/message"]
    return [(row.seq, row.time, row.op, row.cited, row.data) for row in found]


def test_S184_the_first_step_begins_with_an_empty_head() -> None:
    rows = converted(
        ("turn/start", {"turn": 1}), STEP, STEP_END, ("step/start", {"turn": 1, "step": 2})
    )
    assert prompts(rows) == [(2, 101, "append", None, prompt(1, "step/start", ""))]


def test_S184_a_changed_prompt_replaces_the_head_before_its_header() -> None:
    rows = converted(
        STEP,
        USER,
        header("one"),
        header("one"),
        STEP_END,
        header("one"),
        ("step/start", {"turn": 1, "step": 2}),
        header(" "),
        header(),
        header(""),
    )
    assert prompts(rows) == [
        (1, 100, "append", None, prompt(0, "step/start", "")),
        (3, 102, Replace(1, 1), (1,), prompt(2, "request/header", "one")),
        (9, 107, Replace(3, 3), (3,), prompt(7, "request/header", " ", 2)),
        (11, 108, Replace(9, 9), (9,), prompt(8, "request/header", "", 2)),
    ]
    headers = [row.data for row in rows if row.type == "request/header"]
    assert headers == [{"header": {"config": CONFIG}, "reason": "initial"}] * 6


def test_S184_a_log_without_step_and_surface_gets_no_head() -> None:
    rows = converted(("todo/write", {"todos": []}), header())
    assert [row.type for row in rows] == ["todo/write", "request/header"]


COLLIDING = prompt(1, "request/header", "x")["message"]


@pytest.mark.parametrize(
    ("events", "match"),
    [
        ([USER], "'user/message' at seq 0: .*before the first step"),
        ([("turn/start", {}), ("tool/result", {}, "append")], "'tool/result' at seq 1"),
        ([header("x")], "'request/header' at seq 0: .*outside a step"),
        ([STEP, STEP_END, header("x")], "outside a step"),
        ([STEP, ("turn/end", {}), header("x")], "outside a step"),
        ([STEP, header("x"), ("user/message", COLLIDING, "append")], "message id"),
        ([STEP, header("x"), ("agent/inbox/spliced", {"inserted": [COLLIDING]})], "message id"),
        (
            [STEP, header("x"), ("session/title-llm-request", {"messages": [COLLIDING]})],
            "message id",
        ),
    ],
)
def test_S184_what_has_no_place_for_a_prompt_is_unsupported(
    events: list[tuple[Any, ...]], match: str
) -> None:
    with pytest.raises(CannotConvertError, match=match):
        converted(*events)


def test_S184_an_id_that_comes_before_its_prompt_collides_too() -> None:
    taken = prompt(2, "request/header", "x")["message"]
    with pytest.raises(CannotConvertError, match="message id"):
        converted(("agent/inbox/spliced", {"inserted": [taken]}), STEP, header("x"))


def test_S185_references_move_and_replacements_change_their_spelling() -> None:
    rows = converted(
        STEP,
        USER,
        ("user/message", {"id": "v"}, Replace(1, 1), (1,)),
        ("session/title", {"messageSeqs": [1]}),
        ("session-log-deepseek/delivery-accepted", {"throughSeq": 1}),
    )
    assert native_row(rows[3])["surfaceOp"] == {"op": "replace", "startSeq": 2, "endSeq": 2}
    assert native_row(rows[3])["sourceEventSeqs"] == [2]
    assert [row.data for row in rows[4:]] == [{"messageSeqs": [2]}, {"throughSeq": 1}]


def test_S185_empty_lists_leave_the_header_and_others_stay() -> None:
    config = {**CONFIG, "stop": []}
    data = {"header": {"tools": [], "adapterDefaults": {}, "config": config}, "reason": "initial"}
    (row,) = converted(("request/header", data))
    assert row.data == {"header": {"config": config}, "reason": "initial"}
    kept = {"tools": "{{tools}}", "adapterDefaults": {"maxTokens": True}, "config": config}
    (row,) = converted(("request/header", {"header": kept, "reason": "initial"}))
    assert row.data == {"header": kept, "reason": "initial"}


def test_S185_code_becomes_ptc() -> None:
    old = {"id": "m", "source": {"kind": "plugin", "plugin": "tools-code-mode", "form": "notice"}}
    new = {"id": "m", "source": {"kind": "plugin", "plugin": "tools-ptc", "form": "notice"}}
    other = {"id": "m", "source": {"kind": "code", "plugin": "tools-code-mode"}}
    rows = converted(
        STEP,
        ("tool/code-dispatch-start", {"name": "tool/code-dispatch"}),
        ("tool/code-dispatch", {}),
        ("user/message", old, "append"),
        ("agent/inbox/spliced", {"inserted": [old, other]}),
        ("session/title-llm-request", {"messages": [old], "messageSeqs": []}),
        ("agent-preset/selected", {"agentPreset": "code"}),
        ("agent-preset/selected", {"agentPreset": "coder"}),
    )[2:]
    assert [(row.type, row.data) for row in rows] == [
        ("tool/ptc-dispatch-start", {"name": "tool/code-dispatch"}),
        ("tool/ptc-dispatch", {}),
        ("user/message", new),
        ("agent/inbox/spliced", {"inserted": [new, other]}),
        ("session/title-llm-request", {"messages": [new], "messageSeqs": []}),
        ("agent-preset/selected", {"agentPreset": "ptc"}),
        ("agent-preset/selected", {"agentPreset": "coder"}),
    ]
    assert EDGES[2].header({"agentPreset": "code"}) == {"agentPreset": "ptc", "version": 3}
    assert EDGES[2].header({"agentPreset": "x"}) == {"agentPreset": "x", "version": 3}
    assert EDGES[2].header({"id": "s"}) == {"id": "s", "version": 3}


def result(**block: object) -> tuple[Any, ...]:
    message = {"id": "r", "content": [{"type": "tool-result", **block}]}
    return "tool/result", {"message": message, "error": {"name": "E", "code": "C"}}, "append"


@pytest.mark.parametrize(
    "event",
    [
        result(),
        result(isError=False),
        ("user/message", {"id": "u"}, "append", ()),
        ("session-log-deepseek/delivery-accepted", {"sessionFormatVersion": 3}),
    ],
)
def test_S185_what_format_3_cannot_say_is_unsupported(event: tuple[Any, ...]) -> None:
    with pytest.raises(CannotConvertError, match=f"'{event[0]}' at seq 1"):
        converted(STEP, event)


def test_S185_what_it_can_say_passes() -> None:
    mark = ("session-log-deepseek/delivery-accepted", {"sessionFormatVersion": 2})
    block = ("user/message", {"id": "u", "content": [{"type": "chart", "x": 1}]}, "append")
    rows = converted(STEP, result(isError=True), mark, block)
    assert [row.data for row in rows[2:]] == [
        event[1] for event in (result(isError=True), mark, block)
    ]


def test_S184_a_prompt_that_is_no_text_is_corruption() -> None:
    with pytest.raises(BrokenRowError, match="'request/header' at seq 1"):
        converted(STEP, ("request/header", {"header": {"system": 1}}))
