"""Live events are collected and written in order, whatever fails in between."""

from collections.abc import Awaitable, Callable, Sequence

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from dsh_session import SessionEvent
from dsh_session_persistence.testing import sample_events
from dsh_session_persistence.write_behind import WINDOW_S, WriteBehind


class Disk:
    """Takes batches; may be slow (`gate`) or broken (`failing`)."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.failing = False
        self.attempts = 0
        self.gate = anyio.Event()
        self.gate.set()

    async def write(self, batch: Sequence[SessionEvent]) -> None:
        self.attempts += 1
        await self.gate.wait()
        if self.failing:
            raise OSError("disk full")
        self.batches.append([event.seq for event in batch])


class Clock:
    """Windows end when the test says so."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._tick = anyio.Event()

    async def sleep(self, delay_s: float) -> None:
        self.asked.append(delay_s)
        await self._tick.wait()

    async def tick(self) -> None:
        await wait_all_tasks_blocked()
        self._tick.set()
        self._tick = anyio.Event()
        await wait_all_tasks_blocked()


def buffer_of(disk: Disk, clock: Clock, tasks: TaskGroup) -> WriteBehind:
    def spawn(body: Callable[[], Awaitable[object]], name: str) -> Callable[[], object]:
        scope = anyio.CancelScope()

        async def run() -> None:
            with scope:
                await body()

        tasks.start_soon(run, name=name)
        return scope.cancel

    return WriteBehind("sample", disk.write, spawn, sleep=clock.sleep)


def push(buffer: WriteBehind, count: int, start: int = 0) -> None:
    for event in sample_events(count, start=start):
        buffer.push(event)


async def test_S116_one_window_gathers_one_batch() -> None:
    disk, clock = Disk(), Clock()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            buffer = buffer_of(disk, clock, tasks)
            push(buffer, 2)
            await checkpoint()
            push(buffer, 1, start=2)
            await clock.tick()
            assert disk.batches == [[0, 1, 2]]
            assert len(clock.asked) == 1
            push(buffer, 1, start=3)
            await clock.tick()
    assert disk.batches == [[0, 1, 2], [3]]
    assert len(clock.asked) == 2
    assert all(0 < delay_s <= WINDOW_S == 0.2 for delay_s in clock.asked)


async def test_S116_what_arrives_during_a_write_forms_the_next_batch() -> None:
    disk, clock = Disk(), Clock()
    disk.gate = anyio.Event()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            buffer = buffer_of(disk, clock, tasks)
            push(buffer, 1)
            await clock.tick()
            push(buffer, 2, start=1)
            disk.gate.set()
            await wait_all_tasks_blocked()
            assert len(buffer) == 0
    assert disk.batches == [[0], [1, 2]]


async def test_S116_draining_cuts_the_window_and_is_shared() -> None:
    disk, clock = Disk(), Clock()
    disk.gate = anyio.Event()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            buffer = buffer_of(disk, clock, tasks)
            push(buffer, 3)
            for _ in range(3):
                tasks.start_soon(buffer.drain)
            await wait_all_tasks_blocked()
            disk.gate.set()
            await buffer.close()
    assert disk.batches == [[0, 1, 2]]
    assert disk.attempts == 1


async def test_S116_one_timer_gives_each_window_its_whole_time() -> None:
    disk, clock = Disk(), Clock()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            buffer = buffer_of(disk, clock, tasks)
            push(buffer, 1)
            await wait_all_tasks_blocked()
            await buffer.drain()
            began = anyio.current_time()
            push(buffer, 1, start=1)
            await clock.tick()
            assert disk.batches == [[0]], "cut short by the window before it"
            _, rest_s = clock.asked
            assert WINDOW_S - (anyio.current_time() - began) <= rest_s <= WINDOW_S
            await clock.tick()
            assert disk.batches == [[0], [1]]
            push(buffer, 1, start=2)
            await wait_all_tasks_blocked()
            await buffer.drain()
            await clock.tick()
            assert len(clock.asked) == 3, "no window is open, and the timer went on"
    assert disk.batches == [[0], [1], [2]]


async def test_S116_closing_ends_the_timer_also_after_a_failure() -> None:
    disk, clock = Disk(), Clock()
    disk.failing = True
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            buffer = buffer_of(disk, clock, tasks)
            push(buffer, 1)
            await wait_all_tasks_blocked()
            with pytest.raises(OSError, match="disk full"):
                await buffer.close()
    assert len(clock.asked) == 1


async def test_S117_a_failed_background_write_keeps_the_batch_and_pauses() -> None:
    disk, clock = Disk(), Clock()
    disk.failing = True
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            buffer = buffer_of(disk, clock, tasks)
            push(buffer, 2)
            await clock.tick()
            assert disk.attempts == 1
            push(buffer, 1, start=2)
            await clock.tick()
            assert disk.attempts == 1, "the automatic path did not pause"
            with pytest.raises(OSError, match="disk full"):
                await buffer.drain()
            assert len(buffer) == 3
            disk.failing = False
            await buffer.drain()
            assert disk.batches == [[0, 1, 2]]
            push(buffer, 1, start=3)
            await clock.tick()
    assert disk.batches == [[0, 1, 2], [3]]


async def test_S117_concurrent_drains_share_the_failure() -> None:
    disk, clock = Disk(), Clock()
    disk.failing, disk.gate = True, anyio.Event()
    errors: list[OSError] = []

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            buffer = buffer_of(disk, clock, tasks)
            push(buffer, 1)

            async def drain() -> None:
                try:
                    await buffer.drain()
                except OSError as error:
                    errors.append(error)

            for _ in range(3):
                tasks.start_soon(drain)
            await wait_all_tasks_blocked()
            disk.gate.set()
            await wait_all_tasks_blocked()
            assert len(errors) == 3
            assert disk.attempts == 1
            tasks.cancel_scope.cancel()  # the timer


async def test_S113_a_cancelled_drain_finishes_its_write_and_leaves_the_rest() -> None:
    disk, clock = Disk(), Clock()
    disk.gate = anyio.Event()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            buffer = buffer_of(disk, clock, tasks)
            push(buffer, 1)
            scope = anyio.CancelScope()

            async def cancelled() -> None:
                with scope:
                    await buffer.drain()

            tasks.start_soon(cancelled)
            await wait_all_tasks_blocked()
            tasks.start_soon(buffer.drain)
            push(buffer, 1, start=1)
            scope.cancel()
            await wait_all_tasks_blocked()
            assert disk.batches == []
            disk.gate.set()
            await wait_all_tasks_blocked()
            assert len(buffer) == 0
            await buffer.close()
    assert scope.cancelled_caught
    assert disk.batches == [[0], [1]]


async def test_S117_150_000_buffered_events_survive_a_failure() -> None:
    disk, clock = Disk(), Clock()
    disk.failing = True
    one = sample_events(1)[0]
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            buffer = buffer_of(disk, clock, tasks)
            for _ in range(150_000):
                buffer.push(one)
            await clock.tick()
            assert len(buffer) == 150_000
            disk.failing = False
            await buffer.drain()
    assert [len(batch) for batch in disk.batches] == [150_000]
