"""What a crash leaves behind is cut off, by the next write and not before."""

import os
import threading
from pathlib import Path

import pytest

from dsh_session import SessionId
from dsh_session_jsonl import Compression, JsonlStore
from dsh_session_persistence import SessionPersistenceCorruptionError
from dsh_session_persistence.testing import sample_events, sample_header

ID = SessionId("sample")
BOTH = pytest.mark.parametrize("compression", ["none", "zstd"])


def write(root: Path, compression: Compression, batches: list[int]) -> Path:
    """Store batches of these sizes and return the path of the log."""
    log = JsonlStore(root, compression).create(sample_header(), 0)
    start = 0
    for size in batches:
        log.append(sample_events(size, start=start))
        start += size
    log.close()
    assert log.path is not None
    return log.path


@BOTH
def test_S140_S141_S142_a_tail_torn_at_any_byte_is_repaired(
    tmp_path: Path, compression: Compression
) -> None:
    path = write(tmp_path, compression, [4])
    good = path.stat().st_size
    whole = write(tmp_path / "whole", compression, [4, 3]).read_bytes()
    assert whole[:good] == path.read_bytes()
    store = JsonlStore(tmp_path, compression)
    for cut in range(good, len(whole)):
        path.write_bytes(whole[:cut])
        valid = list(store.open(ID, "read").read())
        assert valid == sample_events(len(valid))
        assert 4 <= len(valid) < 7 or compression == "zstd"
        assert path.read_bytes() == whole[:cut], "reading wrote"
        log = store.open(ID, "write")
        assert list(log.read()) == valid
        assert path.read_bytes() == whole[:cut], "opening wrote"
        log.append(sample_events(2, start=len(valid)))
        log.close()
        assert list(store.open(ID, "read").read()) == sample_events(len(valid) + 2)
        assert path.read_bytes()[:good] == whole[:good], "bytes before the cut changed"


def test_S140_text_after_the_last_newline_is_torn_even_if_complete(tmp_path: Path) -> None:
    path = write(tmp_path, "none", [5])
    path.write_bytes(path.read_bytes()[:-1])
    assert len(JsonlStore(tmp_path, "none").open(ID, "read").read()) == 4


@pytest.mark.parametrize("tail", [b"\n", b"not json\n", b"[]\n", b'{"seq":5}\n', bytes(64)])
def test_S140_a_damaged_end_without_a_later_turn_end_is_torn(tmp_path: Path, tail: bytes) -> None:
    path = write(tmp_path, "none", [5])
    path.write_bytes(path.read_bytes() + tail)
    store = JsonlStore(tmp_path, "none")
    log = store.open(ID, "write")
    assert list(log.read()) == sample_events(5)
    log.append(sample_events(1, start=5))
    log.close()
    assert list(store.open(ID, "read").read()) == sample_events(6)


@pytest.mark.parametrize("damage", [b"", b"not json", b'{"seq":2}', b"torn{"])
def test_S140_damage_before_a_turn_end_is_corruption(tmp_path: Path, damage: bytes) -> None:
    path = write(tmp_path, "none", [6])
    lines = path.read_bytes().split(b"\n")
    lines[3] = damage
    path.write_bytes(b"\n".join(lines))
    before = path.read_bytes()
    for access in ("read", "write"):
        with pytest.raises(SessionPersistenceCorruptionError) as caught:
            JsonlStore(tmp_path, "none").open(ID, access)
        assert caught.value.line == 4
    assert path.read_bytes() == before
    assert JsonlStore(tmp_path, "none").stat(ID).header == sample_header()


def test_S137_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    path = write(tmp_path, "none", [2])
    text = path.read_text(encoding="utf-8").replace("question 1", "a\u2028b\u0085c\u007f")
    path.write_bytes(text.encode())
    events = JsonlStore(tmp_path, "none").open(ID, "read").read()
    assert len(events) == 2


def test_S141_a_damaged_frame_is_corruption_without_any_turn_end(tmp_path: Path) -> None:
    path = write(tmp_path, "zstd", [1, 1])
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(SessionPersistenceCorruptionError, match="damaged"):
        JsonlStore(tmp_path, "zstd").open(ID, "read")


@BOTH
def test_S104_a_reader_reads_on_beside_the_writer(tmp_path: Path, compression: Compression) -> None:
    store = JsonlStore(tmp_path, compression)
    writer = store.create(sample_header(), 0)
    writer.append(sample_events(1))
    reader = store.open(ID, "read")
    for seq in range(1, 30):
        writer.append(sample_events(1, start=seq))
        assert list(reader.read()) == sample_events(seq + 1)
    writer.close()


def test_S104_a_reader_never_sees_less_than_before(tmp_path: Path) -> None:
    path = write(tmp_path, "zstd", [3, 30])
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    store = JsonlStore(tmp_path, "zstd")
    reader = store.open(ID, "read")
    assert list(reader.read()) == sample_events(33)
    # What a reader may meet while the writer replaces the torn frame.
    path.write_bytes(write(tmp_path / "first", "zstd", [3]).read_bytes())
    assert list(reader.read()) == sample_events(33)


@BOTH
def test_S127_S146_a_reader_beside_crashing_writers_never_reports_corruption(
    tmp_path: Path, compression: Compression
) -> None:
    path = write(tmp_path, compression, [3])
    store = JsonlStore(tmp_path, compression)
    errors: list[Exception] = []
    seen: list[int] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                reader = store.open(ID, "read")
                seen.extend(len(reader.read()) for _ in range(3))
        except Exception as error:  # noqa: BLE001  # whatever it is, the test reports it
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for _ in range(60):
            log = store.open(ID, "write")
            log.append(sample_events(3, start=len(log.read())))
            good = path.stat().st_size
            log.append(sample_events(30, start=len(log.read())))
            log.close()
            # What a crash in the middle of the second batch leaves.
            os.truncate(path, good + (path.stat().st_size - good) * 2 // 3)
    finally:
        done.set()
        thread.join(10)
    assert errors == []
    assert seen
