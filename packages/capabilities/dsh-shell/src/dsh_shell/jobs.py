"""Background jobs: `ctx.jobs`. Upstream: packages/shell/jobs/src/service.ts."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import ClassVar, Final, Literal, TypeAlias

import anyio
import msgspec
import structlog
from structlog.typing import FilteringBoundLogger
from typing_extensions import override

from dsh_agent import Agent
from dsh_cordis import Context, Handle, Service
from dsh_llm import AbortController, AbortSignal

from ._tasks import TaskHost
from .errors import JobError

log: FilteringBoundLogger = structlog.get_logger(__name__)

JobState: TypeAlias = Literal["running", "stopping", "completed", "killed", "failed"]
EndState: TypeAlias = Literal["completed", "killed", "failed"]

MAX_LABEL_CHARS: Final = 200
MAX_JOBS: Final = 10
"""Live jobs of one owner."""


class JobEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended."""

    state: EndState
    detail: str = ""
    """For the status line, such as `exit code 2`."""
    output: str = ""
    """The final output of a job that streams none."""


class JobRun:
    """What the body of a job works with.

    Attributes:
        id: Of the job.
        signal: Aborts when the job should end; the body ends its work then, and returns.
    """

    def __init__(self, job: "Job", signal: AbortSignal) -> None:
        self.id = job.id
        self.signal = signal
        self._job = job

    def stream(self, take: Callable[[], str]) -> None:
        """Make this a job with running output: `take` gives what is new since its last call."""
        self._job.take = take


JobBody: TypeAlias = Callable[[JobRun], Awaitable[JobEnd]]


class Job:
    """One job of one owner.

    Attributes:
        id: Unique for the owner, such as `bash-1`.
        label: What it does, for people and models; one line.
        owner: Whose job it is; nobody else sees it.
        end: How it ended; `None` while it lives.
        reported: The owner has seen that it ended.
        take: New output, for jobs that stream.
    """

    def __init__(self, job_id: str, kind: str, label: str, owner: Agent) -> None:
        self.id = job_id
        self.kind = kind
        self.label = " ".join(label.split())[:MAX_LABEL_CHARS]
        self.owner = owner
        self.end: JobEnd | None = None
        self.reported = False
        self.take: Callable[[], str] | None = None
        self._abort = AbortController()
        self._settled = anyio.Event()

    @property
    def state(self) -> JobState:
        """Where it is."""
        if self.end is not None:
            return self.end.state
        return "stopping" if self._abort.signal.aborted else "running"

    @property
    def live(self) -> bool:
        """True until it has ended."""
        return self.end is None

    def stop(self, reason: str = "") -> None:
        """Ask it to end; it counts as stopping at once."""
        self._abort.abort(reason)

    async def wait(self) -> None:
        """Wait for its end."""
        await self._settled.wait()

    def new_output(self) -> str:
        """What is new since the last reading; the final output again for one that streams none."""
        if self.take is not None:
            return self.take()
        return "" if self.end is None else self.end.output

    async def run(self, body: JobBody) -> None:
        """Run the body; the first settlement counts. Cancelling this is a kill too."""
        end = JobEnd(state="killed")
        try:
            end = await body(JobRun(self, self._abort.signal))
        except Exception as error:  # noqa: BLE001  # a job's failure is its outcome
            log.warning("job.failed", job=self.id, error=type(error).__name__)
            end = JobEnd(state="failed", detail=str(error) or type(error).__name__)
        finally:
            if self.end is None:
                self.end = end
            self._settled.set()


