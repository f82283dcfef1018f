"""Logs that the reference recorded load, fold and derive as an independent script says."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from dsh_llm import assemble_assistant_stream, expand_assistant_stream
from dsh_session import (
    AssistantAttempt,
    AssistantMessageEvent,
    EndSeed,
    RequestHeaderEvent,
    Session,
    SessionEvent,
    ToolResultEvent,
    TurnEnd,
    check_log,
    decode_stored_event,
    encode_event,
    event_to_json,
    fold_surface,
    header_from_json,
    inherited_count_of,
)

ROOT = Path(__file__).parents[4].parent / "shared" / "fixtures" / "upstream-sessions" / "newest"
FACTS: dict[str, Any] = (  # JSON
    json.loads((ROOT / "facts.json").read_text(encoding="utf-8"))
    if (ROOT / "facts.json").is_file()
    else {}
)
NAMES = [name for name in FACTS if name.endswith(".v4.jsonl")]

pytestmark = pytest.mark.skipif(not NAMES, reason="the recordings are not at hand")


def rows(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:  # JSON
    text = (ROOT / name).read_text(encoding="utf-8").replace("{{cwd}}", "/work")
    header, *events = map(json.loads, text.splitlines())
    for seq, event in enumerate(events):
        event.update(seq=seq, time=1_789_000_000_000 + seq)
        if event["type"] == "request/header":
            _define_tools(event["data"]["header"])
    del header["type"]
    return header, events


def _define_tools(header: dict[str, Any]) -> None:  # JSON
    names = header.get("tools", [])
    names = ["read"] if names == "{{tools}}" else names
    parameters = {"type": "object", "properties": {}}
    header["tools"] = [
        {"name": name, "description": f"does {name}", "parameters": parameters} for name in names
    ]
    if not names:
        del header["tools"]


def load(name: str) -> tuple[Session, list[dict[str, Any]]]:  # JSON
    header, stored = rows(name)
    events = [decode_stored_event(json.dumps(event).encode()) for event in stored]
    parsed = header_from_json(header)
    inherited = inherited_count_of(events)
    check_log(parsed, events, inherited)
    return Session.from_restore(parsed.id, events, parsed, inherited), stored


@pytest.mark.parametrize("name", NAMES)
def test_recording_keeps_every_value(name: str) -> None:
    session, stored = load(name)
    assert [event_to_json(event) for event in session.events[: len(stored)]] == stored
    for event, row in zip(session.events, stored, strict=False):
        assert json.loads(encode_event(event))["data"] == row["data"]


@pytest.mark.parametrize("name", NAMES)
def test_recording_folds_to_the_surface_of_the_facts(name: str) -> None:
    session, stored = load(name)
    facts = FACTS[name]
    assert list(session.surface.nodes) == facts["surface_nodes"]
    fold = fold_surface(session.events)
    assert list(fold.nodes) == facts["surface_nodes"]
    assert session.surface.replace_generation == len(facts["replacements"])
    assert session.inherited_event_count == facts["inherited_event_count"]
    assert len(stored) == facts["events"]


@pytest.mark.parametrize("name", NAMES)
def test_recording_derives_the_history_of_the_facts(name: str) -> None:
    session, _ = load(name)
    facts = FACTS[name]
    messages = session.derive_messages()
    assert [message.role for message in messages] == facts["derived_roles"]
    assert [message.source.kind for message in messages] == facts["derived_source_kinds"]
    types = [[block.type for block in message.content] for message in messages]
    assert types == facts["derived_block_types"]


@pytest.mark.parametrize("name", NAMES)
def test_recording_has_the_turns_headers_and_results_of_the_facts(name: str) -> None:
    session, stored = load(name)
    facts, events = FACTS[name], session.events[: len(stored)]
    rows_ = [cast("Any", event_to_json(e)) for e in events if isinstance(e.data, TurnEnd)]  # JSON
    ends = [row["data"]["reason"]["kind"] for row in rows_]
    assert ends == facts["turn_ends"]
    headers = [[e.seq, e.data.reason] for e in events if isinstance(e.data, RequestHeaderEvent)]
    assert headers == facts["request_headers"]
    markers = [[e.seq, bool(e.data.inherited)] for e in events if isinstance(e.data, EndSeed)]
    assert markers == facts["end_seeds"]
    assert [_result(e) for e in events if isinstance(e.data, ToolResultEvent)] == [
        (fact["seq"], fact["callId"], fact["isError"], fact.get("errorCode"))
        for fact in facts["tool_results"]
    ]


def _result(event: SessionEvent) -> tuple[int, str | None, bool | None, str | None]:
    data = event.data
    assert isinstance(data, ToolResultEvent)
    code = None if data.error is None else data.error.code
    return event.seq, data.message.tool_call_id, data.message.is_error, code


@pytest.mark.parametrize("name", NAMES)
def test_recorded_streams_expand_to_the_chunks_of_the_facts(name: str) -> None:
    session, _ = load(name)
    found = []
    for event in session.events:
        if isinstance(event.data, AssistantMessageEvent | AssistantAttempt):
            stream = event.data.stream
            chunks = len(list(expand_assistant_stream(stream)))
            assemble_assistant_stream(stream)
            fact = {"seq": event.seq, "type": event.type, "records": len(stream), "chunks": chunks}
            found.append(fact)
    assert found == FACTS[name]["streams"]


@pytest.mark.parametrize("name", NAMES)
def test_S14_a_header_without_tool_definitions_loads(name: str) -> None:
    header, stored = rows(name)
    for event in stored:
        if event["type"] == "request/header":
            event["data"]["header"]["tools"] = "{{tools}}"
    if any(event["type"] == "developer/message" for event in stored):
        return
    events = [decode_stored_event(json.dumps(event).encode()) for event in stored]
    parsed = header_from_json(header)
    session = Session.from_restore(parsed.id, events, parsed, inherited_count_of(events))
    assert [event_to_json(event) for event in session.events[: len(stored)]] == stored
    current = session.request_header()
    assert current is not None
    assert current.config.provider
