"""What is no session database of this build is refused, and left as it is."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dsh_session import SessionId
from dsh_session_persistence import (
    SessionAlreadyExistsError,
    SessionFormatUnsupportedError,
    SessionPersistenceCorruptionError,
    SessionStorageError,
)
from dsh_session_persistence.testing import sample_events, sample_header
from dsh_session_sqlite import SqliteStore

ID = SessionId("sample")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with three sessions of six events."""
    path = tmp_path / "sessions.db"
    store = SqliteStore(path)
    for session_id in ("first", "sample", "last"):
        log = store.create(sample_header(session_id), 0)
        log.append(sample_events(6))
        log.close()
    return path


def change(path: Path, sql: str, *arguments: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(sql, arguments).rowcount != 0


def folder_of(path: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(file): (file.lstat().st_mtime_ns, file.read_bytes())
        for file in path.parent.rglob("*")
        if file.is_file()
    }


def foreign_database(path: Path, mode: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute("CREATE TABLE sessions (id)")


@pytest.mark.parametrize("content", ["empty", "text", "short", "rollback", "wal"])
def test_S148_a_foreign_file_is_refused_before_anything_is_touched(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "notes.db"
    if content in ("rollback", "wal"):
        foreign_database(path, "WAL" if content == "wal" else "DELETE")
    else:
        path.write_bytes({"empty": b"", "text": b"my notes " * 99, "short": b"SQLite"}[content])
    before = folder_of(path)
    with pytest.raises(SessionStorageError, match=r"no session database.*notes\.db"):
        SqliteStore(path)
    assert folder_of(path) == before


def test_S148_a_newer_schema_is_refused_with_the_advice_to_upgrade(path: Path) -> None:
    change(path, "PRAGMA user_version = 2")
    before = folder_of(path)
    with pytest.raises(SessionFormatUnsupportedError, match=r"schema 2.*upgrade"):
        SqliteStore(path)
    assert folder_of(path) == before


def test_S148_a_schema_that_got_newer_in_the_log_of_sqlite_is_refused_too(path: Path) -> None:
    store = SqliteStore(path)
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 2")
        with pytest.raises(SessionFormatUnsupportedError, match="upgrade"):
            store.open(ID, "write")
        (problem,) = store.list().problems
        assert isinstance(problem.error, SessionFormatUnsupportedError)


@pytest.mark.parametrize("name", ["sessions.db", "sessions.db-wal", "sessions.db-shm"])
def test_S148_symbolic_links_are_refused(tmp_path: Path, path: Path, name: str) -> None:
    target = tmp_path / "elsewhere"
    link = tmp_path / name
    if link.exists():
        link.rename(target)
    link.symlink_to(target)
    with pytest.raises(SessionStorageError, match="symbolic link"):
        SqliteStore(path)


def test_S148_a_folder_behind_a_symbolic_link_is_fine(tmp_path: Path, path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    store = SqliteStore(tmp_path / "link" / "sessions.db")
    assert store.path == path
    assert len(store.list().sessions) == 3


def test_S148_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SessionStorageError, match="no file at all"):
        SqliteStore(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SessionStorageError, match="cannot be made"):
        SqliteStore(tmp_path / "file" / "below" / "sessions.db")


@pytest.mark.parametrize("ending", ["-wal", "-journal"])
def test_S148_no_database_is_made_beside_the_remains_of_another(
    tmp_path: Path, ending: str
) -> None:
    remains = tmp_path / f"sessions.db{ending}"
    remains.write_bytes(b"pages of a removed database")
    log = SqliteStore(tmp_path / "sessions.db").create(sample_header(), 0)
    with pytest.raises(SessionStorageError, match="bring the database back"):
        log.append(sample_events(1))
    assert list(tmp_path.iterdir()) == [remains]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("UPDATE events SET event = '{\"type\":' WHERE session = 2 AND seq = 4", "seq 4"),
        (
            "UPDATE events SET event = CAST(x'ff00fe' AS TEXT) WHERE session = 2 AND seq = 1",
            "seq 1",
        ),
        ("UPDATE events SET event = NULL OR 7 WHERE session = 2 AND seq = 0", "seq 0"),
        (
            "UPDATE events SET event = replace(event, '\"seq\":3', '\"seq\":4') "
            "WHERE session = 2 AND seq = 3",
            "seq 3 is damaged: event at seq 4: expected seq 3",
        ),
        ("DELETE FROM events WHERE session = 2 AND seq = 2", "seq 2 is missing"),
        ("DELETE FROM events WHERE session = 2 AND seq = 5", "5 of 6 events"),
        ("UPDATE events SET seq = 9 WHERE session = 2 AND seq = 5", "seq 5 is missing"),
        ("UPDATE sessions SET header = '[]' WHERE number = 2", "no valid header"),
        ("UPDATE sessions SET header = replace(header, 'sample', 'x') WHERE number = 2", "another"),
        (
            "UPDATE events SET event = replace(event, '\"turn\":2', '\"turn\":7') "
            "WHERE session = 2 AND seq = 3",
            "turn",
        ),
    ],
)
def test_S120_S148_a_damaged_row_is_corruption_of_that_session_only(
    path: Path, sql: str, said: str
) -> None:
    change(path, sql)
    store = SqliteStore(path)
    for access in ("read", "write"):
        with pytest.raises(SessionPersistenceCorruptionError, match=said) as caught:
            store.open(ID, "read" if access == "read" else "write")
        assert caught.value.location == f"{path}, session 'sample'"
    for other in ("first", "last"):
        log = store.open(SessionId(other), "write")
        log.append(sample_events(3, start=6))
        log.close()
        assert list(store.open(SessionId(other), "read").read()) == sample_events(9)
    listed = store.list()
    assert len(listed.sessions) + len(listed.problems) == 3
    for problem in listed.problems:
        assert problem.session_id == "sample"
    assert list((path.parent / "sessions.db-locks").iterdir()) == []


def test_S118_S148_an_event_of_a_required_unknown_type_is_unsupported(path: Path) -> None:
    change(
        path,
        "UPDATE events SET event = replace(event, 'turn/end', 'acme/new') "
        "WHERE session = 2 AND seq = 5",
    )
    with pytest.raises(SessionFormatUnsupportedError, match="acme/new"):
        SqliteStore(path).open(ID, "write")


def test_S119_S148_a_header_of_a_newer_format_is_a_problem_entry(path: Path) -> None:
    change(
        path,
        "UPDATE sessions SET header = replace(header, '\"version\":4', '\"version\":5') "
        "WHERE number = 2",
    )
    store = SqliteStore(path)
    with pytest.raises(SessionFormatUnsupportedError, match="5"):
        store.stat(ID)
    listed = store.list()
    assert [row.header.id for row in listed.sessions] == ["first", "last"]
    (problem,) = listed.problems
    assert problem.session_id == ID
    assert isinstance(problem.error, SessionFormatUnsupportedError)


def test_S120_S148_missing_tables_are_corruption(path: Path) -> None:
    change(path, "ALTER TABLE events RENAME TO others")
    store = SqliteStore(path)
    with pytest.raises(SessionPersistenceCorruptionError, match="database is damaged"):
        store.open(ID, "read")
    change(path, "ALTER TABLE sessions RENAME TO more")
    listed = store.list()
    assert not listed.sessions
    assert isinstance(listed.problems[0].error, SessionPersistenceCorruptionError)


def test_S120_S148_overwritten_pages_are_corruption_and_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    log = SqliteStore(path).create(sample_header(), 0)
    log.append(sample_events(300))
    log.close()
    data = path.read_bytes()
    for at in range(4096, len(data), 4096):
        damaged = data[:at] + b"\xa5" * 512 + data[at + 512 :]
        path.write_bytes(damaged)
        try:
            read = SqliteStore(path).open(ID, "read").read()
        except SessionPersistenceCorruptionError:
            pass
        else:
            # A page that the reading did not need.
            assert list(read) == sample_events(300)
        assert path.read_bytes() == damaged
    path.write_bytes(data)
    assert list(SqliteStore(path).open(ID, "read").read()) == sample_events(300)


def test_S120_S148_a_session_does_not_disappear_with_a_damaged_index(path: Path) -> None:
    data = path.read_bytes()
    places = [at for at in range(len(data)) if data.startswith(b"sample", at)]
    assert len(places) == 3  # the index, the row, its header
    for place in places:
        path.write_bytes(data[:place] + b"S" + data[place + 1 :])
        try:
            events = SqliteStore(path).open(ID, "read").read()
        except SessionPersistenceCorruptionError:
            pass
        else:
            # Index and header agree on the id: what the row has for it does not matter.
            assert list(events) == sample_events(6)
        with pytest.raises((SessionAlreadyExistsError, SessionPersistenceCorruptionError)):
            SqliteStore(path).create(sample_header(), 0)


def test_S120_S148_a_schema_that_is_no_text_is_corruption(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"REFERENCES", b"\xd2EFERENCES"))
    with pytest.raises(SessionPersistenceCorruptionError, match="database is damaged"):
        SqliteStore(path).open(ID, "read")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_S148_a_lost_permission_is_named_and_nothing_is_lost(path: Path) -> None:
    store = SqliteStore(path)
    path.chmod(0o400)
    with pytest.raises(SessionStorageError, match=r"sessions\.db"):
        store.open(ID, "write")
    path.chmod(0o600)
    assert list(SqliteStore(path).open(ID, "read").read()) == sample_events(6)
