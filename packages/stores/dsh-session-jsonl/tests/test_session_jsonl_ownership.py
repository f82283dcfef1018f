"""One writer at a time, also between processes, also when one is killed."""

import fcntl
from pathlib import Path

import pytest

from dsh_session import SessionId
from dsh_session_jsonl import JsonlStore
from dsh_session_persistence import (
    SessionAlreadyExistsError,
    SessionAlreadyOwnedError,
    SessionOwnershipLostError,
    SessionPersistenceNotFoundError,
)
from dsh_session_persistence.testing import sample_events, sample_header

ID = SessionId("sample")


def test_S123_the_second_of_two_creators_loses_and_changes_nothing(tmp_path: Path) -> None:
    first = JsonlStore(tmp_path, "none").create(sample_header(), 0)
    second = JsonlStore(tmp_path, "none").create(sample_header(), 0)
    first.append(sample_events(2))
    with pytest.raises(SessionAlreadyOwnedError, match=r"session\.lock"):
        second.append(sample_events(1))
    first.close()
    with pytest.raises(SessionAlreadyExistsError):
        second.append(sample_events(1))
    second.close()
    assert list(JsonlStore(tmp_path, "none").open(ID, "read").read()) == sample_events(2)


def test_S123_two_creators_in_two_projects_and_the_second_loses(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path, "none")
    first = store.create(sample_header(cwd="/a"), 0)
    second = store.create(sample_header(cwd="/b"), 0)
    first.append(sample_events(1))
    with pytest.raises(SessionAlreadyExistsError, match="--a--"):
        second.append(sample_events(1))
    second.close()
    first.close()
    assert list(store.open(ID, "read").read()) == sample_events(1)


@pytest.mark.parametrize(("races", "owned"), [(2, True), (3, False)])
def test_S124_a_lock_on_a_replaced_file_excludes_nobody_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, races: int, owned: bool
) -> None:
    store = JsonlStore(tmp_path, "none")
    log = store.create(sample_header(), 0)
    log.append(sample_events(1))
    log.close()
    assert log.path is not None
    lock_file = log.path.parent / "session.lock"
    flock = fcntl.flock
    calls: list[int] = []

    def racing(descriptor: int, operation: int) -> None:
        calls.append(operation)
        if len(calls) <= races:
            lock_file.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", racing)
    if owned:
        store.open(ID, "write").close()
    else:
        with pytest.raises(SessionAlreadyOwnedError):
            store.open(ID, "write")
    assert len(calls) == 3


def test_S123_an_unwritten_session_has_no_footprint(tmp_path: Path) -> None:
    log = JsonlStore(tmp_path, "none").create(sample_header(), 0)
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_S125_an_absent_id_leaves_no_lock_file(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path, "none")
    with pytest.raises(SessionPersistenceNotFoundError):
        store.open(ID, "write")
    assert list(tmp_path.rglob("*")) == []


def test_S125_a_failed_open_leaves_no_lock_behind(tmp_path: Path) -> None:
    log = JsonlStore(tmp_path, "none").create(sample_header(), 0)
    log.append(sample_events(1))
    log.close()
    path = log.path
    assert path is not None
    data = path.read_bytes()
    path.write_bytes(b"[]\n")
    store = JsonlStore(tmp_path, "none")
    with pytest.raises(Exception, match="no valid header"):
        store.open(ID, "write")
    path.write_bytes(data)
    store.open(ID, "write").close()
    assert (path.parent / "session.lock").exists()


def test_S103_a_removed_lock_file_forfeits_the_claim(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path, "none")
    wedged = store.create(sample_header(), 0)
    wedged.append(sample_events(1))
    assert wedged.path is not None
    (wedged.path.parent / "session.lock").unlink()
    heir = store.open(ID, "write")
    heir.append(sample_events(1, start=1))
    for _ in range(2):
        with pytest.raises(SessionOwnershipLostError, match="lock file"):
            wedged.append(sample_events(1, start=1))
    heir.close()
    wedged.close()
    assert list(store.open(ID, "read").read()) == sample_events(2)


def test_S103_a_log_changed_by_somebody_else_is_not_written_to(tmp_path: Path) -> None:
    log = JsonlStore(tmp_path, "none").create(sample_header(), 0)
    log.append(sample_events(1))
    path = log.path
    assert path is not None
    with path.open("ab") as file:
        file.write(b"{}\n")
    before = path.read_bytes()
    with pytest.raises(SessionOwnershipLostError, match="somebody else changed"):
        log.append(sample_events(1, start=1))
    log.close()
    assert path.read_bytes() == before
