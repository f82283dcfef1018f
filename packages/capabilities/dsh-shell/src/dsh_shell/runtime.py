"""The subprocess runtime: `ctx.subprocess`. Upstream: packages/shell/subprocess-local/src."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import anyio
from typing_extensions import override

from dsh_cordis import Context, Service
from dsh_llm import AbortSignal

from ._guard import HostGuard
from ._tasks import TaskHost
from .collector import Collector
from .env import child_environment
from .errors import SubprocessError
from .pipes import PipeReader, PipeWriter, input_pipe, output_pipe
from .process import ChildProcess, Intake
from .types import MAX_GRACE_MS, Collect, ExitStatus, Finished, Output, SpawnSpec


class SubprocessRuntime(Service):
    """Starts processes, each leading a group of its own, and ends them with itself.

    Disposing the runtime terminates every group that is left and waits for its end; if the host
    dies without disposing it, a helper process kills them.
    """

    key: ClassVar[str] = "subprocess"

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self._guard = HostGuard()
        self._tasks = TaskHost(ctx, "child processes")
        self._children: set[ChildProcess] = set()

    @override
    async def init(self) -> None:
        """Start the guard and what the children are managed by."""
        await self._guard.open()
        self.ctx.effect(lambda: self._guard.close, label="host guard")
        await self._tasks.start()

    @property
    def children(self) -> tuple[ChildProcess, ...]:
        """Those whose group is not known to be gone."""
        return tuple(self._children)

    async def spawn(self, spec: SpawnSpec) -> ChildProcess:
        """Start a process. It is managed from then on, whatever becomes of the caller.

        Raises:
            SubprocessError: The spec is malformed, its signal is aborted, the runtime is closing,
                or the system refuses.
        """
        _check(spec)
        if not self._tasks.open:
            raise SubprocessError(
                f"{spec.argv[0]!r} was not started: the subprocess runtime is unloading",
                "SUBPROCESS_CLOSED",
            )
        # A start that is cut in half would leave a process that nobody knows.
        with anyio.CancelScope(shield=True):
            child = await self._start(spec)
            self._children.add(child)
            self._guard.add(child.pid)
            if not self._tasks.spawn(child.manage, f"child:{child.pid}"):
                child.terminate()
                await child.manage()
        return child

    async def run(self, spec: SpawnSpec, *, timeout_ms: float | None = None) -> Finished:
        """Run a command to its end, or end it: at the time limit, or when its signal aborts.

        After either, and when the caller is cancelled, its whole group is gone on return. What a
        command leaves behind that ended by itself stays.

        Args:
            spec: Its outputs are collected where it says so, and empty in the result elsewhere.
            timeout_ms: No limit by default.

        Raises:
            SubprocessError: It was not started.
        """
        child = await self.spawn(spec)
        cause = _Cause()
        forget = spec.signal.observe(cause.abort) if spec.signal else None
        limit_s = float("inf") if timeout_ms is None else timeout_ms / 1000
        try:
            async with child.owned():
                with anyio.move_on_after(limit_s) as limit:
                    await child.wait()
                if limit.cancelled_caught:
                    cause.time_out()
                    child.terminate()
                status = await child.wait()
                if child.stopping:
                    await child.wait_for_exit()
        finally:
            if forget is not None:
                forget()
        return _finished(child, status, cause)

    async def collect(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        stdout_bytes: int,
        stderr_bytes: int,
        timeout_ms: float,
        grace_ms: int,
        env: Mapping[str, str | None] | None = None,
        signal: AbortSignal | None = None,
        ends_beyond: bool = False,
    ) -> Finished:
        """Run a command without input and keep the end of its output; as `run`, in plain words.

        Args:
            argv: Program and arguments; no shell looks at them.
            cwd: Working directory.
            stdout_bytes: Kept of it.
            stderr_bytes: Kept of it.
            timeout_ms: Limit of the whole.
            grace_ms: Between asking it to end and killing it.
            env: On top of the filtered environment of the host.
            signal: Ends it.
            ends_beyond: End it too when stdout outgrows what is kept; `stdout_lossy` tells.

        Raises:
            SubprocessError: It was not started.
        """
        spec = SpawnSpec(
            argv=argv,
            cwd=cwd,
            stdin="ignore",
            stdout=Collect(stdout_bytes, ends_beyond=ends_beyond),
            stderr=Collect(stderr_bytes),
            grace_ms=grace_ms,
            signal=signal,
            env=env or {},
        )
        return await self.run(spec, timeout_ms=timeout_ms)

    def _forget(self, child: ChildProcess) -> None:
        self._children.discard(child)
        if not child.survivors:
            self._guard.remove(child.pid)

    async def _start(self, spec: SpawnSpec) -> ChildProcess:
        wiring = _Wiring()
        try:
            stdin = wiring.input(spec)
            stdout, stderr = wiring.output(spec.stdout), wiring.output(spec.stderr)
            native = await anyio.open_process(
                list(spec.argv),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=spec.cwd,
                env=child_environment(spec.env),
                start_new_session=True,
            )
        except BaseException as error:
            wiring.close_ours()
            if isinstance(error, OSError):
                raise _refused(spec, error) from error
            raise
        finally:
            wiring.close_theirs()
        out, err = wiring.outputs
        return ChildProcess(native, spec, wiring.stdin, out, err, wiring.intakes, self._forget)


class _Cause:
    """What ended a command first."""

    def __init__(self) -> None:
        self.aborted = False
        self.timed_out = False

    def abort(self) -> None:
        self.aborted = not self.timed_out

    def time_out(self) -> None:
        self.timed_out = not self.aborted


class _Wiring:
    """The pipes of one start."""

    def __init__(self) -> None:
        self.stdin: PipeWriter | None = None
        self.outputs: list[Collector | PipeReader | None] = []
        self.intakes: list[Intake] = []
        self._ours: list[PipeReader | PipeWriter] = []
        self._theirs: list[int] = []

    def input(self, spec: SpawnSpec) -> int:
        if spec.stdin == "ignore":
            return subprocess.DEVNULL
        self.stdin, theirs = input_pipe()
        self._ours.append(self.stdin)
        self._theirs.append(theirs)
        return theirs

    def output(self, kind: Output) -> int | None:
        if kind == "inherit":
            self.outputs.append(None)
            return None
        reader, theirs = output_pipe()
        self._ours.append(reader)
        self._theirs.append(theirs)
        if isinstance(kind, Collect):
            collector = Collector(kind)
            self.intakes.append(Intake(reader, collector))
            self.outputs.append(collector)
        else:
            self.outputs.append(reader)
        return theirs

    def close_ours(self) -> None:
        for end in self._ours:
            end.close()

    def close_theirs(self) -> None:
        for descriptor in self._theirs:
            os.close(descriptor)


def _check(spec: SpawnSpec) -> None:
    problem: str | None = None
    grace: object = spec.grace_ms
    if isinstance(spec.argv, str) or not spec.argv or not spec.argv[0]:
        problem = "argv must name a program"
    elif isinstance(grace, bool) or not isinstance(grace, int) or not 0 < grace <= MAX_GRACE_MS:
        problem = f"grace_ms must be an integer from 1 to {MAX_GRACE_MS}, not {grace!r}"
    elif not all(_is_passable(part) for part in (*spec.argv, spec.cwd)):
        problem = "an argument holds a character that no system can pass on, such as NUL"
    if problem is not None:
        raise SubprocessError(f"nothing was started: {problem}", "SPAWN_INVALID")
    if spec.signal is not None and spec.signal.aborted:
        raise SubprocessError(
            f"{spec.argv[0]!r} was not started: the call was aborted before", "SPAWN_ABORTED"
        )


def _is_passable(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _refused(spec: SpawnSpec, error: OSError) -> SubprocessError:
    if not Path(spec.cwd).is_dir():
        reason = f"the working directory {spec.cwd} is no directory"
    else:
        reason = error.strerror or type(error).__name__
    return SubprocessError(f"{spec.argv[0]!r} was not started: {reason}", "SPAWN_FAILED", error)


def _finished(child: ChildProcess, status: ExitStatus, cause: _Cause) -> Finished:
    out = child.stdout if isinstance(child.stdout, Collector) else None
    err = child.stderr if isinstance(child.stderr, Collector) else None
    return Finished(
        status=status,
        stdout=b"" if out is None else out.read().data,
        stderr=b"" if err is None else err.read().data,
        stdout_lossy=out is not None and out.lossy,
        stderr_lossy=err is not None and err.lossy,
        stdout_file=None if out is None else out.file,
        stderr_file=None if err is None else err.file,
        timed_out=cause.timed_out,
        aborted=cause.aborted,
        held_open=child.held_open,
        survivors=child.survivors,
    )