class JobRegistry(Service):
    """Work that outlives the call which began it. Jobs end with their owner, or with this."""

    key: ClassVar[str] = "jobs"

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self._home = ctx
        self._tasks = TaskHost(ctx, "jobs")
        self._owners: dict[Agent, Handle] = {}
        self._jobs: dict[Agent, dict[str, Job]] = {}
        self._numbers: dict[tuple[Agent, str], int] = {}
        self._controllers = 0
        self._watchers: list[Callable[[Job], None]] = []

    @override
    async def init(self) -> None:
        """Admit jobs."""
        self._home.effect(lambda: self._release, label="job owners")
        await self._tasks.start()

    @property
    def available(self) -> bool:
        """True if jobs can be started: somebody gives their owners control over them."""
        return self._controllers > 0 and self._tasks.open

    def attach_controller(self, on_end: Callable[[Job], None]) -> Handle:
        """Vouch for showing jobs to their owners and letting them end them.

        Args:
            on_end: Told of every job that ended, after it is marked as ended.
        """

        def attach() -> Callable[[], None]:
            self._controllers += 1
            self._watchers.append(on_end)
            return detach

        def detach() -> None:
            self._controllers -= 1
            self._watchers.remove(on_end)

        return self.ctx.effect(attach, label="job controller")

    def check(self, owner: Agent) -> None:
        """Refuse if the owner cannot have another job now.

        Raises:
            JobError: Nobody controls jobs, or the owner has too many.
        """
        if not self.available:
            raise JobError(
                "background jobs are not available here: no job tools are mounted; "
                "run it in the foreground",
                "JOBS_UNAVAILABLE",
            )
        live = [job.id for job in self.of(owner) if job.live]
        if len(live) >= MAX_JOBS:
            raise JobError(
                f"{len(live)} background jobs are running, which is the most at a time "
                f"({', '.join(live)}); wait for one or kill one",
                "JOB_LIMIT",
            )

    def start(self, kind: str, label: str, owner: Agent, run: JobBody) -> Job:
        """Start a job.

        Args:
            kind: Begins its id.
            label: What it does.
            owner: Who sees it, and with whom it ends.
            run: Does the work, under the job's own signal.

        Raises:
            JobError: As `check`.
        """
        self.check(owner)
        if owner not in self._jobs:
            self._adopt(owner)
        number = self._numbers.get((owner, kind), 0) + 1
        self._numbers[owner, kind] = number
        job = Job(f"{kind}-{number}", kind, label, owner)
        self._jobs[owner][job.id] = job
        self._tasks.spawn(partial(self._follow, job, run), f"job:{job.id}")
        return job

    def of(self, owner: Agent) -> list[Job]:
        """The jobs of an owner, oldest first."""
        return list(self._jobs.get(owner, {}).values())

    def get(self, job_id: str, owner: Agent) -> Job:
        """A job of this owner.

        Raises:
            JobError: It has none of that id.
        """
        job = self._jobs.get(owner, {}).get(job_id)
        if job is None:
            known = ", ".join(self._jobs.get(owner, {})) or "there are none"
            raise JobError(f"no background job {job_id[:64]!r}; known: {known}", "JOB_NOT_FOUND")
        return job

    async def _follow(self, job: Job, run: JobBody) -> None:
        await job.run(run)
        for watcher in tuple(self._watchers):
            try:
                watcher(job)
            except Exception as error:  # a failing watcher must not end other owners' jobs
                log.error("jobs.watcher_failed", job=job.id, exc_info=error)

    def _adopt(self, owner: Agent) -> None:
        self._owners[owner] = owner.ctx.effect(
            lambda: partial(self._end_all, owner), label="background jobs"
        )
        self._jobs[owner] = {}

    async def _release(self) -> None:
        # The jobs have ended with their tasks; what is left are the traces in their owners.
        for handle in tuple(self._owners.values()):
            await handle()

    async def _end_all(self, owner: Agent) -> None:
        self._owners.pop(owner, None)
        jobs = self._jobs.pop(owner, {})
        for key in [key for key in self._numbers if key[0] is owner]:
            del self._numbers[key]
        for job in jobs.values():
            job.reported = True
            job.stop("its owner was disposed")
        for job in jobs.values():
            await job.wait()
