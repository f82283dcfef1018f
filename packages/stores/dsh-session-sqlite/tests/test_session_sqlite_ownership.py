"""One writer at a time, also between processes, also when one is killed."""

import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dsh_session import SessionId
from dsh_session_persistence import (
    SessionAlreadyExistsError,
    SessionAlreadyOwnedError,
    SessionOwnershipLostError,
    SessionPersistenceNotFoundError,
    SessionStorageError,
)
from dsh_session_persistence.testing import sample_events, sample_header
from dsh_session_sqlite import SqliteStore

ID = SessionId("sample")

WRITER = """
import sys
from pathlib import Path
from dsh_session_sqlite import SqliteStore
from dsh_session_persistence.testing import sample_events, sample_header

path, ready, count = Path(sys.argv[1]), *map(int, sys.argv[2:])
log = SqliteStore(path).create(sample_header(), 0)
for seq in range(count):
    log.append(sample_events(1, start=seq))
    if seq + 1 == ready:
        sys.stdout.write("ready\\n")
        sys.stdout.flush()
sys.stdin.read()
"""

KILLED_BEFORE_COMMIT = """
import os, signal, sqlite3, sys
from pathlib import Path
from dsh_session_sqlite import SqliteStore
from dsh_session_persistence.testing import sample_events, sample_header

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


@contextmanager
def writer_process(
    path: Path, *, ready: int = 1, count: int = 1
) -> Iterator[subprocess.Popen[str]]:
    """Another process that owns the session, and ends when its input does."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(ready), str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


def stored(path: Path) -> list[object]:
    return list(SqliteStore(path).open(ID, "read").read())


def test_S148_a_second_process_is_refused_until_the_first_ends(path: Path) -> None:
    store = SqliteStore(path)
    with writer_process(path):
        with pytest.raises(SessionAlreadyOwnedError, match=r"\.lock"):
            store.open(ID, "write")
        assert stored(path) == sample_events(1)
    log = store.open(ID, "write")
    log.append(sample_events(1, start=1))
    log.close()
    assert stored(path) == sample_events(2)


def test_S148_two_processes_write_two_sessions_side_by_side(path: Path) -> None:
    with writer_process(path):
        log = SqliteStore(path).create(sample_header("other"), 0)
        log.append(sample_events(3))
        log.close()
    assert [row.header.id for row in SqliteStore(path).list().sessions] == ["sample", "other"]


def test_S125_S148_a_killed_writer_leaves_every_batch_it_stored(path: Path) -> None:
    with writer_process(path, ready=20, count=1_000_000) as process:
        process.send_signal(signal.SIGKILL)
    log = SqliteStore(path).open(ID, "write")
    count = len(log.read())
    assert count >= 20
    assert list(log.read()) == sample_events(count)
    log.append(sample_events(2, start=count))
    log.close()
    assert stored(path) == sample_events(count + 2)


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
