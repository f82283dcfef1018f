"""What the bases of logs and the lease do for every store."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from typing_extensions import override

from dsh_session import SessionEvent
from dsh_session_persistence import (
    Claim,
    Lease,
    ReadLog,
    SessionAlreadyOwnedError,
    SessionOwnershipLostError,
    SessionStorageError,
    WriteLog,
)
from dsh_session_persistence.testing import sample_events, sample_header


class NotingClaim(Claim):
    def __init__(self) -> None:
        self.held = True

    @override
    def is_held(self) -> bool:
        return self.held

    @override
    def release(self) -> None:
        self.held = False


class NotingLog(WriteLog[int]):
    """Notes the steps it is asked for, and fails at those in `failing`."""

    def __init__(self, claim: NotingClaim | None = None) -> None:
        super().__init__(sample_header(), 0, location="nowhere", claim=claim)
        self.steps: list[str] = []
        self.failing: set[str] = set()
        self.claims: list[NotingClaim] = [] if claim is None else [claim]
        self.reason: str | None = None

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if name.split()[0] in self.failing:
            raise OSError(f"no {name}")

    @override
    def _encode(self, events: Sequence[SessionEvent]) -> int:
        self._step("encode")
        return len(events)

    @override
    def _take_claim(self) -> Claim:
        self._step("claim")
        self.claims.append(NotingClaim())
        return self.claims[-1]

    @override
    def _create(self, batch: int) -> None:
        self._step(f"create {batch}")

    @override
    def _extend(self, batch: int) -> None:
        self._step(f"extend {batch}")

    @override
    def _displaced(self) -> str | None:
        return self.reason

    @override
    def _let_go(self) -> None:
        self._step("let-go")


def test_S109_a_batch_that_cannot_be_stored_touches_nothing() -> None:
    log = NotingLog()
    log.failing = {"encode"}
    with pytest.raises(OSError, match="no encode"):
        log.append(sample_events(1))
    assert log.steps == ["encode"]
    assert (log.end, log.materialized) == (0, False)


def test_S113_S123_a_creation_that_fails_gives_back_the_claim_and_may_be_tried_again() -> None:
    log = NotingLog()
    log.failing = {"create"}
    with pytest.raises(
        SessionStorageError, match=r"'sample' could not be written.*nowhere"
    ) as told:
        log.append(sample_events(2))
    assert isinstance(told.value.__cause__, OSError)
    assert log.steps == ["encode", "claim", "create 2", "let-go"]
    assert [claim.held for claim in log.claims] == [False]
    assert (log.end, log.materialized) == (0, False)
    log.failing = set()
    log.append(sample_events(2))
    log.append(sample_events(1, start=2))
    assert log.steps[4:] == ["encode", "claim", "create 2", "encode", "extend 1"]
    assert [claim.held for claim in log.claims] == [False, True]
    assert list(log.read()) == sample_events(3)


def test_S106_an_empty_session_materializes_at_a_flush_and_only_once() -> None:
    log = NotingLog()
    log.flush()
    log.flush()
    assert log.steps == ["encode", "claim", "create 0"]
    assert log.materialized


@pytest.mark.parametrize("lost", ["the claim", "the file"])
def test_S103_a_lost_claim_is_found_before_a_write_and_never_comes_back(lost: str) -> None:
    claim = NotingClaim()
    log = NotingLog(claim)
    claim.held = lost != "the claim"
    log.reason = "the file is another one" if lost == "the file" else None
    with pytest.raises(SessionOwnershipLostError, match=r"lock file|another one"):
        log.append(sample_events(1))
    claim.held, log.reason = True, None
    with pytest.raises(SessionOwnershipLostError, match=r"lock file|another one"):
        log.flush()
    assert "extend 1" not in log.steps
    assert log.end == 0


def test_S106_closing_gives_back_the_claim_whatever_fails() -> None:
    claim = NotingClaim()
    log = NotingLog(claim)
    log.failing = {"let-go"}
    with pytest.raises(OSError, match="no let-go"):
        log.close()
    assert not claim.held


def test_S104_a_reader_never_gives_less_than_before() -> None:
    counts = iter([3, 1, 4])

    class Shrinking(ReadLog):
        @override
        def _newest(self) -> Sequence[SessionEvent]:
            return sample_events(next(counts))

    log = Shrinking(sample_header(), 0, sample_events(2))
    assert [len(log.read()) for _ in range(3)] == [3, 3, 4]
    assert log.end == 4
    with pytest.raises(NotImplementedError):
        log.append(sample_events(1))


def test_S123_S125_a_lease_excludes_others_until_it_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lease = Lease.acquire(path, "sample")
    with pytest.raises(
        SessionAlreadyOwnedError, match=r"'sample' is open for writing elsewhere.*lock"
    ):
        Lease.acquire(path, "sample")
    lease.release()
    lease.release()
    assert path.exists()
    assert not lease.is_held()
    Lease.acquire(path, "sample").release()


def test_S125_a_lease_removes_its_file_only_where_it_is_asked_to_and_still_holds_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lock"
    Lease.acquire(path, "sample", remove=True).release()
    assert not path.exists()
    wedged = Lease.acquire(path, "sample", remove=True)
    path.unlink()
    heir = Lease.acquire(path, "sample", remove=True)
    assert not wedged.is_held()
    wedged.release()
    assert heir.is_held()
    assert path.exists()
    heir.release()


@pytest.mark.skipif(os.name != "posix", reason="symbolic links of POSIX")
def test_S124_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=str(path)):
        Lease.acquire(path, "sample")
    assert not (tmp_path / "elsewhere").exists()
