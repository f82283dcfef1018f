"""The timeout policy around bodies that are slow, deaf, failing or cancelled."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

import dsh_tool_timeout
from dsh_cordis import ConfigError, Next
from dsh_llm import AbortController, create_user_message
from dsh_session import ToolErrorInfo
from dsh_tool_timeout import MAX_TIMEOUT_MS, Needs, ToolTimeoutError, mount
from dsh_tools import (
    ToolDefinition,
    ToolExecutionResult,
    ToolFailure,
    ToolRunContext,
    ToolsExecute,
    ToolSuccess,
    tool,
)
from dsh_tools.testing import ToolBench, code_of, text_of, tool_bench


class Clock:
    """Waits end when the test says so."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []
        self.running = 0
        self.passed = anyio.Event()
        self.began = anyio.Event()

    async def sleep(self, seconds: float) -> None:
        self.waits_s.append(seconds)
        self.running += 1
        self.began.set()
        try:
            await self.passed.wait()
        finally:
            self.running -= 1


@asynccontextmanager
async def timed(*definitions: ToolDefinition) -> AsyncIterator[tuple[ToolBench, Clock]]:
    clock = Clock()

    def policy(ctx: Needs) -> None:
        mount(ctx, sleep=clock.sleep)

    async with tool_bench(*definitions) as bench:
        await bench.ctx.plugin(policy)
        with anyio.fail_after(5):
            yield bench, clock


def slow(clock_passes: list[Clock]) -> ToolDefinition:
    @tool(timeout_ms=50)
    async def slow() -> str:
        """Never ends by itself."""
        clock_passes[0].passed.set()
        await anyio.sleep_forever()
        return "never"

    return slow


async def test_T90_a_call_that_outlives_its_limit_is_a_timeout() -> None:
    clocks: list[Clock] = []
    async with timed(slow(clocks)) as (bench, clock):
        clocks.append(clock)
        result = await bench.run("slow")
        assert isinstance(result, ToolFailure)
        assert result.error.info == ToolErrorInfo(name="ToolTimeoutError", code="TOOL_TIMEOUT")
        assert text_of(result) == (
            "Error: tool 'slow' was stopped because it did not finish within its limit of 50 ms; "
            "ask for less at a time"
        )
        assert clock.waits_s == [0.05]
        assert clock.running == 0


async def test_T90_a_call_in_time_is_left_alone_and_its_timer_ends() -> None:
    @tool(timeout_ms=50)
    async def quick(run: ToolRunContext) -> str:
        """Is quick."""
        seen.append(run.signal)
        await anyio.lowlevel.checkpoint()
        return "done"

    seen: list[object] = []
    async with timed(quick) as (bench, clock):
        result = await bench.run("quick")
        assert isinstance(result, ToolSuccess)
        assert text_of(result) == "done"
        assert clock.running == 0


async def test_T89_without_a_declaration_no_timer_runs() -> None:
    @tool
    async def plain() -> str:
        """Is plain."""
        return "done"

    async with timed(plain) as (bench, clock):
        await bench.run("plain")
        await bench.run("missing")
        assert clock.waits_s == []


async def test_T89_without_the_policy_a_declaration_does_nothing() -> None:
    @tool(timeout_ms=0.001)
    async def late() -> str:
        """Is late."""
        await anyio.sleep(0.01)
        return "done"

    async with tool_bench(late) as bench:
        assert text_of(await bench.run("late")) == "done"


async def test_T90_an_abort_of_the_caller_that_came_first_stays() -> None:
    clocks: list[Clock] = []
    caller = AbortController()

    @tool(timeout_ms=50, cancel="cooperative")
    async def both(run: ToolRunContext) -> str:
        """Is aborted, and then its time is over."""
        caller.abort("user")
        clocks[0].passed.set()
        await anyio.wait_all_tasks_blocked()
        return "done"

    async with timed(both) as (bench, clock):
        clocks.append(clock)
        result = await bench.tools.execute(bench.call("both", {}, signal=caller.signal))
        assert code_of(result) == "ABORTED"


async def test_T90_a_timeout_that_came_first_stays_though_the_caller_aborts() -> None:
    clocks: list[Clock] = []
    caller = AbortController()

    @tool(timeout_ms=50, cancel="cooperative")
    async def both(run: ToolRunContext) -> str:
        """Is over time, and then aborted."""
        clocks[0].passed.set()
        await run.signal.wait()
        assert isinstance(run.signal.reason, ToolTimeoutError)
        caller.abort("user")
        return "done"

    async with timed(both) as (bench, clock):
        clocks.append(clock)
        result = await bench.tools.execute(bench.call("both", {}, signal=caller.signal))
        assert code_of(result) == "TOOL_TIMEOUT"


async def test_T90_a_deaf_body_delays_the_result_until_it_ends() -> None:
    clocks: list[Clock] = []
    ended: list[bool] = []

    @tool(timeout_ms=50, cancel="cooperative")
    async def deaf() -> str:
        """Does not listen."""
        clocks[0].passed.set()
        await anyio.wait_all_tasks_blocked()
        ended.append(True)
        return "done"

    async with timed(deaf) as (bench, clock):
        clocks.append(clock)
        result = await bench.run("deaf")
        assert ended == [True]
        assert code_of(result) == "TOOL_TIMEOUT"


