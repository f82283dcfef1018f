"""Rows of the old formats: packed runs, envelopes, unknown types, pairs of calls and results."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_brand import encode, to_json
from dsh_llm import (
    AssistantStreamAccumulator,
    BlockStart,
    FinishChunk,
    ReasoningDelta,
    StopFinish,
    StreamChunk,
    TextDelta,
    ToolCallDelta,
)
from dsh_session import KNOWN_SESSION_EVENT_TYPES, data_to_json, event_from_json
from dsh_session_jsonl.formats import (
    BrokenRowError,
    CallPairs,
    CannotConvertError,
    Chain,
    Replace,
    Row,
    native_row,
    rows_of,
)
from dsh_session_jsonl.formats.packing import StreamPacker
from dsh_session_jsonl.formats.vocabulary import EVENT_TYPES

Json = dict[str, Any]  # rows of every shape


def run(kind: str, **data: Any) -> Json:  # members of every kind
    head = {"turn": 1, "step": 2, "index": 3}
    return {"type": kind, "seq0": 5, "time0": 100, "data": {**head, **data}}


def test_S179_a_packed_run_is_as_many_chunks_as_it_has_members() -> None:
    rows = rows_of(run("text-chunks", dt=[3, -1], texts=["a", "", "b"]), 0)
    assert [(row.type, row.seq, row.time, row.origin) for row in rows] == [
        ("assistant/chunk", 5, 100, 5),
        ("assistant/chunk", 6, 103, 6),
        ("assistant/chunk", 7, 102, 7),
    ]
    assert [row.data for row in rows] == [
        {"turn": 1, "step": 2, "chunk": {"type": "text-delta", "index": 3, "text": text}}
        for text in ("a", "", "b")
    ]
    (row,) = rows_of(run("reasoning-chunks", dt=[], texts=["x"]), 1)
    chunk = {"type": "reasoning-delta", "index": 3, "text": "x"}
    assert row.data == {"turn": 1, "step": 2, "chunk": chunk}
    for names in ({"id": "c", "name": "ls"}, {"id": "c"}):
        (row,) = rows_of(run("tool-call-chunks", dt=[], args=["{}"], **names), 1)
        chunk = {"type": "tool-call-delta", "index": 3, **names, "argumentsDelta": "{}"}
        assert row.data == {"turn": 1, "step": 2, "chunk": chunk}


@pytest.mark.parametrize(
    "value",
    [
        run("text-chunks", dt=[], texts=[]),
        run("text-chunks", dt=[1], texts=["a"]),
        run("text-chunks", dt=[1.5], texts=["a", "b"]),
        run("text-chunks", dt=[True], texts=["a", "b"]),
        run("text-chunks", dt=1, texts=["a", "b"]),
        run("text-chunks", dt=[], texts=[1]),
        run("text-chunks", dt=[], texts="a"),
        run("text-chunks", dt=[], texts=["a"], more=1),
        run("text-chunks", dt=[], texts=["a"], index=-1),
        run("text-chunks", dt=[2**53 - 1], texts=["a", "b"]),
        run("text-chunks", dt=[], args=["a"], id="c"),
        run("tool-call-chunks", dt=[], args=["a"]),
        run("tool-call-chunks", dt=[], args=["a"], id=1),
        run("tool-call-chunks", dt=[], args=["a"], id="c", name=None),
        {**run("text-chunks", dt=[], texts=["a"]), "ignorable": True},
        {**run("text-chunks", dt=[], texts=["a"]), "time0": "0"},
        {"type": "text-chunks", "seq": 0, "time": 0, "data": {}},
    ],
)
def test_S179_a_malformed_run_is_no_row(value: Json) -> None:
    with pytest.raises(BrokenRowError, match="-chunks'"):
        rows_of(value, 0)


def event(name: str = "user/message", **more: Any) -> Json:  # envelopes of every kind
    return {"type": name, "seq": 9, "time": 1, "data": {}, **more}


@pytest.mark.parametrize("version", [2, 3])
def test_S183_formats_2_and_3_have_no_packed_runs(version: int) -> None:
    with pytest.raises(BrokenRowError):
        rows_of(run("text-chunks", dt=[], texts=["a"]), version)


def test_S179_S183_replacements_have_the_spelling_of_their_format() -> None:
    old = event(surfaceOp={"op": "replace", "start": 2, "end": 1})
    new = event(surfaceOp={"op": "replace", "startSeq": 2, "endSeq": 1})
    for version in range(4):
        (row,) = rows_of(new if version == 3 else old, version)
        assert row.op == Replace(2, 1)
        with pytest.raises(BrokenRowError, match="surfaceOp must be"):
            rows_of(old if version == 3 else new, version)
    (row,) = rows_of(event(surfaceOp="append", sourceEventSeqs=[0, [2, 5], 7.0]), 0)
    assert row.cited == (0, 2, 3, 4, 5, 7)
    assert rows_of(event(sourceEventSeqs=[]), 2)[0].cited == ()
    assert rows_of(event(sourceEventSeqs=[3, 1]), 2)[0].cited == (3, 1)


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        event(seq=-1),
        event(seq=True),
        event(time=None),
        event(more=1),
        event(ignorable=False),
        event(surfaceOp="replace"),
        event(surfaceOp={"op": "replace", "start": 9, "end": 9}),
        event(surfaceOp={"op": "replace", "start": 1, "end": 1, "more": 1}),
        event(sourceEventSeqs=1),
        event(sourceEventSeqs=[9]),
        event(sourceEventSeqs=[1, 1]),
        event(sourceEventSeqs=[5, [1, 3]]),
        event(sourceEventSeqs=[[3, 1]]),
        event(sourceEventSeqs=[[1, 2, 3]]),
        {key: value for key, value in event().items() if key != "data"},
    ],
)
def test_S177_a_malformed_envelope_is_no_row(value: Any) -> None:  # not even objects
    with pytest.raises(BrokenRowError):
        rows_of(value, 0)


UNKNOWN = {
    0: (
        "assistant/attempt",
        "system/message",
        "developer/message",
        "image/offload",
        "tool/ptc-dispatch",
        "acme/x",
    ),
    1: (
        "assistant/attempt",
        "steering/message",
        "mode/set",
        "compact/start",
        "image/offload",
        "acme/x",
    ),
    2: ("assistant/chunk", "system/message", "tool/ptc-dispatch-start", "image/offload", "acme/x"),
    3: ("tool/code-dispatch", "tool/code-dispatch-start", "assistant/chunk", "acme/x"),
}


@pytest.mark.parametrize("version", range(4))
def test_S178_an_unknown_required_event_is_refused_and_an_ignorable_one_kept(version: int) -> None:
    for name in UNKNOWN[version]:
        with pytest.raises(CannotConvertError, match=f"'{name}' at seq 0: format {version}"):
            rows_of(event(name, seq=0), version)
        odd = event(name, seq=0, ignorable=True, surfaceOp=[1], sourceEventSeqs={"a": [[5]]})
        odd["data"] = {"messageSeqs": [0], "deep": [1.5, None]}
        chain = Chain(version, {"id": "s"})
        (row,) = [new for old in rows_of(odd, version) for new in chain.push(old)]
        assert native_row(row) == {**odd, "type": f"plugin:{name}"}
        assert event_from_json(native_row(row)).ignorable


def test_S178_only_the_seq_of_a_foreign_event_moves() -> None:
    chain = Chain(2, {"id": "s"})
    step = event("step/start", seq=0, data={"turn": 1, "step": 1})
    foreign = event("acme/x", seq=1, ignorable=True, data={"seq": 1}, sourceEventSeqs=[0])
    rows = [
        new for value in (step, foreign) for old in rows_of(value, 2) for new in chain.push(old)
    ]
    assert native_row(rows[2]) == {**foreign, "type": "plugin:acme/x", "seq": 2}


def test_S178_the_frozen_names_are_those_of_their_time() -> None:
    assert EVENT_TYPES[3] <= KNOWN_SESSION_EVENT_TYPES
    assert len(EVENT_TYPES[3]) == 59
    gone = {"tool/code-dispatch", "tool/code-dispatch-start"}
    new = {
        "system/message",
        "developer/message",
        "image/offload",
        "tool/ptc-dispatch",
        "tool/ptc-dispatch-start",
    }
    assert EVENT_TYPES[2] == (EVENT_TYPES[3] - new) | gone
    assert EVENT_TYPES[1] == (EVENT_TYPES[2] - {"assistant/attempt"}) | {"assistant/chunk"}


@pytest.mark.parametrize("key", ["sandboxMode", "approvalPolicy"])
def test_S179_a_retired_key_of_an_old_header_is_refused(key: str) -> None:
    for version in (0, 1):
        with pytest.raises(CannotConvertError, match=key):
            Chain(version, {"id": "s", key: "x"})


def test_S179_an_old_header_becomes_one_of_today() -> None:
    old: Json = {
        "version": 0,
        "id": "s",
        "createdAt": 1,
        "cwd": "/a",
        "unknown": 1,
        "agentPreset": "code",
    }
    assert Chain(0, old).header == {
        "version": 4,
        "id": "s",
        "createdAt": 1,
        "cwd": "/a",
        "isSeeded": False,
        "delegationDepth": 0,
        "agentPreset": "ptc",
    }
    seeded: Json = {
        "id": "s",
        "seedLength": 0,
        "parentSession": "p",
        "origin": "subagent",
        "delegationDepth": 2,
    }
    header = Chain(1, seeded).header
    assert header["isSeeded"] is True
    assert "seedLength" not in header
    assert header["delegationDepth"] == 2
    with pytest.raises(BrokenRowError, match="seedLength"):
        Chain(1, {"id": "s", "seedLength": True})


def chunks() -> st.SearchStrategy[StreamChunk]:
    index = st.integers(0, 1)
    text = st.text("ab", max_size=2)
    name = st.sampled_from(["c", "d"])
    return st.one_of(
        st.builds(TextDelta, index=index, text=text),
        st.builds(ReasoningDelta, index=index, text=text),
        st.builds(
            ToolCallDelta,
            index=index,
            id=st.sampled_from(["c", "d", ""]),
            name=st.none() | name,
            arguments_delta=text,
        ),
        st.sampled_from(OTHER_CHUNKS),
    )


OTHER_CHUNKS: list[StreamChunk] = [
    BlockStart(index=0, block_type="text"),
    FinishChunk(reason=StopFinish()),
]


@given(st.lists(st.tuples(st.integers(-5, 5), chunks()), max_size=12))
def test_S181_chunks_are_packed_as_the_live_accumulator_does(
    stream: list[tuple[int, StreamChunk]],
) -> None:
    live, frozen = AssistantStreamAccumulator(), StreamPacker()
    for time, chunk in stream:
        live.push(time, chunk)
        frozen.push(time, json.loads(encode(chunk)))
    assert json.dumps([to_json(record) for record in live.snapshot()]) == json.dumps(frozen.records)


@pytest.mark.parametrize(
    "chunk",
    [
        {"type": "text-delta", "index": 0, "text": "a", "extra": 1},
        {"type": "text-delta", "index": True, "text": "a"},
        {"type": "text-delta", "index": 0, "text": 1},
        {"type": "tool-call-delta", "index": 0, "id": "", "argumentsDelta": ""},
        {"type": "tool-call-delta", "index": 0, "id": "c", "name": "", "argumentsDelta": ""},
        {"type": "new-kind"},
    ],
)
def test_S181_a_chunk_that_no_run_can_hold_stays_whole(chunk: Json) -> None:
    packer = StreamPacker()
    good: Json = {"type": "text-delta", "index": 0, "text": "a"}
    for part in (good, chunk, good):
        packer.push(1, part)
    text = {"type": "text-chunks", "time0": 1, "index": 0, "dt": [], "texts": ["a"]}
    assert packer.records == [text, {"type": "chunk", "time": 1, "chunk": chunk}, text]


def test_S16_a_gap_that_no_double_holds_opens_a_run() -> None:
    packer = StreamPacker()
    for time in (1 - 2**53, 2**53 - 1):
        packer.push(time, {"type": "text-delta", "index": 0, "text": "a"})
    assert len(packer.records) == 2


def message(*calls: str) -> tuple[str, Json]:
    return "assistant/message", {
        "message": {"content": [{"type": "tool-call", "id": c} for c in calls]}
    }


def answer(call: str) -> tuple[str, Json]:
    return "tool/result", {"message": {"toolCallId": call}}


END: tuple[str, Json] = ("step/end", {})


@pytest.mark.parametrize(
    ("events", "broken_at"),
    [
        ([message("a", "b"), answer("b"), answer("a"), END, message("a"), answer("a")], []),
        ([message("a", "a")], [0]),
        ([message("a"), message("a")], [1]),
        ([answer("a")], [0]),
        ([message("a"), answer("a"), answer("a")], [2]),
        ([message("a"), END, answer("a")], [1, 2]),
    ],
)
def test_S177_calls_and_results_that_do_not_pair_are_told(
    events: list[tuple[str, Json]], broken_at: list[int]
) -> None:
    pairs = CallPairs()
    for seq, (name, data) in enumerate(events):
        pairs.push(Row(name, seq, 0, data, seq, "append"))
    assert pairs.broken_at == broken_at


def test_S174_what_no_class_knows_survives_the_chain() -> None:
    data = {
        "id": "m",
        "role": "user",
        "source": {"kind": "acme", "x": 1},
        "content": [],
        "y": [None],
    }
    (row,) = rows_of(event(seq=0, data=data, surfaceOp="append"), 3)
    (new,) = Chain(3, {"id": "s"}).push(row)
    assert data_to_json(event_from_json(native_row(new)).data) == data
