"""The tools `job_output`, `job_list` and `job_kill`. They make background jobs available.

Upstream: packages/shell/tool-jobs/src/index.ts.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import anyio
import msgspec

from dsh_agent import InboxClaimed
from dsh_cordis import Context
from dsh_system_prompt import SystemPrompt, section_order
from dsh_tools import Number, ToolDefinition, ToolRegistry, ToolRunContext, tool
from dsh_tools.presentation import GenericCall

from . import texts
from .jobs import Job, JobRegistry
from .notices import JobNotices, status_of

DEFAULT_WAIT_MS: Final = 30_000
MAX_WAIT_MS: Final = 600_000


class Needs(Context):
    """What the job tools work with."""

    jobs: JobRegistry
    tools: ToolRegistry
    system_prompt: SystemPrompt


class JobValue(msgspec.Struct, frozen=True, rename="camel"):
    """A job as the model sees it."""

    job_id: str
    label: str
    status: str


class JobOutputValue(msgspec.Struct, frozen=True, rename="camel"):
    """A reading of a job."""

    job_id: str
    output: str
    status: str


class JobListValue(msgspec.Struct, frozen=True):
    """The jobs of the calling agent."""

    jobs: list[JobValue]


def job_tools(ctx: Needs) -> None:
    """Register the tools, and tell owners of the ends of their jobs."""
    notices = JobNotices()
    ctx.on(InboxClaimed, notices.claimed, everywhere=True)
    ctx.jobs.attach_controller(notices.ended)
    for define in (job_output_tool, job_list_tool, job_kill_tool):
        ctx.tools.register(define(ctx, notices))
    order = section_order("tool:jobs")
    ctx.system_prompt.section("tool:jobs", order, texts.JOBS_SECTION, interpolate=False)


apply = job_tools


def job_output_tool(ctx: Needs, notices: JobNotices) -> ToolDefinition:
    """The definition of `job_output`."""

    @tool(
        description=texts.JOB_OUTPUT,
        render=_render_output,
        cancel="cooperative",
        present_call=lambda arguments: GenericCall(f"Output of {arguments['job_id']}", kind="read"),
    )
    async def job_output(
        run: ToolRunContext,
        job_id: Annotated[str, texts.JOB_ID],
        wait: Annotated[bool, texts.JOB_WAIT] = True,
        timeout_ms: Annotated[Number, texts.JOB_TIMEOUT] = DEFAULT_WAIT_MS,
    ) -> JobOutputValue:
        if timeout_ms < 0:
            raise ValueError(f"timeout_ms must not be negative, not {timeout_ms}")
        job = _job(ctx, run, job_id)
        if wait and job.live:
            await _wait(job, min(timeout_ms, MAX_WAIT_MS), run, notices)
        if not run.signal.aborted:
            # A reading that nobody gets must neither take output away nor hide the end.
            notices.seen(job)
            return JobOutputValue(job.id, job.new_output(), status_of(job))
        return JobOutputValue(job.id, "", status_of(job))

    return job_output


async def _wait(job: Job, limit_ms: float, run: ToolRunContext, notices: JobNotices) -> None:
    before, told = job.reported, False
    job.reported = True  # whoever waits for the end needs no notice of it
    try:
        with anyio.move_on_after(limit_ms / 1000) as waiting:
            stop_watching = run.signal.observe(waiting.cancel)
            try:
                await job.wait()
            finally:
                stop_watching()
        told = not run.signal.aborted
    finally:
        job.reported = before
        if not told and not job.live:
            notices.ended(job)


def job_list_tool(ctx: Needs, notices: JobNotices) -> ToolDefinition:
    """The definition of `job_list`."""

    @tool(description=texts.JOB_LIST, render=_render_list)
    async def job_list(run: ToolRunContext) -> JobListValue:
        jobs = [] if run.agent is None else ctx.jobs.of(run.agent)
        for job in jobs:
            notices.seen(job)
        return JobListValue([JobValue(job.id, job.label, status_of(job)) for job in jobs])

    return job_list


def job_kill_tool(ctx: Needs, notices: JobNotices) -> ToolDefinition:
    """The definition of `job_kill`."""

    @tool(
        description=texts.JOB_KILL,
        render=lambda _, value: texts.KILL_ASKED.format(
            job_id=value["jobId"], state=value["status"]
        ),
        present_call=lambda arguments: GenericCall(f"Kill {arguments['job_id']}", kind="execute"),
    )
    async def job_kill(
        run: ToolRunContext,
        job_id: Annotated[str, texts.JOB_ID],
        reason: Annotated[str, texts.JOB_KILL_REASON] = "",
    ) -> JobValue:
        job = _job(ctx, run, job_id)
        job.stop(reason)
        notices.seen(job)
        return JobValue(job.id, job.label, status_of(job))

    return job_kill


def _job(ctx: Needs, run: ToolRunContext, job_id: str) -> Job:
    if run.agent is None:
        raise ValueError("background jobs belong to an agent, and nobody is calling")
    return ctx.jobs.get(job_id, run.agent)


def _render_output(arguments: object, value: Mapping[str, Any]) -> str:
    output = value["output"] or texts.NO_NEW_OUTPUT
    return f"{output.rstrip()}\n{texts.STATUS.format(status=value['status'])}"


def _render_list(arguments: object, value: Mapping[str, Any]) -> str:
    lines = [f"{job['jobId']}: {job['label']} [{job['status']}]" for job in value["jobs"]]
    return "\n".join(lines) or texts.NO_JOBS
