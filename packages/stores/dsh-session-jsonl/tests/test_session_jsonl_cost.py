"""What work the store takes (S171), counted in bytes and calls, which are the same in every run."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from dsh_session import SessionId
from dsh_session_jsonl import Compression, JsonlStore
from dsh_session_persistence.testing import sample_events, sample_header

BOTH = pytest.mark.parametrize("compression", ["none", "zstd"])
ID = SessionId("sample")


def calls_of(do: Callable[[], object]) -> int:
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    do()
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        do()
    finally:
        sys.setprofile(before)
    return calls


def stored(root: Path, compression: Compression, events: int) -> JsonlStore:
    store = JsonlStore(root, compression)
    log = store.create(sample_header(), 0)
    log.append(sample_events(events))
    log.close()
    return store


@BOTH
def test_S171_a_listing_reads_headers_only(tmp_path: Path, compression: Compression) -> None:
    short = stored(tmp_path / "short", compression, 3)
    long = stored(tmp_path / "long_", compression, 3000)
    assert calls_of(short.list) == calls_of(long.list)
    assert calls_of(lambda: short.stat(ID)) == calls_of(lambda: long.stat(ID))


@BOTH
def test_S171_a_batch_costs_its_own_bytes(
    tmp_path: Path, compression: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    write = os.write

    def noting(descriptor: int, data: bytes) -> int:
        written.append(len(data))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", noting)
    sizes = []
    for count in (3, 3000):
        log = stored(tmp_path / str(count), compression, count).open(ID, "write")
        written.clear()
        log.append(sample_events(3, start=count))
        log.close()
        sizes.append(sum(written))
        assert len(written) == 1
    assert sizes[1] < sizes[0] * 1.2


def test_S171_a_revision_is_a_stat(tmp_path: Path) -> None:
    store = stored(tmp_path, "none", 3)
    status = store.open(ID, "read").path
    assert status is not None
    seen = status.stat()
    parts = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    assert store.stat(ID).revision == "-".join(f"{part:x}" for part in parts)
