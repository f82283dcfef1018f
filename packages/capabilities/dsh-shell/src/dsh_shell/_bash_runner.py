"""Runs the commands of the `bash` tool, in the foreground and as jobs."""

import codecs
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from dsh_agent import Agent
from dsh_cordis import Context
from dsh_llm import AbortSignal
from dsh_tools import ToolRunContext

from . import texts
from ._bash_values import (
    BackgroundValue,
    BashValue,
    foreground_value,
    sandbox_value,
    streams_text,
)
from ._files import default_spill_root, session_folder
from ._settings import BashSettings
from .collector import Collector
from .errors import SandboxError
from .jobs import JobEnd, JobRegistry, JobRun
from .process import ChildProcess
from .runtime import SubprocessRuntime
from .sandbox import Confinement, Sandbox, SandboxMode, SandboxPolicy
from .spill import SpillStore
from .types import Collect, ExitStatus, SpawnSpec, Spill

_PLAIN: Final[Mapping[str, str | None]] = {
    "NO_COLOR": "1",
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    # A shell that is neither of login nor interactive runs what this one names, before the command.
    "BASH_ENV": None,
}
_SHOWN_CHARS: Final = 100


class StoresLogs(Protocol):
    """The persistence of sessions, as far as it is used here."""

    def path_of(self, session_id: str) -> Path | None:
        """Where the log of a session lies."""
        ...


class Services(Context):
    """What commands are run with."""

    subprocess: SubprocessRuntime
    jobs: JobRegistry | None = None
    sandbox: Sandbox | None = None
    spill_store: SpillStore | None = None
    session_persistence: StoresLogs | None = None


@dataclass(frozen=True, kw_only=True)
class Request:
    """One call of the tool. Nothing else of its arguments gets here."""

    command: str
    description: str
    timeout_ms: float | None
    workdir: str | None
    permissions: SandboxMode | None
    justification: str | None


@dataclass(frozen=True)
class _Confined:
    policy: SandboxPolicy
    command: Confinement
    escalatable: bool


class BashRunner:
    """Turns calls into processes."""

    def __init__(self, ctx: Services, config: BashSettings) -> None:
        self._ctx = ctx
        self._config = config

    async def foreground(self, run: ToolRunContext, request: Request) -> BashValue:
        """Run a command to its end.

        Raises:
            SubprocessError: It was not started.
            SandboxError: It cannot be confined.
        """
        timeout_ms = self._timeout(request.timeout_ms)
        confined = await self._confined(run, request)
        spec = await self._spec(run, request, confined, run.signal)
        end = await self._ctx.subprocess.run(spec, timeout_ms=timeout_ms)
        if confined is None:
            return foreground_value(end, timeout_ms, None)
        failure = confined.command.runner_failed(end)
        if failure is not None:
            raise SandboxError(
                f"the command was not run: the sandbox failed: {failure}", "SANDBOX_UNAVAILABLE"
            )
        sandbox = sandbox_value(
            confined.policy, confined.command, end, escalatable=confined.escalatable
        )
        return foreground_value(end, timeout_ms, sandbox)

    async def background(self, run: ToolRunContext, request: Request) -> BashValue:
        """Start a command as a job of the calling agent.

        Raises:
            JobError: It can have no (further) job.
            SubprocessError: It was not started.
        """
        agent, jobs = run.agent, self._ctx.jobs
        if agent is None:
            raise ValueError(texts.BACKGROUND_NEEDS_AGENT)
        if jobs is None:
            raise ValueError("background jobs are not available here; run it in the foreground")
        jobs.check(agent)
        confined = await self._confined(run, request)
        spec = await self._spec(run, request, confined, None)
        child = await self._ctx.subprocess.spawn(spec)
        try:
            label = request.description or request.command
            job = jobs.start("bash", label, agent, lambda job_run: _follow(child, job_run))
        except BaseException:
            child.terminate()
            raise
        return BackgroundValue(kind="background", job_id=job.id)

    def _timeout(self, asked: float | None) -> int:
        if asked is None:
            return self._config.default_timeout_ms
        if asked <= 0:
            raise ValueError(f"timeoutMs must be positive, not {asked}")
        return max(1, min(int(asked), self._config.max_timeout_ms))

    async def _confined(self, run: ToolRunContext, request: Request) -> _Confined | None:
        sandbox = self._ctx.sandbox
        if sandbox is None and self._config.require_sandbox:
            raise SandboxError(
                "the command was not run: the sandbox that this deployment requires is not there",
                "SANDBOX_UNAVAILABLE",
            )
        if sandbox is None:
            if request.permissions is not None or request.justification is not None:
                raise SandboxError(
                    "there is no sandbox here to be widened; leave sandbox_permissions out",
                    "SANDBOX_ESCALATION",
                )
            return None
        policy = await sandbox.decide(
            run.agent,
            run.name,
            call_id=run.call_id,
            permissions=request.permissions,
            justification=request.justification,
            signal=run.signal,
        )
        return _Confined(policy, await sandbox.confine(_argv(request), policy), sandbox.escalatable)

    async def _spec(
        self,
        run: ToolRunContext,
        request: Request,
        confined: _Confined | None,
        signal: AbortSignal | None,
    ) -> SpawnSpec:
        return SpawnSpec(
            argv=_argv(request) if confined is None else confined.command.argv,
            cwd=await run.run_sync(_directory, run.agent, request.workdir),
            stdin="ignore",
            stdout=self._collect(run, "stdout"),
            stderr=self._collect(run, "stderr"),
            grace_ms=self._config.grace_ms,
            signal=signal,
            env={**_PLAIN, **self._facts(run.agent)},
        )

    def _collect(self, run: ToolRunContext, stream: str) -> Collect:
        owner = "nobody" if run.agent is None else run.agent.id
        store = self._ctx.spill_store
        folder = (
            session_folder(default_spill_root(), owner) if store is None else store.folder(owner)
        )
        limit = self._config.max_spill_bytes
        return Collect(self._config.max_output_bytes, Spill(folder, limit, f"bash-{stream}"))

    def _facts(self, agent: Agent | None) -> dict[str, str]:
        home = self._config.home or os.environ.get("DSH_HOME")
        facts = {"DSH_SHELL": "1"}
        if home:
            facts["DSH_HOME"] = str(home)
        if agent is not None:
            facts["DSH_SESSION_ID"] = agent.id
            persistence = self._ctx.session_persistence
            log = None if persistence is None else persistence.path_of(agent.id)
            if log is not None:
                facts["DSH_SESSION_LOG"] = str(log)
        return facts


