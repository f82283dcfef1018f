"""The worked example of the contract (S147), row by row."""

import hashlib
import json

import pytest

from dsh_brand import encode_json
from dsh_session import (
    Session,
    decode_stored_event,
    encode_event,
    event_to_json,
    header_from_json,
    header_to_json,
    interrupted_turn_closers,
)
from dsh_session._rows import decode_row  # noqa: PLC2701  # that no row leaves the fast path is what is tested
from dsh_session.testing import WORKED_EXAMPLE

LINES = WORKED_EXAMPLE.splitlines()
EVENTS = [decode_stored_event(line) for line in LINES[1:]]


def test_S147_example_is_the_one_of_the_contract() -> None:
    digest = hashlib.sha256(WORKED_EXAMPLE).hexdigest()
    assert len(WORKED_EXAMPLE) == 2842
    assert digest == "96fcde74c519e046ec028311777899cd65bb4bd23c2f8a8ff4e9134431f54546"


def test_S147_rows_are_encoded_byte_for_byte() -> None:
    assert [encode_event(event) for event in EVENTS] == LINES[1:]


def test_S138_header_is_written_in_order() -> None:
    value = json.loads(LINES[0])
    del value["type"]
    header = header_from_json(value)
    assert encode_json({"type": "session", **header_to_json(header)}) == LINES[0]


@pytest.mark.parametrize("line", [line for line in LINES[1:] if b"plugin:acme" not in line])
def test_S169_rows_of_registered_types_are_read_by_the_typed_decoder(line: bytes) -> None:
    assert decode_row(line) is not None


def test_S147_the_log_folds_and_derives_as_told() -> None:
    header = json.loads(LINES[0])
    del header["type"]
    session = Session.from_restore(header["id"], EVENTS, header_from_json(header))
    assert list(session.surface.nodes) == [2, 11]
    assert [message.id for message in session.derive_messages()] == ["k"]
    assert EVENTS[11].source_event_seqs == (3, 5, 6, 7)


@pytest.mark.parametrize(
    ("kept", "types", "time"),
    [
        pytest.param(5, ["step/end", "turn/end"], 1789000000101, id="attempt-cut-away"),
        pytest.param(6, ["tool/result", "step/end", "turn/end"], 1789000000114, id="not-started"),
        pytest.param(7, ["tool/result", "step/end", "turn/end"], 1789000000115, id="unknown"),
    ],
)
def test_S85_S86_closers_of_the_cut_example(kept: int, types: list[str], time: int) -> None:
    closers = interrupted_turn_closers(EVENTS[:kept])
    assert [event.type for event in closers] == types
    assert [event.seq for event in closers] == list(range(kept, kept + len(types)))
    assert {event.time for event in closers} == {time}
    if kept > 5:
        result = event_to_json(closers[0])
        assert result.get("sourceEventSeqs") == (None if kept == 6 else [6])
        code = "TOOL_NOT_STARTED" if kept == 6 else "TOOL_OUTCOME_UNKNOWN"
        assert result["data"]["error"]["code"] == code  # type: ignore[index, call-overload]  # JSON
        assert result["data"]["message"]["id"] == f"interrupted-tool-result-c1-{kept}"  # type: ignore[index, call-overload]  # JSON
