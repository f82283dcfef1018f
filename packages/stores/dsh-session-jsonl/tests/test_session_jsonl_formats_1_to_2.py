"""The edge from format 1 to 2: attempts, seqs, open turns, goals, the fork cut."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_session_jsonl.formats import EDGES, BrokenRowError, CannotConvertError, Replace, Row

Json = dict[str, Any]  # payloads of every shape
STOP = {"type": "finish", "reason": {"kind": "stop"}}


def log(*events: tuple[Any, ...]) -> list[Row]:
    """Rows with dense seqs from (type, data, surface op?, cited?); a bare chunk is of step 1/1."""
    rows = []
    for seq, (name, data, *surface) in enumerate(events):
        op = surface[0] if surface else None
        cited = surface[1] if len(surface) > 1 else None
        rows.append(Row(name, seq, 100 + seq, data, seq, op, cited))
    return rows


def chunk(text: str | Json, turn: int = 1, step: int = 1) -> tuple[str, Json]:
    delta = {"type": "text-delta", "index": 0, "text": text} if isinstance(text, str) else text
    return "assistant/chunk", {"turn": turn, "step": step, "chunk": delta}


def message(*cited: int, turn: int = 1, step: int = 1) -> tuple[Any, ...]:
    return "assistant/message", {"turn": turn, "step": step, "message": {}}, "append", cited


def run(text: Sequence[str], time: int) -> Json:
    return {
        "type": "text-chunks",
        "time0": time,
        "index": 0,
        "dt": [1] * (len(text) - 1),
        "texts": list(text),
    }


def converted(rows: Sequence[Row], header: Json | None = None) -> list[Row]:
    edge = EDGES[1]({"id": "s", "createdAt": 7, **(header or {})})
    new = [new for row in rows for new in edge.push(row)] + list(edge.finish())
    assert [row.seq for row in new] == list(range(len(new))), "seqs must be dense"
    return new


def data_of(row: Row) -> Json:
    assert isinstance(row.data, dict)
    return row.data


def types(rows: Sequence[Row]) -> list[str]:
    return [row.type for row in rows]


def test_S181_a_message_takes_the_chunks_it_cites() -> None:
    rows = converted(log(chunk("a"), chunk("b"), chunk(STOP), message(0, 1, 2)))
    (row,) = rows
    stream = [run("ab", 100), {"type": "chunk", "time": 102, "chunk": STOP}]
    assert row.data == {"turn": 1, "step": 1, "message": {}, "stream": stream}
    assert (row.cited, row.op, row.time, row.origin) == (None, "append", 103, 3)


TITLE: tuple[str, Json] = ("session/title", {"messageSeqs": []})


@pytest.mark.parametrize(
    "settling",
    [
        ("step/end", {"turn": 1, "step": 1}),
        ("turn/end", {"turn": 1, "reason": {}}),
        ("llm/retry", {}),
        ("llm/retry-started", {}),
        None,
    ],
)
def test_S181_an_unclaimed_attempt_stands_at_its_last_chunk(
    settling: tuple[str, Json] | None,
) -> None:
    rows = converted(
        log(chunk("a"), TITLE, chunk("b"), TITLE, TITLE, *([settling] if settling else []))
    )
    tail = [settling[0]] if settling else []
    assert types(rows) == ["session/title", "assistant/attempt", *["session/title"] * 2, *tail]
    assert rows[1].data == {
        "turn": 1,
        "step": 1,
        "stream": [{**run("ab", 100), "dt": [2]}],
    }
    assert rows[1].time == 102


def test_S181_a_finish_or_another_step_begins_the_next_attempt() -> None:
    rows = converted(log(chunk("a"), chunk(STOP), chunk("b"), chunk("c", 1, 2), message(3, step=2)))
    assert types(rows) == ["assistant/attempt", "assistant/attempt", "assistant/message"]
    assert [row.time for row in rows] == [101, 102, 104]
    rows = converted(log(chunk("a"), message(step=2, turn=1)))
    assert types(rows) == ["assistant/attempt", "assistant/message"]


def test_S181_a_message_without_chunks_has_an_empty_stream() -> None:
    uncited = ("assistant/message", {"turn": 1, "step": 1, "message": {}}, "append")
    for rows in (log(uncited), log(message())):
        (row,) = converted(rows)
        assert row.cited is None
        assert row.data == {"turn": 1, "step": 1, "message": {}, "stream": []}
    # It says that it has none; the chunks wait for another message.
    rows = converted(log(chunk("a"), message(), ("step/end", {"turn": 1, "step": 1})))
    assert types(rows) == ["assistant/attempt", "assistant/message", "step/end"]


@pytest.mark.parametrize(
    "rows",
    [
        log(chunk("a"), chunk("b"), message(0)),
        log(chunk("a"), chunk("b"), message(1, 0)),
        log(TITLE, chunk("a"), message(0, 1)),
        log(TITLE, message(0)),
        log(chunk("a"), ("assistant/message", {"turn": 1, "step": 1}, "append")),
        log(chunk("a"), ("step/end", {"turn": 1, "step": 1}), message(0)),
    ],
)
def test_S181_citing_anything_else_is_unsupported(rows: list[Row]) -> None:
    with pytest.raises(CannotConvertError, match=f"'assistant/message' at seq {len(rows) - 1}"):
        converted(rows)


def test_S182_references_are_renumbered_and_nothing_else() -> None:
    # Three chunks make one event: what follows moves from 3 to 1, and so on.
    old, new = (
        [
            ("user/message", {"throughSeq": 3}, "append"),
            ("user/message", {"index": 4}, "append"),
            ("user/message", {}, Replace(4 - by, 3 - by), (3 - by, 4 - by)),
            ("command/done", {"sourceEventSeq": 4 - by, "seq": 4}),
            ("compaction/summary", shadowed(by)),
            ("compaction/prune", shadowed(by)),
            ("session/title", {"messageSeqs": [3 - by]}),
            ("session/title-llm-request", {"messageSeqs": [4 - by], "messages": []}),
            ("todo/write", {"shadowedSeqs": [3], "messageSeqs": [3]}),
        ]
        for by in (0, 2)
    )
    rows = converted(log(*[chunk("x")] * 3, *old))[1:]
    assert [(row.type, row.data, row.op, row.cited) for row in rows] == [
        (name, data, *surface, *[None] * (2 - len(surface))) for name, data, *surface in new
    ]


def shadowed(by: int) -> Json:
    return {"shadowedRange": {"start": 3 - by, "end": 5 - by}, "shadowedSeqs": [5 - by, 3 - by]}


def test_S182_a_reference_to_a_vanished_chunk_is_unsupported() -> None:
    with pytest.raises(CannotConvertError, match="'session/title' at seq 1"):
        converted(log(chunk("a"), ("session/title", {"messageSeqs": [0]})))
    with pytest.raises(BrokenRowError, match="no earlier event"):
        converted(log(("session/title", {"messageSeqs": [0]})))


START = ("turn/start", {"turn": 1})
QUEUED = ("agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": [{}]})


def test_S182_a_turn_that_a_restart_left_open_is_interrupted() -> None:
    rows = converted(log(START, QUEUED, ("turn/start", {"turn": 2}), ("turn/end", {"turn": 2})))
    assert types(rows) == [
        "turn/start",
        "agent/inbox/spliced",
        "turn/end",
        "turn/start",
        "turn/end",
    ]
    assert rows[2].data == {"turn": 1, "reason": {"kind": "interrupted"}}
    assert rows[2].time == rows[3].time == 102


@pytest.mark.parametrize(
    "rows",
    [
        log(START, ("turn/start", {"turn": 2})),
        log(START, QUEUED, TITLE, ("turn/start", {"turn": 2})),
        log(START, QUEUED, ("turn/start", {"turn": 3})),
        log(START, ("step/start", {"turn": 1, "step": 1}), QUEUED, ("turn/start", {"turn": 2})),
        log(
            START,
            ("agent/inbox/spliced", {"target": "next-step", "inserted": [{}]}),
            ("turn/start", {"turn": 2}),
        ),
        log(
            START,
            ("agent/inbox/spliced", {"target": "next-turn", "inserted": []}),
            ("turn/start", {"turn": 2}),
        ),
    ],
)
def test_S182_any_other_start_inside_a_turn_is_unsupported(rows: list[Row]) -> None:
    with pytest.raises(CannotConvertError, match=r"'turn/start'.*turn 1 is open"):
        converted(rows)


def test_S182_a_change_of_the_goal_becomes_an_event_of_its_own() -> None:
    change = {"kind": "goal/change", "version": 1}
    source = {"kind": "goal", "change": change}
    plain = {"id": "m", "source": {"kind": "goal"}}
    rows = converted(
        log(
            ("user/message", {"id": "m", "source": source}, "append"),
            ("user/message", plain, Replace(0, 0), (0,)),
        )
    )
    assert types(rows) == ["goal/change", "user/message", "user/message"]
    assert rows[0].data == change
    assert rows[0].op is None
    assert rows[1].data == {"id": "m", "source": {"kind": "plugin", "plugin": "goal"}}
    assert (rows[2].data, rows[2].op, rows[2].cited) == (plain, Replace(1, 1), (1,))


MARKER: tuple[str, Json] = ("session/end-seed", {})
INHERITED = {"inherited": True}


@pytest.mark.parametrize(
    ("cut", "rows", "markers"),
    [
        (0, [], {0: 7}),
        (0, [TITLE], {0: 7}),
        (1, [TITLE], {1: 100}),
        (1, [TITLE, TITLE], {1: 100}),
        (1, [TITLE, MARKER, TITLE], {1: 101}),
        (2, [TITLE, chunk("a")], {2: 101}),
        (2, [MARKER, TITLE, MARKER], {2: 102}),
    ],
)
def test_S182_the_fork_cut_gets_a_tagged_marker(
    cut: int, rows: list[tuple[Any, ...]], markers: dict[int, int]
) -> None:
    found = converted(log(*rows), {"seedLength": cut})
    tagged = {row.seq: row.time for row in found if row.data == INHERITED}
    assert tagged == markers


def test_S182_a_cut_inside_an_attempt_is_unsupported() -> None:
    with pytest.raises(CannotConvertError, match="inside a model attempt"):
        converted(log(chunk("a"), chunk("b")), {"seedLength": 1})
    with pytest.raises(BrokenRowError, match="counts 3 inherited events"):
        converted(log(TITLE), {"seedLength": 3})


def test_S182_the_header_says_whether_there_is_a_seed() -> None:
    assert EDGES[1].header({"version": 1, "id": "s"}) == {
        "version": 2,
        "id": "s",
        "isSeeded": False,
    }
    assert EDGES[1].header({"seedLength": 0}) == {"version": 2, "isSeeded": True}


@given(st.lists(st.sampled_from(["event", "chunk", "finish", "end"]), max_size=30), st.data())
def test_S182_a_reference_names_the_same_event_after_the_edge(
    kinds: list[str], data: st.DataObject
) -> None:
    rows: list[tuple[Any, ...]] = []
    survivors: list[int] = []
    for seq, kind in enumerate(kinds):
        if kind == "event":
            cited = data.draw(st.lists(st.sampled_from(survivors), max_size=4)) if survivors else []
            rows.append(("session/title", {"messageSeqs": cited, "was": seq}))
            survivors.append(seq)
        elif kind == "end":
            rows.append(("step/end", {"turn": 1, "step": 1}))
        else:
            rows.append(chunk(f"{seq}" if kind == "chunk" else STOP))
    found = converted(log(*rows))
    named = [data_of(row) for row in found]
    titles = [data_of(row) for row in found if row.type == "session/title"]
    assert [title["was"] for title in titles] == survivors, "the order of survivors changed"
    for title in titles:
        assert [named[seq]["was"] for seq in title["messageSeqs"]] == rows[title["was"]][1][
            "messageSeqs"
        ]
    chunks = [row for row in rows if row[0] == "assistant/chunk"]
    records = [r for row in named for r in row.get("stream", [])]
    assert sum(len(r.get("texts", [0])) for r in records) == len(chunks), "a chunk got lost"