async def test_T90_a_failure_inside_that_is_due_to_the_timeout_is_replaced() -> None:
    clocks: list[Clock] = []

    @tool(timeout_ms=50, cancel="cooperative")
    async def fails(run: ToolRunContext) -> str:
        """Fails when its time is over."""
        clocks[0].passed.set()
        await run.signal.wait()
        raise ValueError("cut off")

    async with timed(fails) as (bench, clock):
        clocks.append(clock)
        assert code_of(await bench.run("fails")) == "TOOL_TIMEOUT"


async def test_T90_an_inside_that_raises_is_not_touched() -> None:
    @tool(timeout_ms=50)
    async def quick() -> str:
        """Is quick."""
        return "done"

    async def broken(event: ToolsExecute, next_: Next[ToolExecutionResult]) -> ToolExecutionResult:
        raise KeyError("wrapper")

    async with timed(quick) as (bench, clock):
        bench.ctx.on(ToolsExecute, broken)
        result = await bench.run("quick")
        assert text_of(result) == "Error: 'wrapper'"
        assert clock.running == 0


async def test_T61_T90_what_the_body_deferred_stays_with_the_timeout() -> None:
    clocks: list[Clock] = []
    note = create_user_message("half of it is done")

    @tool(timeout_ms=50)
    async def partial(run: ToolRunContext) -> str:
        """Leaves a note."""
        run.defer_context(note)
        clocks[0].passed.set()
        await anyio.sleep_forever()
        return "never"

    async with timed(partial) as (bench, clock):
        clocks.append(clock)
        result = await bench.run("partial")
        assert code_of(result) == "TOOL_TIMEOUT"
        assert result.additional_contexts == (note,)


async def test_T86_the_signal_is_restored_also_under_native_cancellation() -> None:
    signals: list[object] = []
    records: list[ToolRunContext] = []

    @tool(timeout_ms=50)
    async def waits() -> str:
        """Waits."""
        await anyio.sleep_forever()
        return "never"

    async def outer(event: ToolsExecute, next_: Next[ToolExecutionResult]) -> ToolExecutionResult:
        records.append(event.exec)
        signals.append(event.exec.signal)
        try:
            return await next_()
        finally:
            signals.append(event.exec.signal)

    async with timed(waits) as (bench, clock):
        bench.ctx.on(ToolsExecute, outer, prepend=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.run, "waits")
            await clock.began.wait()
            assert records[0].signal is not signals[0]
            tasks.cancel_scope.cancel()
        assert signals[0] is signals[1]
        assert clock.running == 0


async def test_T131_an_abandoned_call_has_no_timer() -> None:
    started = anyio.Event()

    @tool(timeout_ms=50, cancel="cooperative")
    async def stuck() -> str:
        """Is stuck."""
        started.set()
        with anyio.CancelScope(shield=True):
            await released.wait()
        return "late"

    released = anyio.Event()
    async with timed(stuck) as (bench, clock), anyio.create_task_group() as tasks:
        prepared = await bench.tools.scheduler.prepare(bench.call("stuck", {}))
        tasks.start_soon(bench.tools.scheduler.dispatch, prepared.exec)
        await started.wait()
        await clock.began.wait()
        bench.tools.scheduler.abandon(prepared.exec)
        await anyio.wait_all_tasks_blocked()
        assert clock.running == 0
        released.set()


@pytest.mark.parametrize(
    ("declared", "kept"),
    [(30_000, 30_000), (MAX_TIMEOUT_MS + 1, MAX_TIMEOUT_MS), (1e300, MAX_TIMEOUT_MS)],
)
async def test_T91_longer_limits_are_clamped(declared: float, kept: int) -> None:
    @tool(timeout_ms=declared)
    async def quick() -> str:
        """Is quick."""
        await anyio.wait_all_tasks_blocked()
        return "done"

    async with timed(quick) as (bench, clock):
        await bench.run("quick")
        assert clock.waits_s == [kept / 1000]


async def test_the_real_clock_ends_a_call() -> None:
    @tool(timeout_ms=1)
    async def slow() -> str:
        """Is slow."""
        await anyio.sleep_forever()
        return "never"

    async with tool_bench(slow) as bench:
        await bench.ctx.plugin(dsh_tool_timeout)
        with anyio.fail_after(5):
            assert code_of(await bench.run("slow")) == "TOOL_TIMEOUT"


async def test_C109_there_is_nothing_to_configure() -> None:
    async with tool_bench() as bench:
        with pytest.raises(ConfigError, match="timeout_ms"):
            await bench.ctx.plugin(dsh_tool_timeout, {"timeout_ms": 5})


async def test_C113_after_unload_a_declaration_does_nothing() -> None:
    @tool(timeout_ms=1)
    async def late() -> str:
        """Is late."""
        await anyio.sleep(0.01)
        return "done"

    async with tool_bench(late) as bench:
        async with bench.ctx.plugin(dsh_tool_timeout):
            pass
        assert text_of(await bench.run("late")) == "done"
