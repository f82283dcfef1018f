"""Logs of formats 0 to 3 that the reference recorded, converted, against facts computed apart."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dsh_brand import encode_json
from dsh_llm import expand_assistant_stream
from dsh_session import (
    AssistantAttempt,
    AssistantMessageEvent,
    SessionEvent,
    SessionId,
    derive_event_message,
    event_to_json,
    fold_surface,
)
from dsh_session_jsonl import JsonlStore
from dsh_session_jsonl.formats import Chain, native_row, rows_of
from dsh_session_jsonl.layout import log_name, project_segment, session_segment
from dsh_session_persistence import SessionFormatUnsupportedError

RECORDINGS = Path(__file__).parents[5] / "shared" / "fixtures" / "upstream-sessions"
CWD = "/srv/demo"
PACKED = {"text-chunks": "texts", "reasoning-chunks": "texts", "tool-call-chunks": "args"}
Json = dict[str, Any]  # test data of every shape


def facts_of_old() -> dict[str, Json]:
    """By recording: the facts after conversion to format 4."""
    if not RECORDINGS.exists():
        return {}
    text = (RECORDINGS / "newest" / "v0-recordings-as-v4.json").read_text("utf-8")
    facts: dict[str, Json] = json.loads(text)
    newest: dict[str, Json] = json.loads((RECORDINGS / "newest" / "facts.json").read_text("utf-8"))
    for name, entry in newest.items():
        if "migrated_to_v4" in entry:
            facts[f"newest/{name}"] = entry["migrated_to_v4"]
    return facts


FACTS = facts_of_old()
needs_recordings = pytest.mark.skipif(
    not FACTS, reason="the recordings are not beside this checkout"
)


def completed(recording: Path) -> list[Json]:
    """The rows of a recording with what was scrubbed: workspace, seqs, times, ids that repeat."""
    text = recording.read_text("utf-8").replace("{{cwd}}", CWD)
    rows: list[Json] = [json.loads(line) for line in text.splitlines()]
    seq = 0
    for index, row in enumerate(rows[1:], 1):
        members = PACKED.get(row["type"])
        if members is None:
            rows[index] = {"type": row["type"], "seq": seq, "time": 0} | row
            seq += 1
        else:
            rows[index] = {"type": row["type"], "seq0": seq, "time0": 0, "data": row["data"]}
            seq += len(row["data"][members])
    return rows


def stored(root: Path, rows: Sequence[Json]) -> Path:
    """The rows as a plain log in its place below `root`."""
    session_id, version = str(rows[0]["id"]), rows[0]["version"]
    folder = root / project_segment(rows[0].get("cwd")) / session_segment(session_id)
    folder.mkdir(parents=True)
    path = folder / log_name(version, "none")
    path.write_text("".join(line(row) + "\n" for row in rows), "utf-8")
    return path


def line(row: object) -> str:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def facts_of(header_keys: list[str], inherited: int, events: Sequence[SessionEvent]) -> Json:
    """What the facts files say of a log, told by this build."""
    surface = fold_surface(events)
    nodes = [seq for seq in surface.nodes if derive_event_message(events[seq]) is not None]
    rows: list[Json] = [dict(event_to_json(event)) for event in events]
    messages = [rows[seq]["data"].get("message", rows[seq]["data"]) for seq in nodes]
    return {
        "version": 4,
        "header_keys": header_keys,
        "events": len(events),
        "event_types": dict(sorted(Counter(row["type"] for row in rows).items())),
        "surface_nodes": list(surface.nodes),
        "replacements": [
            {"seq": r.seq, "start": r.start, "end": r.end, "shadowedSeqs": list(r.shadowed_seqs)}
            for r in surface.replacements
        ],
        "derived_roles": [message["role"] for message in messages],
        "derived_source_kinds": [message["source"]["kind"] for message in messages],
        "derived_block_types": [[b["type"] for b in message["content"]] for message in messages],
        "turn_ends": [row["data"]["reason"]["kind"] for row in of_type(rows, "turn/end")],
        "request_headers": [
            [row["seq"], row["data"]["reason"]] for row in of_type(rows, "request/header")
        ],
        "end_seeds": [
            [row["seq"], row["data"] == {"inherited": True}]
            for row in of_type(rows, "session/end-seed")
        ],
        "inherited_event_count": inherited,
        "streams": [stream_facts(event) for event in events if has_stream(event)],
        "interrupted_messages": [
            row["seq"]
            for row in of_type(rows, "assistant/message")
            if row["data"].get("interrupted")
        ],
        "tool_results": [result_facts(row) for row in of_type(rows, "tool/result")],
    }


def of_type(rows: Sequence[Json], name: str) -> list[Json]:
    return [row for row in rows if row["type"] == name]


def has_stream(event: SessionEvent) -> bool:
    return isinstance(event.data, AssistantMessageEvent | AssistantAttempt)


def stream_facts(event: SessionEvent) -> Json:
    assert isinstance(event.data, AssistantMessageEvent | AssistantAttempt)
    stream = event.data.stream
    chunks = len(list(expand_assistant_stream(stream)))
    return {"seq": event.seq, "type": event.type, "records": len(stream), "chunks": chunks}


def result_facts(row: Json) -> Json:
    message = row["data"]["message"]
    return {
        "seq": row["seq"],
        "callId": message["toolCallId"],
        "isError": message.get("isError"),
        "errorCode": row["data"].get("error", {}).get("code"),
    }


@needs_recordings
@pytest.mark.parametrize("name", sorted(n for n, facts in FACTS.items() if "refused" not in facts))
def test_S176_S189_a_recording_of_an_old_format_converts(tmp_path: Path, name: str) -> None:
    rows = completed(RECORDINGS / name)
    path = stored(tmp_path, rows)
    before = path.read_bytes()
    session_id = SessionId(str(rows[0]["id"]))
    store = JsonlStore(tmp_path, "none")

    log = store.open(session_id, "read")
    events = log.read()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name], "reading wrote"

    writer = store.open(session_id, "write")
    writer.close()
    successor = path.with_name("session.v4.jsonl")
    assert writer.path == successor
    assert path.read_bytes() == before, "the old log changed"
    assert list(store.open(session_id, "read").read()) == list(events)
    assert [snapshot.header for snapshot in store.list().sessions] == [log.header]

    header_keys = list(json.loads(successor.read_text("utf-8").splitlines()[0]))
    found = facts_of(header_keys, log.inherited_event_count, events)
    assert found == FACTS[name]


@needs_recordings
@pytest.mark.parametrize("name", sorted(n for n, facts in FACTS.items() if "refused" in facts))
def test_S189_a_message_before_the_first_step_is_refused(tmp_path: Path, name: str) -> None:
    rows = completed(RECORDINGS / name)
    path = stored(tmp_path, rows)
    seq = FACTS[name]["why"].partition("(seq ")[2].rstrip(")")
    store = JsonlStore(tmp_path, "none")
    for access in ("read", "write"):
        with pytest.raises(
            SessionFormatUnsupportedError, match=f"'user/message' at seq {seq}: .*before the first"
        ):
            store.open(SessionId(str(rows[0]["id"])), access)
    names = {entry.name for entry in path.parent.iterdir()}
    assert names <= {path.name, "session.lock"}
    assert len(store.list().sessions) == 1, "the header alone can be converted"


@needs_recordings
def test_S190_the_recorded_pair_converts_byte_for_byte() -> None:
    folder = RECORDINGS / "newest" / "compaction-recovery"
    old = (folder / "session.v3.jsonl").read_text("utf-8").splitlines()
    new = (folder / "session.v4.jsonl").read_text("utf-8").splitlines()
    chain = Chain(3, json.loads(old[0]))
    converted = []
    for seq, text in enumerate(old[1:]):
        for row in rows_of({**json.loads(text), "seq": seq, "time": seq}, 3):
            converted += chain.push(row)
    converted += chain.finish()
    assert [(row.seq, row.time) for row in converted] == [(n, n) for n in range(len(new) - 1)]
    for row, expected in zip(converted, new[1:], strict=True):
        kept = {k: v for k, v in native_row(row).items() if k not in ("seq", "time")}
        assert encode_json(kept).decode() == expected
