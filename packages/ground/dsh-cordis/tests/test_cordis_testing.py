"""The tools for tests of plugins find what they shall find."""

from typing import ClassVar

import anyio
import pytest

from dsh_cordis import Bail, Context, Emit, Handle, Service
from dsh_cordis.testing import (
    DispatchRecorder,
    ErrorRecorder,
    FakeClock,
    Traces,
    assert_unloaded,
    leaks_nothing,
    traces,
)

pytest_plugins = ["dsh_cordis.testing"]


class Said(Emit, frozen=True):
    name: ClassVar[str] = "testing/said"
    word: str


class Asked(Bail[int], frozen=True):
    name: ClassVar[str] = "testing/asked"


class Clock(Service):
    key: ClassVar[str] = "clock"


def leave_listener(ctx: Context) -> Handle:
    return ctx.on(Said, lambda event: None)


def leave_service(ctx: Context) -> Handle:
    return ctx.provide("thing", 1)


def leave_effect(ctx: Context) -> Handle:
    return ctx.effect(lambda: lambda: None, label="an effect")


def leave_fiber(ctx: Context) -> Handle:
    return ctx.plugin(Clock)


def leave_task(ctx: Context) -> Handle:
    return ctx.spawn(anyio.sleep_forever, name="a task")


@pytest.mark.parametrize(
    ("leave", "what"),
    [
        pytest.param(leave_listener, "listeners left behind: .*testing/said", id="listener"),
        pytest.param(leave_service, "services left behind: .*thing", id="service"),
        pytest.param(leave_effect, "effects left behind: .*an effect", id="effect"),
        pytest.param(leave_fiber, "fibers left behind: .*Clock", id="fiber"),
        pytest.param(leave_task, "left behind: .*a task", id="task"),
    ],
)
async def test_the_leak_check_finds_what_is_left(ctx: Context, leave: object, what: str) -> None:
    assert callable(leave)
    with anyio.fail_after(5):
        with pytest.raises(AssertionError, match=what):
            async with leaks_nothing(ctx):
                handle = leave(ctx)
        await handle()
        async with leaks_nothing(ctx):
            await leave(ctx)()


async def test_the_leak_check_finds_a_task_that_nobody_owns(ctx: Context) -> None:
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            with pytest.raises(AssertionError, match="tasks left behind"):
                async with leaks_nothing(ctx):
                    tasks.start_soon(anyio.sleep_forever)
            tasks.cancel_scope.cancel()


async def test_a_closed_root_has_no_traces() -> None:
    async with Context() as root:
        root.plugin(Clock)
        await root.settled()
        assert traces(root).services == {"clock": 1}
        with pytest.raises(AssertionError, match="left behind"):
            assert_unloaded(root)
    assert traces(root) == Traces()


async def test_the_recorders_keep_dispatches_and_states(ctx: Context) -> None:
    dispatches, states = DispatchRecorder(ctx), ErrorRecorder(ctx)
    ctx.emit(Said(word="a"))
    ctx.bail(Asked())
    assert dispatches.dispatches == [("emit", Said(word="a")), ("bail", Asked())]
    assert dispatches.names == ["testing/said", "testing/asked"]
    with anyio.fail_after(5):
        async with ctx.plugin(Clock) as fiber:
            pass
    assert states.states_of(fiber) == ["loading", "active", "unloading", "disposed"]


async def test_the_clock_wakes_sleepers_at_their_time_and_in_order() -> None:
    clock, log = FakeClock(now_ms=1000), list[tuple[str, int]]()

    async def sleeper(name: str, *delays: float) -> None:
        for delay in delays:
            await clock.sleep(delay)
            log.append((name, clock.now_ms()))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sleeper, "a", 2, 1)
            tasks.start_soon(sleeper, "b", 1, 5)
            await clock.advance(0.5)
            assert log == []
            await clock.advance(3)
            assert log == [("b", 2000), ("a", 3000), ("a", 4000)]
            assert (clock.now_ms(), clock.now_s()) == (4500, 4.5)
            await clock.advance(10)
    assert log[3:] == [("b", 7000)]
