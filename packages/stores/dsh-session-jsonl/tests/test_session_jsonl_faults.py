"""Disks that refuse: a batch is stored whole or not at all, and the error says where."""

import errno
from pathlib import Path

import pytest

from dsh_session import SessionId
from dsh_session_jsonl import Compression, JsonlStore, durable_files
from dsh_session_persistence import SessionStorageError
from dsh_session_persistence.testing import files_limited_to, sample_events, sample_header

ID = SessionId("sample")
BOTH = pytest.mark.parametrize("compression", ["none", "zstd"])


@BOTH
def test_S143_a_batch_that_does_not_fit_is_cut_off_and_may_be_retried(
    tmp_path: Path, compression: Compression
) -> None:
    log = JsonlStore(tmp_path, compression).create(sample_header(), 0)
    log.append(sample_events(3))
    assert log.path is not None
    before = log.path.read_bytes()
    with (
        files_limited_to(len(before) + 60),
        pytest.raises(SessionStorageError, match=r"session\.v4\.jsonl") as caught,
    ):
        log.append(sample_events(50, start=3))
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.EFBIG
    assert log.path.read_bytes() == before
    assert list(log.read()) == sample_events(3)
    log.append(sample_events(50, start=3))
    log.close()
    assert list(JsonlStore(tmp_path, compression).open(ID, "read").read()) == sample_events(53)


@BOTH
def test_S142_S143_a_tail_that_could_not_be_cut_is_cut_by_the_next_append(
    tmp_path: Path, compression: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = JsonlStore(tmp_path, compression).create(sample_header(), 0)
    log.append(sample_events(3))
    assert log.path is not None
    before = log.path.read_bytes()

    def refuse(descriptor: int, size: int) -> None:
        raise OSError(errno.EIO, f"cutting {descriptor} to {size} failed")

    with monkeypatch.context() as patch, files_limited_to(len(before) + 60):
        patch.setattr(durable_files, "cut_durably", refuse)
        with pytest.raises(SessionStorageError) as caught:
            log.append(sample_events(50, start=3))
    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert len(caught.value.__cause__.exceptions) == 2
    assert len(log.path.read_bytes()) == len(before) + 60
    log.append(sample_events(2, start=3))
    log.close()
    assert list(JsonlStore(tmp_path, compression).open(ID, "read").read()) == sample_events(5)


def test_S144_a_failed_first_write_leaves_no_log(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path, "none")
    log = store.create(sample_header(), 0)
    with files_limited_to(100), pytest.raises(SessionStorageError):
        log.append(sample_events(3))
    assert not log.materialized
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["session.lock"]
    assert not store.list().sessions
    log.append(sample_events(3))
    log.close()
    assert list(store.open(ID, "read").read()) == sample_events(3)


def test_S144_materializing_never_overwrites(tmp_path: Path) -> None:
    target = tmp_path / "session.v4.jsonl"
    target.write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        durable_files.publish(target, b"theirs")
    assert target.read_bytes() == b"mine"
    assert list(tmp_path.iterdir()) == [target]


def test_S134_a_root_that_is_no_folder_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(SessionStorageError, match=str(root)):
            JsonlStore(root, "none")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    log = JsonlStore(tmp_path, "none").create(sample_header(), 0)
    (tmp_path / "--srv-demo--").write_text("in the way", encoding="utf-8")
    with pytest.raises(SessionStorageError, match="--srv-demo--"):
        log.append(sample_events(1))
