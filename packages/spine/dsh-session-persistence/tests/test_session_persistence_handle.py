"""Handles: order, cancellation and closing, over a store that the test slows or breaks."""

import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

import anyio
import anyio.lowlevel
import pytest
from anyio import wait_all_tasks_blocked
from typing_extensions import override

from dsh_session import SessionEvent
from dsh_session_persistence import SessionHandle, SessionHandleClosedError
from dsh_session_persistence.testing import MemoryLogStore, sample_events, sample_header
from dsh_session_persistence.testing.memory import MemoryRecord, MemoryWriteLog


class SlowLog(MemoryWriteLog):
    """A log whose writes wait for `gate`, and fail when told so."""

    def __init__(self) -> None:
        super().__init__(MemoryLogStore(), MemoryRecord(sample_header(), 0))
        self.flushes: list[int] = []
        self.flushing_fails = False
        self.flush()
        self.gate = threading.Event()
        self.gate.set()
        self.failing = False
        self.calls: list[str] = []

    @override
    def append(self, events: Sequence[SessionEvent]) -> None:
        self.calls.append(f"append {events[0].seq}")
        if not self.gate.wait(5):
            raise TimeoutError("the test never opened the gate")
        if self.failing:
            raise OSError("disk full")
        super().append(events)

    @override
    def flush(self) -> None:
        self.flushes.append(self.end)
        if self.flushing_fails:
            raise OSError("cannot sync")
        super().flush()

    @override
    def close(self) -> None:
        self.calls.append("close")
        super().close()
        if self.failing:
            raise OSError("cannot unlock")


@contextmanager
def slow_handle() -> Iterator[tuple[SlowLog, SessionHandle, list[SessionHandle]]]:
    log = SlowLog()
    released: list[SessionHandle] = []

    def spawn(body: Callable[[], Awaitable[object]], name: str) -> Callable[[], object]:
        """No window: only flush and close write."""
        return lambda: None

    handle = SessionHandle(
        log,
        "write",
        limiter=anyio.CapacityLimiter(4),
        released=released.append,
        spawn=spawn,
    )
    with anyio.fail_after(5):
        yield log, handle, released


async def test_S113_a_cancelled_append_is_finished() -> None:
    with slow_handle() as (log, handle, _):
        log.gate.clear()
        async with anyio.create_task_group() as tasks:
            scope = anyio.CancelScope()

            async def cancelled() -> None:
                with scope:
                    await handle.append(sample_events(2))

            tasks.start_soon(cancelled)
            while not log.calls:
                await anyio.lowlevel.checkpoint()
            scope.cancel()
            log.gate.set()
        assert list(await handle.read()) == sample_events(2)
        await handle.close()


async def test_S113_a_failure_does_not_block_the_next_operation() -> None:
    with slow_handle() as (log, handle, _):
        log.failing = True
        with pytest.raises(OSError, match="disk full"):
            await handle.append(sample_events(1))
        log.failing = False
        await handle.append(sample_events(1))
        assert list(await handle.read()) == sample_events(1)
        await handle.close()


async def test_S106_each_flush_ends_behind_a_barrier_that_covers_what_was_there() -> None:
    with slow_handle() as (log, handle, _):
        events = sample_events(3)
        handle.take(events[0])
        await handle.flush()
        await handle.append([events[1]])
        await handle.flush()
        await handle.flush()
        assert log.flushes == [0, 1, 2, 2]
        log.gate.clear()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(handle.append, [events[2]])
            while log.calls[-1] != "append 2":
                await anyio.lowlevel.checkpoint()
            tasks.start_soon(handle.flush)
            await wait_all_tasks_blocked()
            log.gate.set()
        assert log.flushes[-1] == 3
        await handle.close()


async def test_S106_a_flush_that_fails_is_told_and_its_events_are_stored_once() -> None:
    with slow_handle() as (log, handle, _):
        handle.take(sample_events(1)[0])
        log.flushing_fails = True
        with pytest.raises(OSError, match="cannot sync"):
            await handle.flush()
        assert handle.pending == 0
        log.flushing_fails = False
        await handle.flush()
        assert log.flushes[-1] == 1
        assert list(await handle.read()) == sample_events(1)
        await handle.close()


async def test_S106_close_waits_for_what_runs_and_everybody_waits_for_close() -> None:
    with slow_handle() as (log, handle, released):
        log.gate.clear()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(handle.append, sample_events(1))
            while not log.calls:
                await anyio.lowlevel.checkpoint()
            tasks.start_soon(handle.close)
            tasks.start_soon(handle.close)
            await wait_all_tasks_blocked()
            assert handle.closed
            with pytest.raises(SessionHandleClosedError):
                await handle.read()
            assert released == []
            log.gate.set()
        assert log.calls == ["append 0", "close"]
        assert released == [handle]


async def test_S106_close_stores_what_is_pending() -> None:
    with slow_handle() as (log, handle, _):
        for event in sample_events(3):
            handle.take(event)
        assert handle.pending == 3
        await handle.close()
        assert list(log.read()) == sample_events(3)


async def test_S106_close_releases_the_claim_and_then_raises_what_failed() -> None:
    with slow_handle() as (log, handle, released):
        handle.take(sample_events(1)[0])
        log.failing = True
        for _ in range(2):
            with pytest.raises(ExceptionGroup) as caught:
                await handle.close()
            assert [str(error) for error in caught.value.exceptions] == [
                "disk full",
                "cannot unlock",
            ]
        assert released == [handle]
        assert log.calls == ["append 0", "close"]


async def test_S106_close_is_not_cancellable() -> None:
    with slow_handle() as (log, handle, released):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await handle.close()
        assert released == [handle]
        assert log.calls == ["close"]
        await wait_all_tasks_blocked()
