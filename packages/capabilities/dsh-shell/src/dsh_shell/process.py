"""One managed child: its streams, its end, and the end of what it leads.

Upstream: packages/shell/subprocess-local/src/process.ts.
"""

import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
import structlog
from anyio.abc import Process, TaskGroup
from structlog.typing import FilteringBoundLogger

from ._group import ProcessGroup
from .collector import Collector
from .pipes import PipeReader, PipeWriter
from .types import ExitStatus, SpawnSpec

log: FilteringBoundLogger = structlog.get_logger(__name__)

DRAIN_IDLE_S: Final = 0.5
"""After the leader's end, output that is silent for so long counts as finished."""
KILL_WAIT_S: Final = 5.0
"""How long members of a group may outlive SIGKILL before they are given up as survivors."""
_FIRST_POLL_S: Final = 0.005
_SLOWEST_POLL_S: Final = 0.25


class Intake:
    """Moves a child's output into a collector."""

    def __init__(self, reader: PipeReader, collector: Collector) -> None:
        self.collector = collector
        self.finished = anyio.Event()
        self.last_heard = time.monotonic()
        self.on_loss: Callable[[], None] | None = None
        self._reader = reader

    async def run(self) -> None:
        """Read until the end of the stream, or until cancelled."""
        try:
            while data := await self._reader.receive():
                self.last_heard = time.monotonic()
                await self.collector.feed(data)
                if self.on_loss is not None and self.collector.lossy:
                    self.on_loss()
            self.finished.set()
        finally:
            self._reader.close()
            with anyio.CancelScope(shield=True):
                await self.collector.finish()


