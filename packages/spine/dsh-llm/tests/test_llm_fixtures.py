"""Messages and streams as the reference harness recorded them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dsh_brand import JsonValue, decode, decode_json, encode, from_json, json_equal, to_json
from dsh_llm import AssistantStreamAccumulator, Message, StreamChunk, expand_assistant_stream

RECORDINGS = Path(__file__).parents[4] / ".." / "shared" / "fixtures" / "upstream-sessions"


def objects(value: JsonValue) -> Iterator[dict[str, JsonValue]]:
    stack: list[JsonValue] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield item
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


@pytest.fixture(scope="module")
def recorded() -> list[dict[str, JsonValue]]:
    if not RECORDINGS.is_dir():
        pytest.skip("the recordings of the reference lie beside a full checkout only")
    return [
        found
        for path in sorted(RECORDINGS.rglob("session*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
        for found in objects(decode_json(line))
    ]


def test_L2_recorded_messages_come_back_as_they_were(recorded: list[dict[str, JsonValue]]) -> None:
    messages = [m for m in recorded if {"id", "role", "content", "source"} <= m.keys()]
    assert messages
    for stored in messages:
        message = from_json(Message, stored)
        assert json_equal(to_json(message), stored)
        assert decode(Message, encode(message)) == message


def test_L187_recorded_streams_expand_and_pack_to_themselves(
    recorded: list[dict[str, JsonValue]],
) -> None:
    streams = [m["stream"] for m in recorded if isinstance(m.get("stream"), list)]
    assert streams
    for stored in streams:
        assert isinstance(stored, list)
        accumulator = AssistantStreamAccumulator()
        for time, chunk in expand_assistant_stream([r for r in stored if isinstance(r, dict)]):
            assert isinstance(chunk, StreamChunk)
            accumulator.push(time, chunk)
        assert json_equal(to_json(accumulator.snapshot()), stored)
