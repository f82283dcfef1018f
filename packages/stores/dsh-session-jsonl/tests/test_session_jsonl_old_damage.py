"""Whatever an old log holds: it converts, or it is refused in the two ways there are."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh_session import SessionEvent, SessionId
from dsh_session_jsonl import JsonlStore
from dsh_session_jsonl.layout import log_name
from dsh_session_persistence import (
    SessionFormatUnsupportedError,
    SessionPersistenceCorruptionError,
)

Json = dict[str, Any]  # rows of every shape
USER = {"kind": "user"}
PLUGIN = {"kind": "plugin", "plugin": "tools-code-mode"}
STEP = {"turn": 1, "step": 1}
CONFIG = {"provider": "p", "model": "m"}
CHUNK = {"type": "block-start", "index": 0, "blockType": "chart"}


def log_of(version: int) -> list[Json]:
    """A log that uses what the edges of that version look at."""
    model = {"kind": "model", "provider": "p", "model": "m"}
    answer: Json = {"id": "a", "role": "assistant", "content": [], "source": model}
    answer["content"] = [{"type": "tool-call", "id": "c", "name": "ls", "arguments": "{}"}]
    result = {"type": "tool-result", "toolCallId": "c", "content": [{"type": "chart"}]}
    tool = {
        "id": "r",
        "role": "user",
        "content": [result],
        "source": {"kind": "tool", "callId": "c"},
    }
    message = {"id": "u", "role": "user", "content": [{"type": "text", "text": "x"}]}
    prompt = {
        "id": "s",
        "role": "system",
        "content": [],
        "source": {"kind": "plugin", "plugin": "x"},
    }
    stream = [{"type": "chunk", "time": 1, "chunk": CHUNK}]
    first, last = ("startSeq", "endSeq") if version == 3 else ("start", "end")
    rows: list[Json] = [
        {"type": "turn/start", "data": {"turn": 1}},
        {"type": "step/start", "data": STEP},
        {"type": "user/message", "data": {**message, "source": PLUGIN}, "surfaceOp": "append"},
        {"type": "request/header", "data": {"header": {"config": CONFIG}, "reason": "initial"}},
        {"type": "session/title", "data": {"title": "x", "messageSeqs": [2]}},
    ]
    if version < 3:
        rows[3]["data"]["header"]["system"] = "be nice"
    else:
        source = {"kind": "plugin", "plugin": "@deepseek-ai/dsh-system-prompt"}
        data = {**STEP, "message": {**prompt, "source": source}}
        rows.insert(2, {"type": "system/message", "data": data, "surfaceOp": "append"})
        rows[-1]["data"]["messageSeqs"] = [3]
    at = len(rows)
    settled: Json = {"type": "assistant/message", "data": {**STEP, "message": answer}}
    settled["surfaceOp"] = "append"
    if version < 2:
        rows.append({"type": "assistant/chunk", "data": {**STEP, "chunk": CHUNK}})
        rows.append(
            {"type": "text-chunks", "data": {**STEP, "index": 0, "dt": [1], "texts": ["a", "b"]}}
        )
        rows.append({**settled, "sourceEventSeqs": [at, at + 1, at + 2]})
    else:
        rows.append({**settled, "data": {**settled["data"], "stream": stream}})
    call = {**STEP, "callId": "c", "name": "ls", "arguments": "{}"}
    seq = at + (3 if version < 2 else 0)
    rows += [
        {"type": "tool/call", "data": call},
        {
            "type": "tool/result",
            "data": {**STEP, "message": tool},
            "surfaceOp": "append",
            "sourceEventSeqs": [seq + 1],
        },
        {
            "type": "tool/result",
            "data": {**STEP, "message": tool},
            "surfaceOp": {"op": "replace", first: seq + 2, last: seq + 2},
            "sourceEventSeqs": [seq + 2],
        },
        {"type": "llm/retry", "data": {**STEP, "provider": "p", "retryId": "r"}},
        {"type": "compaction/start", "data": {"turn": 1}},
        {"type": "compaction/end", "data": {"turn": 1}},
        {"type": "acme/x", "data": None, "ignorable": True},
        {"type": "step/end", "data": STEP},
        {
            "type": "agent/inbox/spliced",
            "data": {"target": "next-turn", "start": 0, "inserted": [{**message, "source": USER}]},
        },
        {"type": "turn/start", "data": {"turn": 2}},
    ]
    return list(_numbered(rows))


def _numbered(rows: list[Json]) -> Iterator[Json]:
    seq = 0
    for row in rows:
        if row["type"] == "text-chunks":
            yield {"type": row["type"], "seq0": seq, "time0": seq, "data": row["data"]}
            seq += 2
        else:
            yield {**row, "seq": seq, "time": seq}
            seq += 1


def header_of(version: int) -> Json:
    header: Json = {"type": "session", "version": version, "id": "s", "createdAt": 1}
    return {**header, "delegationDepth": 0, **({"isSeeded": False} if version >= 2 else {})}


def opened(version: int, rows: list[Any]) -> list[SessionEvent]:  # rows that are none, too
    """The events after conversion; the published log holds the same."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "_no-cwd" / "s"
        folder.mkdir(parents=True)
        text = "".join(json.dumps(row) + "\n" for row in [header_of(version), *rows])
        path = folder / log_name(version, "none")
        path.write_text(text, "utf-8")
        store = JsonlStore(Path(root), "none")
        events = list(store.open(SessionId("s"), "read").read())
        store.open(SessionId("s"), "write").close()
        assert list(store.open(SessionId("s"), "read").read()) == events
        assert path.read_text("utf-8") == text
        return events


@pytest.mark.parametrize("version", range(4))
def test_S177_the_undamaged_log_converts(version: int) -> None:
    types = [event.type for event in opened(version, log_of(version))]
    assert types.count("system/message") == (1 if version == 3 else 2)
    assert types.count("tool/result") == 2
    assert types.count("turn/end") == 1, "the open turn"
    assert types[-1] == "turn/start"


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:  # any JSON
    """The paths to all parts of a value."""
    yield path
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in inner:
        yield from places(item, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:  # any JSON
    """A copy with another value at the path; without the part if there is none."""
    if not path:
        return new
    copy = value.copy()
    if len(path) == 1 and new is places:
        del copy[path[0]]
    else:
        copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


ODD = st.one_of(
    st.sampled_from([places, None, True, False, 0, 1, -1, 5, 1.5, 2**60, "", "append", [], {}]),
    st.sampled_from(
        [[[]], [{}], [1, [2, 3]], {"kind": "plugin"}, {"type": "tool-result"}, "plugin"]
    ),
)


@given(st.integers(0, 3), st.data())
@settings(max_examples=150, deadline=None)
def test_S177_a_damaged_log_converts_or_is_refused(version: int, data: st.DataObject) -> None:
    rows: list[Any] = log_of(version)  # as above
    for _ in range(data.draw(st.integers(1, 2))):
        index = data.draw(st.integers(0, len(rows) - 1))
        path = data.draw(st.sampled_from([p for p in places(rows[index]) if p] or [()]))
        new = data.draw(ODD)
        rows[index] = changed(rows[index], path, new) if path or new is not places else None
    try:
        events = opened(version, rows)
    except (SessionFormatUnsupportedError, SessionPersistenceCorruptionError):
        return
    assert [event.seq for event in events] == list(range(len(events)))