class ChildProcess:
    """A process that leads a group of its own.

    A process that left the group, as `setsid` makes it do, is out of reach: it may outlive all of
    this. That is a limit of process groups.

    Attributes:
        pid: Of the leader; the group's id too.
        stdin: For `"pipe"`; the caller closes it.
        stdout: A collector, a pipe that the caller reads and closes, or `None` if inherited.
        stderr: As `stdout`.
        status: How the leader ended; `None` while it runs.
        held_open: After `wait`: somebody else still holds collected output.
        survivors: After `terminate`: members that not even SIGKILL ended in time.
    """

    def __init__(
        self,
        native: Process,
        spec: SpawnSpec,
        stdin: PipeWriter | None,
        stdout: Collector | PipeReader | None,
        stderr: Collector | PipeReader | None,
        intakes: list[Intake],
        on_gone: Callable[["ChildProcess"], None],
    ) -> None:
        self.pid = native.pid
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.status: ExitStatus | None = None
        self.held_open = False
        self.survivors = False
        self._native = native
        self._grace_s = spec.grace_ms / 1000
        self._input = spec.stdin if isinstance(spec.stdin, bytes) else None
        self._intakes = intakes
        self._on_gone = on_gone
        for intake in intakes:
            intake.on_loss = self.terminate if intake.collector.ends_beyond else None
        self._group = ProcessGroup(native.pid)
        self._stop_asked = anyio.Event()
        self._stopped = anyio.Event()
        self._done = anyio.Event()
        self._gone = anyio.Event()
        self._forget_signal = spec.signal.observe(self.terminate) if spec.signal else None

    @property
    def stopping(self) -> bool:
        """True once `terminate` was called."""
        return self._stop_asked.is_set()

    def terminate(self) -> None:
        """End the whole group: SIGTERM now, SIGKILL after the grace. Again is fine."""
        if not self._stop_asked.is_set() and not self._gone.is_set():
            self._stop_asked.set()
            self._group.send(signal.SIGTERM)
            # A stopped process meets SIGTERM only when it goes on.
            self._group.send(signal.SIGCONT)

    async def wait(self) -> ExitStatus:
        """Wait until the leader has ended and its collected output is drained.

        Output that a descendant holds open is waited for while it keeps coming, at most the grace.
        """
        await self._done.wait()
        assert self.status is not None
        return self.status

    @asynccontextmanager
    async def owned(self) -> AsyncIterator[None]:
        """A block that ends by an exception, such as cancellation, leaves nothing of the group."""
        try:
            yield
        except BaseException:
            self.terminate()
            with anyio.CancelScope(shield=True):
                await self.wait_for_exit()
            raise

    async def wait_for_exit(self) -> None:
        """Wait until nothing of the group is left, or the survivors are given up."""
        await self._gone.wait()

    # ---- the runtime's side ----------------------------------------------------------------

    async def manage(self) -> None:
        """Follow the process to the end of its group; cancelling this terminates it first."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._terminate_when_cancelled)
            with anyio.CancelScope(shield=True):
                await self._follow()
            tasks.cancel_scope.cancel()

    async def _terminate_when_cancelled(self) -> None:
        try:
            await self._gone.wait()
        finally:
            self.terminate()

    async def _follow(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._stop_in_steps)
                async with anyio.create_task_group() as streams:
                    self._start_streams(streams)
                    await self._leader_end()
                    await self._drain()
                    streams.cancel_scope.cancel()
                self._done.set()
                await self._group_end()
                tasks.cancel_scope.cancel()
            await self._native.aclose()
        finally:
            if self._forget_signal is not None:
                self._forget_signal()
            self._on_gone(self)
            self._gone.set()
            self._done.set()

    def _start_streams(self, streams: TaskGroup) -> None:
        for intake in self._intakes:
            streams.start_soon(intake.run)
        if self._input is not None and self.stdin is not None:
            streams.start_soon(self._feed, self.stdin, self._input)

    async def _feed(self, writer: PipeWriter, data: bytes) -> None:
        try:
            await writer.send(data)
        except BrokenPipeError:
            pass  # it does not want the rest
        finally:
            writer.close()

    async def _leader_end(self) -> None:
        code = await self._native.wait()
        self._group.leader_reaped = True
        self.status = ExitStatus(code=code) if code >= 0 else ExitStatus(signal=_signal_name(-code))

    async def _drain(self) -> None:
        if self.stopping:
            await self._stopped.wait()  # the rest of the group may still have something to say
        now = time.monotonic()
        deadline = now + self._grace_s
        ended_at = now
        while not self._drained and now < deadline:
            heard = max([ended_at, *(intake.last_heard for intake in self._intakes)])
            quiet_at = heard + min(DRAIN_IDLE_S, self._grace_s)
            if now >= quiet_at:
                break
            with anyio.move_on_after(min(quiet_at, deadline) - now):
                for intake in self._intakes:
                    await intake.finished.wait()
            now = time.monotonic()
        self.held_open = not self._drained

    @property
    def _drained(self) -> bool:
        return all(intake.finished.is_set() for intake in self._intakes)

    async def _group_end(self) -> None:
        delay = _FIRST_POLL_S
        while not self._stop_asked.is_set():
            if self._group.gone():
                return
            # Nothing tells when a group ends; what a command leaves behind may live for hours.
            with anyio.move_on_after(delay):
                await self._stop_asked.wait()
            delay = min(delay * 2, _SLOWEST_POLL_S)
        await self._stopped.wait()

    async def _stop_in_steps(self) -> None:
        await self._stop_asked.wait()
        if not await self._gone_within(self._grace_s):
            self._group.send(signal.SIGKILL)
            self.survivors = not await self._gone_within(KILL_WAIT_S)
            if self.survivors:
                log.error("subprocess.survivors", group=self.pid, waited_s=KILL_WAIT_S)
        self._stopped.set()

    async def _gone_within(self, limit_s: float) -> bool:
        deadline = time.monotonic() + limit_s
        delay = _FIRST_POLL_S
        while not self._group.gone():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            await anyio.sleep(min(delay, left))
            delay = min(delay * 2, _SLOWEST_POLL_S)
        return True


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
