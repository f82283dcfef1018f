"""One writer at a time, also between processes, also when one is killed."""

import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import dsh_session_sqlite
from dsh_session import SessionId
from dsh_session_persistence import (
    SessionAlreadyExistsError,
    SessionAlreadyOwnedError,
    SessionOwnershipLostError,
    SessionPersistenceNotFoundError,
    SessionStorageError,
)
from dsh_session_persistence.testing import sample_events, sample_header, writer_process
from dsh_session_sqlite import SqliteStore

ID = SessionId("sample")

KILLED_BEFORE_COMMIT = """
import os, signal, sqlite3, sys
from pathlib import Path
from dsh_session_sqlite import SqliteStore
from dsh_session_persistence.testing import sample_events, sample_header, writer_process

class Deadly(sqlite3.Connection):
    batches = 0
    def execute(self, sql, *args):
        Deadly.batches += sql == "BEGIN IMMEDIATE"
        if sql == "COMMIT" and Deadly.batches == 3:
            super().execute("PRAGMA cache_spill = 1")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(sql, *args)

connect = sqlite3.connect
sqlite3.connect = lambda *args, **kw: connect(*args, factory=Deadly, **kw)
log = SqliteStore(Path(sys.argv[1])).create(sample_header(), 0)
for batch in range(5):
    log.append(sample_events(int(sys.argv[2]), start=batch * int(sys.argv[2])))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


def stored(path: Path) -> list[object]:
    return list(SqliteStore(path).open(ID, "read").read())


def test_S148_two_processes_write_two_sessions_side_by_side(path: Path) -> None:
    with writer_process((dsh_session_sqlite, {"path": str(path)})):
        log = SqliteStore(path).create(sample_header("other"), 0)
        log.append(sample_events(3))
        log.close()
    assert [row.header.id for row in SqliteStore(path).list().sessions] == ["sample", "other"]


@pytest.mark.parametrize("size", [3, pytest.param(20_000, id="larger than the page cache")])
def test_S148_a_writer_killed_inside_a_transaction_leaves_nothing_of_it(
    path: Path, size: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_BEFORE_COMMIT, str(path), str(size)], check=False, timeout=60
    )
    assert done.returncode == -signal.SIGKILL
    log = SqliteStore(path).open(ID, "write")
    assert log.end == 2 * size
    log.append(sample_events(2, start=2 * size))
    log.close()
    assert stored(path) == sample_events(2 * size + 2)


def test_S123_S148_the_second_of_two_creators_loses_and_changes_nothing(path: Path) -> None:
    first = SqliteStore(path).create(sample_header(), 0)
    second = SqliteStore(path).create(sample_header(cwd="/elsewhere"), 0)
    first.append(sample_events(2))
    with pytest.raises(SessionAlreadyOwnedError):
        second.append(sample_events(1))
    first.close()
    with pytest.raises(SessionAlreadyExistsError, match=r"sessions\.db"):
        second.append(sample_events(1))
    second.close()
    assert stored(path) == sample_events(2)


def test_S148_creators_of_the_database_meet_in_one(path: Path) -> None:
    errors: list[Exception] = []
    start = threading.Barrier(4)

    def create(number: int) -> None:
        try:
            log = SqliteStore(path).create(sample_header(f"s{number}"), 0)
            start.wait(5)
            log.append(sample_events(number + 1))
            log.close()
        except Exception as error:  # noqa: BLE001  # handed to the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not errors
    counts = {row.header.id: row.event_count for row in SqliteStore(path).list().sessions}
    assert counts == {"s0": 1, "s1": 2, "s2": 3, "s3": 4}
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "sessions.db",
        "sessions.db-locks",
    ]


def test_S125_a_released_claim_leaves_no_file_and_an_absent_id_none_at_all(path: Path) -> None:
    store = SqliteStore(path)
    with pytest.raises(SessionPersistenceNotFoundError):
        store.open(ID, "write")
    store.create(sample_header(), 0).close()
    assert list(path.parent.iterdir()) == []
    log = store.create(sample_header(), 0)
    log.flush()
    (lock,) = (path.parent / "sessions.db-locks").iterdir()
    assert lock.stat().st_mode & 0o777 == 0o600
    log.close()
    with pytest.raises(SessionPersistenceNotFoundError):
        store.open(SessionId("nobody"), "write")
    assert list((path.parent / "sessions.db-locks").iterdir()) == []


def test_S103_a_removed_lock_file_forfeits_the_claim(path: Path) -> None:
    store = SqliteStore(path)
    wedged = store.create(sample_header(), 0)
    wedged.append(sample_events(1))
    (lock,) = (path.parent / "sessions.db-locks").iterdir()
    lock.unlink()
    heir = store.open(ID, "write")
    heir.append(sample_events(1, start=1))
    for _ in range(2):
        with pytest.raises(SessionOwnershipLostError, match="lock file"):
            wedged.append(sample_events(1, start=1))
    wedged.close()
    with pytest.raises(SessionAlreadyOwnedError):
        store.open(ID, "write")
    heir.close()
    assert stored(path) == sample_events(2)


def test_S148_a_stale_end_is_refused_whatever_the_locks_say(path: Path) -> None:
    log = SqliteStore(path).create(sample_header(), 0)
    log.append(sample_events(2))
    with sqlite3.connect(path) as other:
        other.execute("DELETE FROM events WHERE seq = 1")
        other.execute("UPDATE sessions SET event_count = 1")
    other.close()
    for _ in range(2):
        with pytest.raises(SessionOwnershipLostError, match="somebody else changed"):
            log.append(sample_events(1, start=2))
    log.close()
    assert stored(path) == sample_events(1)


def test_S148_a_database_that_was_removed_or_replaced_is_not_written_to(path: Path) -> None:
    store = SqliteStore(path)
    log = store.create(sample_header(), 0)
    log.append(sample_events(1))
    away = path.with_name("away.db")
    path.rename(away)
    with pytest.raises(SessionOwnershipLostError, match="was removed"):
        log.append(sample_events(1, start=1))
    with pytest.raises(SessionStorageError, match="close its sessions"):
        store.create(sample_header("other"), 0)
    with pytest.raises(SessionStorageError, match=r"sessions\.db-wal of it is left"):
        SqliteStore(path).create(sample_header("other"), 0).append(sample_events(1))
    log.close()
    away.rename(path)
    log = SqliteStore(path).open(ID, "write")
    log.append(sample_events(1, start=1))
    log.close()
    assert stored(path) == sample_events(2)


def test_S148_looking_at_the_file_drops_no_lock_of_an_open_session(path: Path) -> None:
    log = SqliteStore(path).create(sample_header(), 0)
    log.append(sample_events(1))
    SqliteStore(path).stat(ID)
    look = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('PRAGMA user_version').fetchall(); c.execute('SELECT * FROM events').fetchall(); c.close()"
    subprocess.run([sys.executable, "-c", look, str(path)], check=True, timeout=30)
    # The last one out removes it; without our locks the other process thinks it is the last.
    assert path.with_name("sessions.db-wal").exists()
    log.append(sample_events(1, start=1))
    log.close()
    assert not path.with_name("sessions.db-wal").exists()
    assert stored(path) == sample_events(2)
