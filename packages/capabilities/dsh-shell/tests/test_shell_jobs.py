"""Background jobs: their life, who sees them, and what their owner is told."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

import dsh_shell
from dsh_agent import Agent, current_initiator, initiated_by
from dsh_agent_loop.testing import LoopStack, call, loop_stack, say
from dsh_cordis import Context, task_census
from dsh_llm import AbortController, message_text
from dsh_session import UserMessageEvent
from dsh_shell import (
    Job,
    JobEnd,
    JobError,
    JobRegistry,
    JobRun,
    SubprocessRuntime,
    ToolJobsSource,
)
from dsh_shell import job_tools as tools_plugin
from dsh_shell.testing import group_is_alive, until, until_output
from dsh_tools.testing import RecordingCensus, ToolBench, text_of, tool_bench


class Gate:
    """A body that ends when it is told how, or when it is stopped."""

    def __init__(self, state: str = "completed", output: str = "") -> None:
        self.open = anyio.Event()
        self.started = anyio.Event()
        self.end = JobEnd(state=cast("Any", state), output=output)
        self.reason: object = None

    async def __call__(self, run: JobRun) -> JobEnd:
        self.started.set()
        async with anyio.create_task_group() as tasks:

            async def stopped() -> None:
                await run.signal.wait()
                self.reason = run.signal.reason
                self.end = JobEnd(state="killed")
                self.open.set()

            tasks.start_soon(stopped)
            await self.open.wait()
            tasks.cancel_scope.cancel()
        return self.end


@asynccontextmanager
async def bench() -> AsyncIterator[tuple[ToolBench, JobRegistry, list[Job]]]:
    ended: list[Job] = []
    async with tool_bench() as tools:
        await tools.ctx.plugin(JobRegistry)
        jobs = cast("JobRegistry", tools.ctx.jobs)
        jobs.attach_controller(ended.append)
        with anyio.fail_after(5):
            yield tools, jobs, ended


async def test_C54_ids_count_by_kind_and_owner_and_states_follow_the_body() -> None:
    async with bench() as (tools, jobs, ended):
        one, two = tools.agent(), tools.agent()
        gates = [Gate(), Gate("failed"), Gate()]
        first = jobs.start("bash", "a", one, gates[0])
        second = jobs.start("bash", "b", one, gates[1])
        other = jobs.start("other", "c", one, gates[2])
        foreign = jobs.start("bash", "d", two, Gate())
        assert [job.id for job in (first, second, other, foreign)] == [
            "bash-1",
            "bash-2",
            "other-1",
            "bash-1",
        ]
        assert jobs.get("bash-1", one).state == "running"
        gates[0].open.set()
        gates[1].open.set()
        other.stop("enough")
        assert other.state == "stopping"
        for job in (first, second, other):
            await job.wait()
        assert [job.state for job in jobs.of(one)] == ["completed", "failed", "killed"]
        assert gates[2].reason == "enough"
        assert sorted(job.id for job in ended) == ["bash-1", "bash-2", "other-1"]
        # The end stays what it was.
        first.stop("late")
        assert jobs.get("bash-1", one).state == "completed"


async def test_C54_a_raising_body_is_a_failed_job() -> None:
    async def broken(run: JobRun) -> JobEnd:
        raise RuntimeError("no luck")

    async with bench() as (tools, jobs, _):
        job = jobs.start("x", "y", tools.agent(), broken)
        await job.wait()
        assert job.end == JobEnd(state="failed", detail="no luck")


async def test_C54_ten_live_jobs_and_only_with_a_controller() -> None:
    async with tool_bench() as tools:
        await tools.ctx.plugin(JobRegistry)
        jobs = cast("JobRegistry", tools.ctx.jobs)
        with pytest.raises(JobError) as caught:
            jobs.start("x", "y", tools.agent(), Gate())
        assert caught.value.code == "JOBS_UNAVAILABLE"
        handle = jobs.attach_controller(lambda job: None)
        agent = tools.agent()
        started = [jobs.start("x", "y", agent, Gate()) for _ in range(10)]
        started[0].stop()  # a stopping job counts too
        with pytest.raises(JobError) as caught:
            jobs.start("x", "y", agent, Gate())
        assert caught.value.code == "JOB_LIMIT"
        assert "x-10" in caught.value.message
        _ = jobs.start("x", "y", tools.agent(), Gate())
        with anyio.fail_after(5):
            await started[0].wait()
        assert jobs.start("x", "y", agent, Gate()).id == "x-11"
        handle()
        assert not jobs.available


async def test_C54_nobody_else_sees_a_job() -> None:
    async with bench() as (tools, jobs, _):
        await tools.ctx.plugin(tools_plugin.job_tools)
        owner, other = tools.agent(), tools.agent()
        job = jobs.start("x", "y", owner, Gate())
        for name in ("job_output", "job_kill"):
            denied = text_of(await tools.run_as(other, name, job_id="x-1"))
            assert "no background job 'x-1'" in denied
            assert "there are none" in denied
            assert "belong to an agent" in text_of(await tools.run(name, job_id="x-1"))
        assert text_of(await tools.run_as(other, "job_list")) == "No background jobs"
        assert job.state == "running"


async def test_C54_the_owners_end_ends_its_jobs_and_waits_for_them() -> None:
    cleaned: list[str] = []

    async def slow(run: JobRun) -> JobEnd:
        await run.signal.wait()
        await anyio.lowlevel.checkpoint()
        cleaned.append(run.id)
        return JobEnd(state="killed")

    async with bench() as (tools, jobs, _):
        agent, other = tools.agent(), tools.agent()
        job = jobs.start("x", "y", agent, slow)
        kept = jobs.start("x", "y", other, Gate())
        await agent.ctx.fiber.dispose()
        assert cleaned == ["x-1"]
        assert job.state == "killed"
        assert jobs.of(agent) == []
        assert kept.state == "running"


async def test_C113_the_services_end_ends_all_jobs() -> None:
    gate = Gate()
    async with tool_bench() as tools:
        plugin = tools.ctx.plugin(JobRegistry)
        await plugin
        jobs = cast("JobRegistry", tools.ctx.jobs)
        jobs.attach_controller(lambda job: None)
        agent = tools.agent()
        job = jobs.start("x", "y", agent, gate)
        await gate.started.wait()
        with anyio.fail_after(5):
            await plugin.dispose()
        assert job.state == "killed"
        with pytest.raises(JobError):
            jobs.start("x", "y", agent, gate)
        # Nothing of it is left in the owner.
        assert [info.label for info in agent.ctx.fiber.effects()] == []


async def test_T129_a_job_is_no_part_of_the_call_that_began_it() -> None:
    seen: list[object] = []

    async def look(run: JobRun) -> JobEnd:
        seen.extend([task_census.get(), current_initiator()])
        return JobEnd(state="completed")

    async with bench() as (tools, jobs, _):
        agent = tools.agent()
        with RecordingCensus().installed(), initiated_by(agent):
            job = jobs.start("x", "two\n lines ", agent, look)
        await job.wait()
    assert seen == [None, None]
    assert job.label == "two lines"


async def test_C55_a_result_job_repeats_its_output_and_a_wait_may_run_out() -> None:
    async with bench() as (tools, jobs, _):
        await tools.ctx.plugin(tools_plugin.job_tools)
        agent = tools.agent()
        gate = Gate(output="the result")
        jobs.start("x", "y", agent, gate)
        early = await tools.run_as(agent, "job_output", job_id="x-1", timeout_ms=1)
        assert text_of(early) == "(no new output)\n[status: running]"
        gate.open.set()
        for _ in range(2):
            done = await tools.run_as(agent, "job_output", job_id="x-1")
            assert text_of(done) == "the result\n[status: completed]"
        wrong = await tools.run_as(agent, "job_output", job_id="x-1", timeout_ms=-1)
        assert "must not be negative" in text_of(wrong)


async def test_C55_an_aborted_reading_takes_no_output_away() -> None:
    async with bench() as (tools, jobs, _):
        await tools.ctx.plugin(tools_plugin.job_tools)
        agent = tools.agent()
        pieces = ["first"]

        async def stream(run: JobRun) -> JobEnd:
            run.stream(lambda: pieces.pop() if pieces else "")
            await run.signal.wait()
            return JobEnd(state="killed")

        jobs.start("x", "y", agent, stream)
        controller = AbortController()
        reading = tools.call("job_output", {"job_id": "x-1"}, agent=agent, signal=controller.signal)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tools.tools.execute, reading)
            await anyio.wait_all_tasks_blocked()
            controller.abort()
        again = await tools.run_as(agent, "job_output", job_id="x-1", wait=False)
        assert text_of(again) == "first\n[status: running]"


# ---- telling the owner ----------------------------------------------------------------------


@asynccontextmanager
async def loop(*replies: Any) -> AsyncIterator[tuple[LoopStack, JobRegistry]]:
    def mount(root: Context) -> None:
        _ = root.plugin(dsh_shell, {"bash": {"grace_ms": 300}})

    async with loop_stack(*replies, before=mount) as stack:
        with anyio.fail_after(8):
            yield stack, cast("JobRegistry", stack.ctx.jobs)


def notices(agent: Agent) -> list[str]:
    return [
        message_text(event.data.message)
        for event in agent.session.events
        if isinstance(event.data, UserMessageEvent)
        and isinstance(event.data.message.source, ToolJobsSource)
    ]


def told(agent: Agent, count: int) -> bool:
    return len(notices(agent)) + len(agent.inbox.next_step) == count


async def done(run: JobRun) -> JobEnd:
    return JobEnd(state="completed")


async def test_C56_an_idle_owner_is_woken() -> None:
    async with loop(say("ready"), say("noted")) as (stack, jobs):
        await stack.run("hello")
        await jobs.start("x", "a build", stack.agent, done).wait()
        await until(lambda: len(stack.model.requests) == 2)
        await stack.agent.when_idle()
        assert notices(stack.agent) == [
            "Background job x-1 (a build) has ended: completed. Read it with job_output."
        ]


async def test_C56_three_wakes_in_a_row_until_a_person_speaks() -> None:
    async with loop() as (stack, jobs):
        agent = stack.agent
        for number in range(1, 6):
            await jobs.start("x", "y", agent, done).wait()
            await until(partial(told, agent, number))
            await agent.when_idle()
        assert len(stack.model.requests) == 3
        await stack.run("and now?")
        assert len(notices(agent)) == 5
        requests = len(stack.model.requests)
        await jobs.start("x", "y", agent, done).wait()
        await until(lambda: len(stack.model.requests) == requests + 1)
        await agent.when_idle()


async def test_C56_a_busy_owner_is_told_in_its_turn() -> None:
    blocked, release = anyio.Event(), anyio.Event()

    def block() -> Awaitable[None]:
        blocked.set()
        return release.wait()

    async with loop([block, *say("first")]) as (stack, jobs):
        stack.agent.followup("go")
        await blocked.wait()
        await jobs.start("x", "y", stack.agent, done).wait()
        await until(lambda: len(stack.agent.inbox.next_step) == 1)
        release.set()
        await stack.agent.when_idle()
        assert len(notices(stack.agent)) + len(stack.agent.inbox.next_step) == 1


async def test_C56_an_end_that_was_seen_gives_no_notice() -> None:
    gate = Gate(output="built")
    async with loop() as (stack, jobs):
        # The end falls between the model's request and its reading of the job.
        stack.model.replies = [
            [
                gate.open.set,
                lambda: until(lambda: len(stack.agent.inbox.next_step) == 1),
                *call(("1", "job_output", '{"job_id": "x-1"}')),
            ],
            say("ok"),
        ]
        _ = jobs.start("x", "y", stack.agent, gate)
        await stack.run("go")
        assert notices(stack.agent) == []
        assert len(stack.model.requests) == 2


async def test_A73_C123_idle_with_a_job_and_nothing_left_after_disposal() -> None:
    start = '{"command": "trap \'\' TERM; echo up; sleep 60 & wait", "description": "d", "run_in_background": true}'
    async with loop(call(("1", "bash", start)), say("started")) as (stack, jobs):
        await stack.run("go")
        assert stack.ctx.agent_loop.census(stack.agent) == []
        runtime = cast("SubprocessRuntime", stack.ctx.subprocess)
        (child,) = runtime.children
        await until_output(child)
        assert [job.state for job in jobs.of(stack.agent)] == ["running"]
        await stack.handle.dispose()
        assert not group_is_alive(child.pid)
        assert runtime.children == ()


async def test_A108_C123_cancelling_a_turn_ends_its_command() -> None:
    start = '{"command": "echo up; sleep 60", "description": "d"}'
    async with loop(call(("1", "bash", start))) as (stack, _):
        stack.agent.followup("go")
        runtime = cast("SubprocessRuntime", stack.ctx.subprocess)
        await until(lambda: bool(runtime.children))
        (child,) = runtime.children
        await until_output(child)
        stack.agent.cancel()
        await stack.agent.when_idle()
        assert not group_is_alive(child.pid)
        assert stack.ctx.agent_loop.census(stack.agent) == []
