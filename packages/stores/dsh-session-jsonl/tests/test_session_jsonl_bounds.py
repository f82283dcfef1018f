"""Files that no writer of ours makes: none of them costs memory or time without bound, or waits."""

import os
import stat
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from dsh_llm import Message, MessageId, TextBlock, UserSource
from dsh_session import SessionEvent, SessionId, UserMessageEvent, encode_event
from dsh_session_jsonl import Compression, JsonlStore
from dsh_session_jsonl.doctor import check_log, check_store
from dsh_session_jsonl.stored_lines import MAX_HEADER_BYTES
from dsh_session_jsonl.zstd_frames import encode_frame
from dsh_session_persistence import (
    SessionFormatUnsupportedError,
    SessionPersistenceCorruptionError,
    SessionPersistenceNotFoundError,
    SessionStorageError,
)
from dsh_session_persistence.testing import sample_events, sample_header

ID = SessionId("sample")
BOTH = pytest.mark.parametrize("compression", ["none", "zstd"])
MIB = 1 << 20


def stored(
    root: Path, compression: Compression = "none", count: int = 6, session_id: str = "sample"
) -> Path:
    log = JsonlStore(root, compression).create(sample_header(session_id), 0)
    log.append(sample_events(count))
    log.close()
    assert log.path is not None
    return log.path


def long_event(seq: int, size: int) -> SessionEvent:
    content = (TextBlock(text="x" * size),)
    message = Message(id=MessageId("long"), role="user", content=content, source=UserSource())
    data = UserMessageEvent(message=message)
    return SessionEvent(type=data.type, seq=seq, time=0, data=data, surface_op="append")