def _argv(request: Request) -> list[str]:
    # Neither a login nor an interactive shell: no file of the user changes what a command means.
    return ["bash", "-c", request.command]


def _directory(agent: Agent | None, workdir: str | None) -> str:
    cwd = None if agent is None else agent.session.header.cwd
    base = Path.cwd() if cwd is None else Path(cwd)
    try:
        directory = os.path.realpath(base / (workdir or ""))
        usable = Path(directory).is_dir()
    except (OSError, ValueError):  # such as a name that is too long, or holds NUL
        directory, usable = ascii(workdir)[:_SHOWN_CHARS], False
    if not usable:
        raise NotADirectoryError(f"workdir {directory} is no directory; name an existing one")
    return directory


async def _follow(child: ChildProcess, run: JobRun) -> JobEnd:
    run.stream(_NewOutput(child))
    stop_watching = run.signal.observe(child.terminate)
    try:
        async with child.owned():
            status = await child.wait()
            if child.stopping:
                await child.wait_for_exit()
    finally:
        stop_watching()
    if run.signal.aborted:
        return JobEnd(state="killed", detail=_detail(status))
    return JobEnd(state="completed" if status.code == 0 else "failed", detail=_detail(status))


def _detail(status: ExitStatus) -> str:
    if status.signal is not None:
        return f"signal {status.signal}"
    return f"exit code {status.code}" if status.code else ""


class _NewOutput:
    """What a running command printed since it was last asked."""

    def __init__(self, child: ChildProcess) -> None:
        streams = (child.stdout, child.stderr)
        self._child = child
        self._readers = [_Reader(each) for each in streams if isinstance(each, Collector)]

    def __call__(self) -> str:
        final = self._child.status is not None
        return streams_text(*(reader.take(final=final) for reader in self._readers))


class _Reader:
    """Reads one stream in pieces; a character that is cut by a reading comes with the next."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, *, final: bool) -> str:
        piece = self._collector.read(self._offset)
        self._offset = piece.next_offset
        if piece.lossy:
            self._decoder.reset()
        text = self._decoder.decode(piece.data, final)
        return f"{texts.LOST}\n{text}" if piece.lossy else text
