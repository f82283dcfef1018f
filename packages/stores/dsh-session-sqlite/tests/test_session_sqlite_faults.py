"""Disks that refuse: a batch is stored whole or not at all, and the error says where."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dsh_session import SessionId
from dsh_session_persistence import SessionStorageError
from dsh_session_persistence.testing import files_limited_to, sample_events, sample_header
from dsh_session_sqlite import SqliteStore

ID = SessionId("sample")


def test_S143_S148_a_batch_that_does_not_fit_is_refused_whole_and_may_be_retried(
    tmp_path: Path,
) -> None:
    path = tmp_path / "sessions.db"
    log = SqliteStore(path).create(sample_header(), 0)
    log.append(sample_events(3))
    size = path.with_name("sessions.db-wal").stat().st_size
    for _ in range(2):
        with (
            files_limited_to(size + 5000),
            pytest.raises(SessionStorageError, match=r"sessions\.db, session 'sample'") as caught,
        ):
            log.append(sample_events(500, start=3))
        assert isinstance(caught.value.__cause__, sqlite3.Error)
        assert list(log.read()) == sample_events(3)
        assert list(SqliteStore(path).open(ID, "read").read()) == sample_events(3)
    log.append(sample_events(500, start=3))
    log.close()
    assert list(SqliteStore(path).open(ID, "read").read()) == sample_events(503)


def test_S144_S148_a_database_that_could_not_be_made_leaves_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "new" / "sessions.db")
    log = store.create(sample_header(), 0)
    with files_limited_to(5000), pytest.raises(SessionStorageError):
        log.append(sample_events(3))
    assert not log.materialized
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert not store.list().sessions
    log.append(sample_events(3))
    log.close()
    assert list(store.open(ID, "read").read()) == sample_events(3)


def test_S144_S148_a_failed_first_batch_leaves_no_session(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    store.create(sample_header("other"), 0).flush()
    log = store.create(sample_header(), 0)
    size = store.path.with_name("sessions.db-wal").stat().st_size
    with files_limited_to(size + 1000), pytest.raises(SessionStorageError):
        log.append(sample_events(300))
    assert not log.materialized
    assert [row.header.id for row in store.list().sessions] == ["other"]
    # The claim went with it: somebody else may create the session.
    second = store.create(sample_header(), 0)
    second.append(sample_events(1))
    second.close()
    log.close()


def test_S148_a_database_locked_by_somebody_else_is_named_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsh_session_sqlite._database._BUSY_S", 0.05)
    path = tmp_path / "sessions.db"
    log = SqliteStore(path).create(sample_header(), 0)
    log.append(sample_events(1))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SessionStorageError, match="locked"):
            log.append(sample_events(1, start=1))
        assert list(SqliteStore(path).open(ID, "read").read()) == sample_events(1)
        other.execute("ROLLBACK")
    log.append(sample_events(1, start=1))
    log.close()
    assert list(SqliteStore(path).open(ID, "read").read()) == sample_events(2)


def test_S148_the_files_are_private(tmp_path: Path) -> None:
    path = tmp_path / "made" / "sessions.db"
    log = SqliteStore(path).create(sample_header(), 0)
    log.append(sample_events(1))
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes == {
        "sessions.db": 0o600,
        "sessions.db-wal": 0o600,
        "sessions.db-shm": 0o600,
        "sessions.db-locks": 0o700,
    }
    assert path.parent.stat().st_mode & 0o777 == 0o700
    log.close()