@contextmanager
def memory_below(limit: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The descriptors of files that were synced, folders left out."""
    found: list[int] = []
    sync = os.fsync

    def noting(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            found.append(descriptor)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    return found


@BOTH
def test_S143_S106_a_batch_that_append_made_durable_is_not_synced_again(
    tmp_path: Path, compression: Compression, syncs: list[int]
) -> None:
    log = JsonlStore(tmp_path, compression).create(sample_header(), 0)
    log.append(sample_events(3))
    log.flush()
    assert len(syncs) == 1
    log.append(sample_events(3, start=3))
    log.flush()
    log.flush()
    assert len(syncs) == 2
    log.close()


def test_S106_what_an_earlier_writer_left_is_synced_once(tmp_path: Path, syncs: list[int]) -> None:
    stored(tmp_path)
    log = JsonlStore(tmp_path, "none").open(ID, "write")
    syncs.clear()
    log.flush()
    log.flush()
    assert len(syncs) == 1
    log.close()


def test_S106_after_a_failed_batch_flush_syncs_again(
    tmp_path: Path, syncs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = JsonlStore(tmp_path, "none").create(sample_header(), 0)
    log.append(sample_events(3))

    def refuse(descriptor: int, data: object) -> int:
        raise OSError(28, f"no space for {descriptor}")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(SessionStorageError):
            log.append(sample_events(3, start=3))
    syncs.clear()
    log.flush()
    assert len(syncs) == 1
    log.close()


def test_S111_S120_a_link_to_itself_hides_no_other_session(tmp_path: Path) -> None:
    path = stored(tmp_path)
    project = path.parent.parent
    in_project, in_root = project / "loop", tmp_path / "--loop--"
    in_project.symlink_to(in_project)
    in_root.symlink_to(in_root)
    store = JsonlStore(tmp_path, "none")
    listing = store.list()
    assert [snapshot.header.id for snapshot in listing.sessions] == [ID]
    assert {problem.location for problem in listing.problems} == {str(in_project), str(in_root)}
    assert {problem.session_id for problem in listing.problems} == {"loop", "--loop--"}
    assert len(store.open(ID, "read").read()) == 6
    with pytest.raises(SessionPersistenceNotFoundError):
        store.open(SessionId("other"), "read")
    report = check_store(tmp_path)
    assert [log.session_id for log in report.logs] == [ID]
    assert {finding.path for finding in report.findings} == {in_project, in_root}


async def within_5_s(call: Callable[[], object]) -> None:
    with anyio.fail_after(5):
        await anyio.to_thread.run_sync(call, abandon_on_cancel=True)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.parametrize("name", ["session.v4.jsonl", "session.v2.jsonl"])
async def test_S111_S120_a_pipe_named_like_a_log_is_a_problem_and_no_wait(
    tmp_path: Path, name: str
) -> None:
    path = stored(tmp_path, session_id="other")
    folder = path.parent.parent / "sample"
    folder.mkdir()
    os.mkfifo(folder / name)
    store = JsonlStore(tmp_path, "none")

    def use() -> None:
        listing = store.list()
        assert [snapshot.header.id for snapshot in listing.sessions] == ["other"]
        assert [problem.session_id for problem in listing.problems] == [ID]
        for access in ("read", "write"):
            with pytest.raises(SessionPersistenceCorruptionError, match="no regular file"):
                store.open(ID, access)

    await within_5_s(use)


def test_S111_a_header_line_without_end_costs_no_more_than_the_cap(tmp_path: Path) -> None:
    path = stored(tmp_path)
    with path.open("wb") as file:
        file.truncate(2 << 30)
    with memory_below(4 * MIB):
        listing = JsonlStore(tmp_path, "none").list()
    assert not listing.sessions
    assert f"longer than {MAX_HEADER_BYTES} bytes" in str(listing.problems[0].error)


def test_S111_a_compressed_header_without_end_costs_no_more_than_the_cap(tmp_path: Path) -> None:
    path = stored(tmp_path, "zstd")
    path.write_bytes(encode_frame(bytes(128 * MIB)))
    with memory_below(80 * MIB):
        listing = JsonlStore(tmp_path, "zstd").list()
    assert not listing.sessions
    assert "holds more than" in str(listing.problems[0].error)


def test_S138_a_long_header_line_is_read_up_to_the_cap_and_written_up_to_it(
    tmp_path: Path,
) -> None:
    for fill, fits in ((MAX_HEADER_BYTES - 400, True), (MAX_HEADER_BYTES, False)):
        root = tmp_path / str(fits)
        header = sample_header(cwd="/" + "x" * fill)
        store = JsonlStore(root, "none")
        if not fits:
            with pytest.raises(SessionStorageError, match="shorten its cwd"):
                store.create(header, 0)
            continue
        log = store.create(header, 0)
        log.append(sample_events(3))
        log.close()
        assert store.stat(ID).header == store.open(ID, "read").header == header


def test_S138_a_header_line_beyond_the_cap_is_refused_everywhere(tmp_path: Path) -> None:
    path = stored(tmp_path)
    head, _, rest = path.read_bytes().partition(b"\n")
    path.write_bytes(head[:-1] + b" " * MAX_HEADER_BYTES + b"}\n" + rest)
    store = JsonlStore(tmp_path, "none")
    for call in (store.stat, lambda session_id: store.open(session_id, "read")):
        with pytest.raises(SessionPersistenceCorruptionError, match="header line is longer"):
            call(ID)
    report = check_log(path)
    assert [finding.code for finding in report.logs[0].findings] == ["no-header"]


@BOTH
def test_S140_S141_a_tail_of_zeros_is_read_in_pieces(
    tmp_path: Path, compression: Compression
) -> None:
    path = stored(tmp_path, compression)
    good = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(64 * MIB)
    with memory_below(8 * MIB):
        store = JsonlStore(tmp_path, compression, max_line_bytes=MIB)
        assert len(store.open(ID, "read").read()) == 6
    log = JsonlStore(tmp_path, compression).open(ID, "write")
    log.append(sample_events(3, start=6))
    log.close()
    assert good < path.stat().st_size < good + 1000


def test_S141_a_frame_that_holds_more_than_memory_should_is_read_in_pieces(tmp_path: Path) -> None:
    path = stored(tmp_path, "zstd")
    with path.open("ab") as file:
        file.write(encode_frame(b"x" * (128 * MIB)))
    store = JsonlStore(tmp_path, "zstd", max_line_bytes=MIB)
    with (
        memory_below(80 * MIB),
        pytest.raises(SessionPersistenceCorruptionError, match="ends inside a line"),
    ):
        store.open(ID, "read")


def test_S141_a_frame_of_many_lines_is_whole_when_it_is_read_in_pieces(tmp_path: Path) -> None:
    path = stored(tmp_path, "zstd", 0)
    events = [long_event(seq, 400_000) for seq in range(60)]
    with path.open("ab") as file:
        file.write(encode_frame(b"".join(encode_event(event) + b"\n" for event in events)))
    log = JsonlStore(tmp_path, "zstd").open(ID, "write")
    assert list(log.read()) == events
    log.append([long_event(60, 1)])
    log.close()
    assert len(JsonlStore(tmp_path, "zstd").open(ID, "read").read()) == 61


@BOTH
def test_S118_a_line_longer_than_the_cap_is_unsupported_not_corrupt(
    tmp_path: Path, compression: Compression
) -> None:
    log = JsonlStore(tmp_path, compression).create(sample_header(), 0)
    log.append([long_event(0, 5000)])
    log.close()
    assert log.path is not None
    before = log.path.read_bytes()
    size = len(encode_event(long_event(0, 5000)))
    store = JsonlStore(tmp_path, compression, max_line_bytes=size - 1)
    with pytest.raises(SessionFormatUnsupportedError, match=f"line 2 has {size} bytes"):
        store.open(ID, "write")
    assert log.path.read_bytes() == before
    fitting = JsonlStore(tmp_path, compression, max_line_bytes=size)
    assert len(fitting.open(ID, "read").read()) == 1


def test_S118_an_old_log_with_a_long_line_is_refused(tmp_path: Path) -> None:
    path = stored(tmp_path)
    text = path.read_bytes().replace(b'"version":4', b'"version":3')
    path.rename(path.with_name("session.v3.jsonl")).write_bytes(text)
    assert len(JsonlStore(tmp_path, "none").open(ID, "read").read()) > 0
    with pytest.raises(SessionFormatUnsupportedError, match="more than the 100"):
        JsonlStore(tmp_path, "none", max_line_bytes=100).open(ID, "read")


@BOTH
def test_S143_a_batch_with_a_line_beyond_the_cap_is_refused_whole(
    tmp_path: Path, compression: Compression
) -> None:
    log = JsonlStore(tmp_path, compression, max_line_bytes=4000).create(sample_header(), 0)
    log.append(sample_events(3))
    assert log.path is not None
    before = log.path.read_bytes()
    with pytest.raises(SessionStorageError, match=r"seq 4 \('user/message'\) is a line of"):
        log.append([*sample_events(1, start=3), long_event(4, 5000)])
    assert log.path.read_bytes() == before
    assert len(log.read()) == 3
    log.append(sample_events(2, start=3))
    log.close()
