"""Old logs in a store: read in memory, published once, never changed."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from dsh_cordis import Context
from dsh_session import SessionId, TurnStart, interrupted_turn_closers
from dsh_session_jsonl import Compression, JsonlPersistence, JsonlStore, zstd_frames
from dsh_session_jsonl.config import Config
from dsh_session_jsonl.durable_files import publish
from dsh_session_persistence import (
    SessionAlreadyExistsError,
    SessionAlreadyOwnedError,
    SessionFormatUnsupportedError,
    SessionPersistenceCorruptionError,
    SessionStorageError,
)
from dsh_session_persistence.testing import sample_header

pytest_plugins = ["dsh_cordis.testing"]

ID = SessionId("old")
BOTH = pytest.mark.parametrize("compression", ["none", "zstd"])
Json = dict[str, Any]  # rows of every shape
HEADER: Json = {"type": "session", "version": 0, "id": "old", "createdAt": 5}


def rows(turns: int = 1) -> list[Json]:
    """A log of format 0: two chunks in one packed row, and their message, in every turn."""
    out: list[Json] = []
    for turn in range(1, turns + 1):
        seq = (turn - 1) * 8
        step: Json = {"turn": turn, "step": 1}
        user: Json = {"id": f"u{turn}", "role": "user", "content": [], "source": {"kind": "user"}}
        answer: Json = {"id": f"a{turn}", "role": "assistant", "content": []}
        answer["source"] = {"kind": "model", "provider": "p", "model": "m"}
        chunks: Json = {**step, "index": 0, "dt": [1], "texts": ["a", "b"]}
        out += [
            {"type": "turn/start", "seq": seq, "time": 10, "data": {"turn": turn}},
            {"type": "step/start", "seq": seq + 1, "time": 10, "data": step},
            {
                "type": "user/message",
                "seq": seq + 2,
                "time": 10,
                "data": user,
                "surfaceOp": "append",
            },
            {"type": "text-chunks", "seq0": seq + 3, "time0": 10, "data": chunks},
            {
                "type": "assistant/message",
                "seq": seq + 5,
                "time": 12,
                "data": {**step, "message": answer},
                "sourceEventSeqs": [seq + 3, seq + 4],
                "surfaceOp": "append",
            },
            {"type": "step/end", "seq": seq + 6, "time": 12, "data": step},
            {
                "type": "turn/end",
                "seq": seq + 7,
                "time": 12,
                "data": {"turn": turn, "reason": {"kind": "completed"}},
            },
        ]
    return out


def text_of(lines: list[Json]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def stored(
    root: Path, lines: list[Json], compression: Compression = "none", tail: bytes = b""
) -> Path:
    """The lines as a log of format 0 in its place."""
    folder = root / "_no-cwd" / "old"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ("session.jsonl" if compression == "none" else "session.jsonl.zstd")
    head, body = text_of([HEADER]), text_of(lines) + tail
    if compression == "zstd":
        head, body = zstd_frames.encode_frame(head), zstd_frames.encode_frame(body)
    path.write_bytes(head + body)
    return path


@BOTH
def test_S176_reading_converts_in_memory_and_writing_publishes(
    tmp_path: Path, compression: Compression
) -> None:
    path = stored(tmp_path, rows(2), compression)
    before = path.read_bytes()
    store = JsonlStore(tmp_path, compression)
    assert store.stat(ID).header.version == 4
    reader = store.open(ID, "read")
    assert [event.seq for event in reader.read()] == list(range(13))
    assert reader.path == path
    assert sorted(entry.name for entry in path.parent.iterdir()) == [path.name]

    writer = store.open(ID, "write")
    assert list(writer.read()) == list(reader.read())
    successor = path.with_name(path.name.replace("session.", "session.v4.", 1))
    assert (writer.path, reader.path) == (successor, successor)
    assert successor.stat().st_mode & 0o777 == 0o600
    (event,) = [event for event in writer.read() if event.data == TurnStart(turn=2)]
    writer.append([_later(event, 13, TurnStart(turn=3))])
    writer.close()
    assert path.read_bytes() == before
    # A reader that began with the old log sees what was added.
    assert [event.seq for event in reader.read()] == list(range(14))
    assert len(store.open(ID, "read").read()) == 14
    assert [entry.name for entry in path.parent.glob("*.tmp")] == []


def _later(event: Any, seq: int, data: object) -> Any:  # a struct, as it comes
    import msgspec

    return msgspec.structs.replace(event, seq=seq, data=data)


def test_S109_the_id_of_an_old_log_is_taken(tmp_path: Path) -> None:
    stored(tmp_path, rows())
    with pytest.raises(SessionAlreadyExistsError):
        JsonlStore(tmp_path, "none").create(sample_header("old", cwd=None), 0)


def test_S176_only_the_owner_publishes(tmp_path: Path) -> None:
    path = stored(tmp_path, rows())
    store = JsonlStore(tmp_path, "none")
    owner = store.open(ID, "write")
    with pytest.raises(SessionAlreadyOwnedError):
        JsonlStore(tmp_path, "none").open(ID, "write")
    owner.close()
    assert path.with_name("session.v4.jsonl").exists()


def test_S176_a_successor_that_somebody_else_published_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(tmp_path, rows(2))
    shorter = stored(tmp_path / "other", rows(1))
    JsonlStore(tmp_path / "other", "none").open(ID, "write").close()
    theirs = shorter.with_name("session.v4.jsonl").read_bytes()

    def overtaken(target: Path, data: bytes) -> None:
        target.write_bytes(theirs)
        publish(target, data)

    monkeypatch.setattr("dsh_session_jsonl._old_reader.publish", overtaken)
    writer = JsonlStore(tmp_path, "none").open(ID, "write")
    assert len(writer.read()) == 7
    writer.close()
    assert path.with_name("session.v4.jsonl").read_bytes() == theirs


def test_S176_an_old_log_that_changes_meanwhile_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(tmp_path, rows(1))
    revisions = iter(["before", "before", "after"])
    monkeypatch.setattr("dsh_session_jsonl._old_reader.revision_of", lambda status: next(revisions))
    with pytest.raises(SessionStorageError, match="older build is writing"):
        JsonlStore(tmp_path, "none").open(ID, "write")
    assert not path.with_name("session.v4.jsonl").exists()


@pytest.mark.parametrize("fault", ["write", "damage"])
def test_S176_a_failed_publication_leaves_the_old_log_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    path = stored(tmp_path, rows())

    def failing(target: Path, data: bytes) -> None:
        if fault == "write":
            raise OSError(28, "no space left")
        publish(target, data[:-40])

    monkeypatch.setattr("dsh_session_jsonl._old_reader.publish", failing)
    with pytest.raises(SessionStorageError, match="converted log"):
        JsonlStore(tmp_path, "none").open(ID, "write")
    assert sorted(entry.name for entry in path.parent.iterdir()) == [
        "session.jsonl",
        "session.lock",
    ]
    monkeypatch.undo()
    JsonlStore(tmp_path, "none").open(ID, "write").close()


def test_S104_a_reader_follows_an_old_log_that_grows(tmp_path: Path) -> None:
    path = stored(tmp_path, rows(1))
    reader = JsonlStore(tmp_path, "none").open(ID, "read")
    assert len(reader.read()) == 7
    stored(tmp_path, rows(2))
    assert len(reader.read()) == 13
    os.truncate(path, len(text_of([HEADER, *rows(1)])))
    assert len(reader.read()) == 13, "less than before"


@BOTH
@pytest.mark.parametrize("cut", [1, 60, 200, 400])
def test_S177_a_torn_tail_is_left_out_and_stays(
    tmp_path: Path, compression: Compression, cut: int
) -> None:
    path = stored(tmp_path, rows(2), compression)
    data = path.read_bytes()[:-cut]
    path.write_bytes(data)
    store = JsonlStore(tmp_path, compression)
    found = list(store.open(ID, "read").read())
    assert len(found) <= 13
    writer = store.open(ID, "write")
    assert list(writer.read()) == found
    writer.close()
    assert path.read_bytes() == data


def test_S177_a_packed_row_counts_whole(tmp_path: Path) -> None:
    lines = rows(2)
    half = json.dumps(lines[10])[:-30].encode()
    stored(tmp_path, lines[:10], tail=half)
    events = JsonlStore(tmp_path, "none").open(ID, "read").read()
    assert len(events) == 10
    assert [event.type for event in interrupted_turn_closers(events)] == ["step/end", "turn/end"]


def test_S177_S181_an_attempt_that_the_log_ends_in_is_kept(tmp_path: Path) -> None:
    stored(tmp_path, rows(2)[:11])
    events = JsonlStore(tmp_path, "none").open(ID, "read").read()
    assert [event.type for event in events[-2:]] == ["user/message", "assistant/attempt"]
    assert [event.seq for event in events] == list(range(11))


def test_S177_a_whole_row_in_its_place_that_breaks_a_rule_is_no_torn_tail(tmp_path: Path) -> None:
    stored(tmp_path, [*rows(), {"type": "turn/start", "seq": 8, "time": 1, "data": {}, "more": 1}])
    with pytest.raises(SessionPersistenceCorruptionError) as caught:
        JsonlStore(tmp_path, "none").open(ID, "read")
    assert caught.value.line == 9


@pytest.mark.parametrize(
    ("change", "line"),
    [
        pytest.param(lambda lines: lines.insert(3, {}), 5, id="no row"),
        pytest.param(lambda lines: lines[3].update(seq0=4), 5, id="a run elsewhere"),
        pytest.param(lambda lines: lines[5].update(seq=9), 7, id="an event elsewhere"),
    ],
)
def test_S177_damage_before_a_turn_end_is_corruption(
    tmp_path: Path, change: Any, line: int
) -> None:
    lines = rows(1)
    change(lines)
    path = stored(tmp_path, lines)
    before = path.read_bytes()
    for access in ("read", "write"):
        with pytest.raises(SessionPersistenceCorruptionError) as caught:
            JsonlStore(tmp_path, "none").open(ID, access)
        assert caught.value.line == line
    assert path.read_bytes() == before
    assert not path.with_name("session.v4.jsonl").exists()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            lambda lines: lines[0]["data"].update(turn=7),
            "no valid log of format 0: .*turn 7.*seq 0",
        ),
        (lambda lines: lines[2].pop("surfaceOp"), "surfaceOp.*from seq 2 of the file"),
        (lambda lines: lines[2]["data"].pop("content"), "'user/message'"),
        (lambda lines: lines[2]["data"].pop("id"), "missing 'id'"),
        (lambda lines: lines[2]["data"].update(id=""), "non-empty id"),
        (lambda lines: lines[3]["data"].update(dt=[]), "dt has one"),
        (lambda lines: lines[0].update(surfaceOp="append"), "log-only"),
        (lambda lines: lines[0].update(data={"turn": 1, "x": float("inf")}), "not JSON"),
        (lambda lines: lines[0].update(more=1), "unknown keys"),
    ],
)
def test_S177_a_log_that_breaks_the_rules_is_corruption(
    tmp_path: Path, change: Any, match: str
) -> None:
    lines = rows()
    change(lines)
    stored(tmp_path, lines)
    with pytest.raises(SessionPersistenceCorruptionError, match=match):
        JsonlStore(tmp_path, "none").open(ID, "read")


@pytest.mark.parametrize(
    "event",
    [
        {"type": "acme/x", "data": {}},
        {"type": "image/offload", "data": {"targets": []}},
        {"type": "tool/ptc-dispatch", "data": {}},
        {"type": "mode/set", "data": {}},
    ],
)
@pytest.mark.parametrize("tail", [b"", b"damage\n"])
def test_S118_S178_a_required_unknown_event_is_refused_even_behind_damage(
    tmp_path: Path, event: Json, tail: bytes
) -> None:
    row = json.dumps({**event, "seq": 8, "time": 1}).encode() + b"\n"
    path = stored(tmp_path, rows(), tail=tail + row)
    if tail and event["type"] == "mode/set":
        return  # known to format 0: what its edge refuses is not looked at behind damage
    for access in ("read", "write"):
        with pytest.raises(SessionFormatUnsupportedError, match=f"'{event['type']}' at seq 8"):
            JsonlStore(tmp_path, "none").open(ID, access)
    assert not path.with_name("session.v4.jsonl").exists()


def test_S178_an_ignorable_unknown_event_is_kept(tmp_path: Path) -> None:
    odd = {
        "type": "acme/x",
        "seq": 8,
        "time": 1,
        "data": [1e300],
        "surfaceOp": 1,
        "ignorable": True,
    }
    stored(tmp_path, [*rows(), odd])
    JsonlStore(tmp_path, "none").open(ID, "write").close()
    path = tmp_path / "_no-cwd" / "old" / "session.v4.jsonl"
    kept = json.loads(path.read_text("utf-8").splitlines()[-1])
    assert kept == {**odd, "type": "plugin:acme/x", "seq": 7}


def test_S29_S177_numbers_of_an_old_log_mean_what_javascript_reads(tmp_path: Path) -> None:
    lines = rows()
    lines[0]["data"]["odd"] = [2**60, -0.0, 3.0]
    stored(tmp_path, lines)
    path = tmp_path / "_no-cwd" / "old" / "session.v4.jsonl"
    JsonlStore(tmp_path, "none").open(ID, "write").close()
    row = path.read_text("utf-8").splitlines()[1]
    assert '"odd":[1152921504606847000,0,3]' in row


def test_S177_calls_that_do_not_pair_are_opened_and_told(tmp_path: Path) -> None:
    lines = rows()
    call = {"type": "tool-call", "id": "c", "name": "ls", "arguments": "{}"}
    lines[4]["data"]["message"]["content"] = [call]
    stored(tmp_path, lines)
    with capture_logs() as logs:
        events = JsonlStore(tmp_path, "none").open(ID, "read").read()
    assert len(events) == 7
    assert [entry["seqs"] for entry in logs if entry["event"] == "session.import.unpaired"] == [[5]]


@pytest.mark.parametrize(
    ("header", "error"),
    [
        ({**HEADER, "version": 1}, SessionPersistenceCorruptionError),
        ({**HEADER, "version": 9}, SessionFormatUnsupportedError),
        ({**HEADER, "version": "0"}, SessionPersistenceCorruptionError),
        ({**HEADER, "sandboxMode": "x"}, SessionFormatUnsupportedError),
        ({**HEADER, "seedLength": -1}, SessionPersistenceCorruptionError),
        ({**HEADER, "seedLength": 99}, SessionPersistenceCorruptionError),
        ({**HEADER, "createdAt": "x"}, SessionPersistenceCorruptionError),
        ({**HEADER, "id": "else"}, SessionPersistenceCorruptionError),
        ([], SessionPersistenceCorruptionError),
    ],
)
def test_S119_S179_a_header_that_is_none_is_refused(
    tmp_path: Path, header: Any, error: type[Exception]
) -> None:
    path = stored(tmp_path, rows())
    path.write_bytes(text_of([header, *rows()]))
    store = JsonlStore(tmp_path, "none")
    for access in ("read", "write"):
        with pytest.raises(error):
            store.open(ID, access)
    listing = store.list()
    if header == {**HEADER, "seedLength": 99}:
        assert len(listing.sessions) == 1, "a listing reads the header only"
    else:
        assert [problem.session_id for problem in listing.problems] == [ID]


async def test_S176_an_old_session_is_resumed_through_the_service(
    ctx: Context, tmp_path: Path
) -> None:
    stored(tmp_path, rows())
    persistence = JsonlPersistence(ctx, Config(root=tmp_path, compression="none"))
    async with await persistence.open(ID, "write") as handle:
        events = await handle.read()
        assert len(events) == 7
        await handle.append([_later(events[0], 7, TurnStart(turn=2))])
    async with await persistence.open(ID, "read") as handle:
        assert len(await handle.read()) == 8
