"""The worked example of the format, byte for byte."""

import hashlib
from pathlib import Path

import pytest

from dsh_session import (
    SessionHeader,
    SessionId,
    decode_event,
    interrupted_turn_closers,
)
from dsh_session_jsonl import JsonlStore

EXAMPLE = (Path(__file__).parent / "data" / "worked-example.jsonl").read_bytes()
LINES = EXAMPLE.splitlines(keepends=True)
HEADER = SessionHeader(
    id=SessionId("run/7"), created_at=1789000000000, cwd="/srv/demo app", delegation_depth=0
)
EVENTS = [decode_event(line[:-1]) for line in LINES[1:]]


def test_S147_the_example_is_written_byte_for_byte(tmp_path: Path) -> None:
    log = JsonlStore(tmp_path, "none").create(HEADER, 0)
    for event in EVENTS:
        log.append([event])
    log.close()
    path = tmp_path / "--srv-demo~0020app--" / "run~002F7" / "session.v4.jsonl"
    data = path.read_bytes()
    assert len(data) == 2842
    assert (
        hashlib.sha256(data).hexdigest()
        == "96fcde74c519e046ec028311777899cd65bb4bd23c2f8a8ff4e9134431f54546"
    )
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_S147_the_example_is_read_back(tmp_path: Path) -> None:
    path = _stored(tmp_path, EXAMPLE)
    log = JsonlStore(tmp_path, "none").open(HEADER.id, "read")
    assert log.header == HEADER
    assert list(log.read()) == EVENTS
    assert log.read()[11].source_event_seqs == (3, 5, 6, 7)
    assert path.read_bytes() == EXAMPLE


@pytest.mark.parametrize(
    ("low", "high", "count", "closers"),
    [
        (766, 1603, 5, [(5, "step/end"), (6, "turn/end")]),
        (1604, 1732, 6, [(6, "tool/result"), (7, "step/end"), (8, "turn/end")]),
        (1733, 2001, 7, [(7, "tool/result"), (8, "step/end"), (9, "turn/end")]),
    ],
)
def test_S147_a_cut_example_is_closed_as_described(
    tmp_path: Path, low: int, high: int, count: int, closers: list[tuple[int, str]]
) -> None:
    for length in (low, (low + high) // 2, high):
        _stored(tmp_path, EXAMPLE[:length])
        events = JsonlStore(tmp_path, "none").open(HEADER.id, "read").read()
        assert list(events) == EVENTS[:count]
        assert [(event.seq, event.type) for event in interrupted_turn_closers(events)] == closers


def _stored(root: Path, data: bytes) -> Path:
    folder = root / "--srv-demo~0020app--" / "run~002F7"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "session.v4.jsonl"
    path.write_bytes(data)
    return path
