"""What is refused: other formats, other encodings, corruption. Nothing refused is ever written."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dsh_session import SessionId, interrupted_turn_closers
from dsh_session_jsonl import JsonlStore
from dsh_session_persistence import (
    SessionFormatUnsupportedError,
    SessionPersistenceCorruptionError,
    SessionPersistenceNotFoundError,
)
from dsh_session_persistence.testing import sample_events, sample_header

ID = SessionId("sample")
CASES = Path(__file__).parents[5] / "shared" / "field-cases"
Row = dict[str, object]


def stored(root: Path, count: int = 6, session_id: str = "sample") -> Path:
    """A plain log of `count` valid events."""
    log = JsonlStore(root, "none").create(sample_header(session_id), 0)
    log.append(sample_events(count))
    log.close()
    assert log.path is not None
    return log.path


def rewrite(path: Path, change: Callable[[list[Row]], object]) -> None:
    """Change the rows of a log (row 0 is the header)."""
    lines: list[Row] = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def refused(root: Path, error: type[Exception], match: str) -> None:
    """Assert that the session cannot be opened and that its folder stays as it is."""
    files = {path: path.read_bytes() for path in root.rglob("session*.jsonl*")}
    for access in ("read", "write"):
        with pytest.raises(error, match=match):
            JsonlStore(root, "none").open(ID, access)
    assert {path: path.read_bytes() for path in files} == files


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("session.v5.jsonl", "newer build"),
        ("session.v40.jsonl", "newer build"),
    ],
)
def test_S119_a_newer_format_is_refused_by_its_name(tmp_path: Path, name: str, match: str) -> None:
    path = stored(tmp_path)
    path.rename(path.with_name(name))
    refused(tmp_path, SessionFormatUnsupportedError, match)
    listing = JsonlStore(tmp_path, "none").list()
    assert not listing.sessions
    assert [problem.session_id for problem in listing.problems] == [ID]


@pytest.mark.parametrize("name", ["session.v3.jsonl", "session.jsonl"])
def test_S136_the_version_of_the_header_is_the_one_of_the_name(tmp_path: Path, name: str) -> None:
    path = stored(tmp_path)
    path.rename(path.with_name(name))
    refused(tmp_path, SessionPersistenceCorruptionError, "the header says format 4")
    listing = JsonlStore(tmp_path, "none").list()
    assert not listing.sessions
    assert [problem.session_id for problem in listing.problems] == [ID]


@pytest.mark.parametrize(
    ("version", "error", "match"),
    [
        (5, SessionFormatUnsupportedError, "newer build"),
        (3, SessionPersistenceCorruptionError, "the header says format 3"),
        ("4", SessionPersistenceCorruptionError, "version"),
        (None, SessionPersistenceCorruptionError, "version"),
        (True, SessionPersistenceCorruptionError, "version"),
    ],
)
def test_S119_the_version_is_looked_at_first(
    tmp_path: Path, version: object, error: type[Exception], match: str
) -> None:
    path = stored(tmp_path)
    rewrite(path, lambda rows: rows[0].update(version=version, unknown=1))
    refused(tmp_path, error, match)


def test_S136_the_highest_generation_is_the_log(tmp_path: Path) -> None:
    path = stored(tmp_path)
    path.with_name("session.v3.jsonl").write_text("older", "utf-8")
    path.with_name("session.v4.jsonl.tmp").write_text("no log", "utf-8")
    assert list(JsonlStore(tmp_path, "none").open(ID, "read").read()) == sample_events(6)
    path.with_name("session.v5.jsonl").write_text("newer", "utf-8")
    refused(tmp_path, SessionFormatUnsupportedError, "newer build")


def test_S134_another_encoding_is_refused(tmp_path: Path) -> None:
    stored(tmp_path)
    store = JsonlStore(tmp_path, "zstd")
    with pytest.raises(SessionFormatUnsupportedError, match="encoding is 'none'"):
        store.open(ID, "read")
    listing = store.list()
    assert not listing.sessions
    assert [type(problem.error) for problem in listing.problems] == [SessionFormatUnsupportedError]


def _unknown(rows: list[Row]) -> None:
    rows[2] = {"type": "acme/thing", "seq": 1, "time": 1, "data": None}


def _retired(rows: list[Row]) -> None:
    rows[2] = {"type": "tool/code-dispatch", "seq": 1, "time": 1, "data": {}}


def _unknown_behind_damage(rows: list[Row]) -> None:
    rows[-2:] = [{"seq": 4}, {"type": "acme/thing", "seq": 5, "time": 1, "data": None}]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (_unknown, "'acme/thing' at seq 1"),
        (_retired, "'tool/code-dispatch' at seq 1"),
        (_unknown_behind_damage, "'acme/thing' at seq 5"),
    ],
)
def test_S118_a_required_event_of_another_build_is_refused(
    tmp_path: Path, change: Callable[[list[Row]], object], match: str
) -> None:
    rewrite(stored(tmp_path), change)
    refused(tmp_path, SessionFormatUnsupportedError, match)


def test_S121_an_unknown_ignorable_event_is_kept_verbatim(tmp_path: Path) -> None:
    path = stored(tmp_path, 5)
    row: Row = {"type": "acme/thing", "seq": 5, "time": 7, "data": {"b": [1.5, None], "a": {}}}
    row |= {"surfaceOp": {"any": 1}, "ignorable": True}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, separators=(",", ":")) + "\n")
    before = path.read_bytes()
    log = JsonlStore(tmp_path, "none").open(ID, "write")
    event = log.read()[5]
    log.append(sample_events(1, start=6))
    log.close()
    assert path.read_bytes().startswith(before)
    copy = JsonlStore(tmp_path / "copy", "none").create(sample_header(), 0)
    copy.append([*sample_events(5), event])
    copy.close()
    assert copy.path is not None
    assert json.loads(copy.path.read_bytes().splitlines()[-1]) == row


def _turn_out_of_order(rows: list[Row]) -> None:
    rows[4]["data"] = {"turn": 3}


def _turn_twice(rows: list[Row]) -> None:
    rows[2] = {**rows[1], "seq": 1, "data": {"turn": 2}}


def _step_outside(rows: list[Row]) -> None:
    rows[4] = {"type": "step/start", "seq": 3, "time": 1, "data": {"turn": 1, "step": 1}}


def _marker_without_seed(rows: list[Row]) -> None:
    rows[-1] = {"type": "session/end-seed", "seq": 5, "time": 1, "data": {"inherited": True}}


def _seed_without_marker(rows: list[Row]) -> None:
    rows[0]["isSeeded"] = True


def _plugin_source(rows: list[Row]) -> None:
    message = rows[2]["data"]
    assert isinstance(message, dict)
    message["source"] = {"kind": "plugin", "plugin": "x"}


def _bad_surface(rows: list[Row]) -> None:
    rows[5]["surfaceOp"] = {"op": "replace", "startSeq": 0, "endSeq": 0}
    rows[5]["sourceEventSeqs"] = [0]


def _header_with_system(rows: list[Row]) -> None:
    header = {"config": {"provider": "p", "model": "m"}, "system": "x"}
    data = {"header": header, "reason": "initial"}
    rows[2] = {"type": "request/header", "seq": 1, "time": 1, "data": data}


def _unknown_header_key(rows: list[Row]) -> None:
    rows[0]["seedLength"] = 0


@pytest.mark.parametrize(
    "change",
    [
        _turn_out_of_order,
        _turn_twice,
        _step_outside,
        _marker_without_seed,
        _seed_without_marker,
        _plugin_source,
        _bad_surface,
        _header_with_system,
        _unknown_header_key,
    ],
)
def test_S120_S128_S132_a_log_that_breaks_a_rule_is_corruption(
    tmp_path: Path, change: Callable[[list[Row]], object]
) -> None:
    rewrite(stored(tmp_path), change)
    refused(tmp_path, SessionPersistenceCorruptionError, "session.v4.jsonl")


def test_S145_a_log_in_the_wrong_place_is_refused_and_listed_as_a_problem(tmp_path: Path) -> None:
    path = stored(tmp_path)
    good = stored(tmp_path, 3, "good")
    shutil.copytree(path.parent, path.parent.with_name("other"))
    store = JsonlStore(tmp_path, "none")
    with pytest.raises(SessionPersistenceCorruptionError, match="belongs in"):
        store.open(SessionId("other"), "read")
    listing = store.list()
    assert {snapshot.header.id for snapshot in listing.sessions} == {"sample", "good"}
    assert [problem.session_id for problem in listing.problems] == ["other"]
    assert good.exists()


def test_S145_one_id_in_two_projects_is_refused(tmp_path: Path) -> None:
    stored(tmp_path)
    log = JsonlStore(tmp_path / "elsewhere", "none").create(sample_header(cwd="/b"), 0)
    log.append(sample_events(1))
    log.close()
    shutil.copytree(tmp_path / "elsewhere" / "--b--", tmp_path / "--b--")
    shutil.rmtree(tmp_path / "elsewhere")
    refused(tmp_path, SessionPersistenceCorruptionError, "more than once")
    listing = JsonlStore(tmp_path, "none").list()
    assert not listing.sessions
    assert [problem.session_id for problem in listing.problems] == [ID]


def test_S120_a_workspace_that_may_not_be_read_hides_no_session_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path)
    secret = JsonlStore(tmp_path, "none").create(sample_header("secret", cwd="/locked"), 0)
    secret.append(sample_events(1))
    secret.close()
    iterdir = Path.iterdir

    def guarded(path: Path) -> Iterator[Path]:
        if path.parent.name == "--locked--":
            raise PermissionError(13, "Permission denied", str(path))
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", guarded)
    store = JsonlStore(tmp_path, "none")
    store.open(ID, "write").close()
    with pytest.raises(PermissionError, match="--locked--"):
        store.open(SessionId("secret"), "read")
    fresh = store.create(sample_header("fresh"), 0)
    fresh.append(sample_events(1))
    fresh.close()
    (problem,) = store.list().problems
    assert problem.session_id == "secret"


def test_S110_an_empty_root_has_nothing_and_stays_away(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path / "none-yet", "none")
    assert not store.list().sessions
    with pytest.raises(SessionPersistenceNotFoundError):
        store.open(ID, "write")
    assert not (tmp_path / "none-yet").exists()


def field_case(root: Path, name: str, session_id: str, extra: str = "") -> SessionId:
    """Store a recorded log of format 0 as it is."""
    source = CASES / f"{name}.jsonl"
    if not source.exists():
        pytest.skip("the recorded field cases are not beside this checkout")
    folder = root / "_no-cwd" / session_id
    folder.mkdir(parents=True)
    (folder / "session.jsonl").write_text(source.read_text("utf-8") + extra, "utf-8")
    return SessionId(session_id)


def test_field_case_27_a_crash_after_a_tool_call_is_closed_in_memory(tmp_path: Path) -> None:
    session_id = field_case(tmp_path, "27-crash-after-tool-call", "sess-crash")
    events = JsonlStore(tmp_path, "none").open(session_id, "read").read()
    closers = interrupted_turn_closers(events)
    assert [event.type for event in closers] == [
        "tool/result",
        "tool/result",
        "step/end",
        "turn/end",
    ]
    assert closers[-1].seq == 9, "one more than in the file: the prompt at the head"


def test_field_case_28_a_closed_turn_without_result_opens(tmp_path: Path) -> None:
    session_id = field_case(tmp_path, "28-closed-turn-missing-result", "sess-closed")
    events = JsonlStore(tmp_path, "none").open(session_id, "read").read()
    assert len(events) == 8
    assert interrupted_turn_closers(events) == []


def test_field_case_29_a_torn_line_is_dropped(tmp_path: Path) -> None:
    session_id = field_case(tmp_path, "29-torn-last-line", "sess-torn")
    events = JsonlStore(tmp_path, "none").open(session_id, "read").read()
    assert events[-1].seq == 8
    assert [event.type for event in interrupted_turn_closers(events)] == ["step/end", "turn/end"]


def test_field_case_29_a_torn_line_before_a_turn_end_is_corruption(tmp_path: Path) -> None:
    row = '{"type":"turn/end","seq":9,"time":1,"data":{"turn":2,"reason":{"kind":"completed"}}}\n'
    session_id = field_case(tmp_path, "29-torn-last-line", "sess-torn", "\n" + row)
    with pytest.raises(SessionPersistenceCorruptionError, match="line 10"):
        JsonlStore(tmp_path, "none").open(session_id, "write")


def test_field_case_30_two_writers_are_corruption(tmp_path: Path) -> None:
    session_id = field_case(tmp_path, "30-two-writers-duplicate-seq", "sess-dup")
    stored(tmp_path)
    store = JsonlStore(tmp_path, "none")
    with pytest.raises(SessionPersistenceCorruptionError, match="expected seq 8, found seq 6"):
        store.open(session_id, "read")
    assert {snapshot.header.id for snapshot in store.list().sessions} == {"sess-dup", "sample"}
