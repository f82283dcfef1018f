"""What one root owns: the queue of fibers to look at, the pump, and the host task.

The host task is the one place that starts a task outside any task group: a root may be opened in
one task and closed in another (async test fixtures do that), and no task group survives this. So
one task is started natively; it holds a task group of its own, in which all kernel tasks run, and
drives the kernel whenever it is woken.
"""

import sys
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Protocol

import anyio

from dsh_cordis.errors import NotEnteredError

if TYPE_CHECKING:
    # anyio loads its parts when they are named; this one is only an annotation.
    from anyio.abc import TaskGroup

Job = Callable[[], Awaitable[None]]
_CRASHES = (Exception, KeyboardInterrupt, SystemExit)


class Driven(Protocol):
    """A state machine that the pump looks at."""

    queued: bool

    @property
    def name(self) -> str:
        """What diagnostics call it."""

    def advance(self) -> None:
        """Make every step that is possible now, and return without waiting."""


class Kernel:
    """A queue and a pump: waits are callbacks that requeue, so depth needs no recursion."""

    def __init__(self) -> None:
        self.tasks: TaskGroup | None = None
        """While the root is open."""

        self.uids = count(1)
        self.on_crash: Callable[[], object]
        self.transitions = 0
        self._fatal: BaseException | None = None
        self._queue: deque[Driven] = deque()
        self._driving = False
        self._quiet: anyio.Event | None = None
        self._ordered: deque[Callable[[], None]] = deque()
        self._native: object = None
        self._wake: anyio.Event
        self._ended: anyio.Event
        self._woken = False
        self._soon: Callable[[Callable[[], None]], object] = _at_once

    # The host task

    async def open(self) -> None:
        """Start the host task on the running event loop and wait until it takes jobs."""
        self._wake, self._ended, started = anyio.Event(), anyio.Event(), anyio.Event()
        host = partial(self._host, started)
        if _runs_trio():
            import trio

            self._native = trio.lowlevel.spawn_system_task(host, name="dsh_cordis host")
        else:
            import asyncio  # noqa: TID251  # the native start that the host task is for

            loop = asyncio.get_running_loop()
            self._soon = loop.call_soon
            self._native = loop.create_task(host(), name="dsh_cordis host")
        await started.wait()

    async def _host(self, started: "anyio.Event") -> None:
        try:
            async with anyio.create_task_group() as tasks:
                self.tasks = tasks
                started.set()
                while self.tasks is not None:
                    await self._wake.wait()
                    self._wake = anyio.Event()
                    try:
                        self.drive()
                    except _CRASHES as error:
                        self.crash(error)
        finally:
            self.tasks = None
            self._ended.set()

    async def close(self) -> None:
        """Wait until the host task and every job have ended; re-raise what crashed in one."""
        self.tasks = None
        self._wake.set()
        await self._ended.wait()
        self._native = None
        fatal, self._fatal = self._fatal, None
        if fatal is not None:
            raise fatal

    def report(self, error: Exception, fiber: Driven, label: str) -> None:
        """Log an error and deliver it; contained."""
        raise NotImplementedError

    def crash(self, error: BaseException) -> None:
        """Take down the tree after what nothing contains (SystemExit); `close` re-raises it."""
        if self._fatal is None:
            self._fatal = error
        self.on_crash()

    def require_open(self, what: str) -> "TaskGroup":
        """Where tasks are started, or `NotEnteredError` when the root is not open."""
        if self.tasks is None:
            raise NotEnteredError(what)
        return self.tasks

    def start(self, job: Job, context: Context | None = None, *, what: str = "a task") -> None:
        """Run a job in a kernel task, in a copy of the given or the caller's context variables."""
        tasks = self.require_open(what)
        variables = copy_context() if context is None else context
        _ = variables.run(tasks.start_soon, self._guarded, job)

    async def _guarded(self, job: Job) -> None:
        try:
            await job()
        except _CRASHES as error:
            self.crash(error)

    def start_ordered(self, job: Job) -> None:
        """As `start`, but jobs begin in the order of these calls.

        trio starts tasks in shuffled order, so each job starts the next one when it begins.
        """

        async def begin() -> None:
            self._ordered.popleft()
            if self._ordered and self.tasks is not None:
                self._ordered[0]()
            await job()

        self._ordered.append(partial(self.start, begin, copy_context()))
        if len(self._ordered) == 1:
            self._ordered[0]()

    # The pump

    def touch(self, node: Driven) -> None:
        """Have the pump look at a node soon; a kernel task may just as well `drive` it."""
        if not node.queued:
            node.queued = True
            self._queue.append(node)
        if not self._woken and not self._driving and self.tasks is not None:
            self._woken = True
            # Who mounts a plugin mostly awaits it next, and that drives the kernel at once. So
            # where that is cheap, the host is woken only if there is work left a moment later.
            self._soon(self._ring)

    def _ring(self) -> None:
        self._woken = False
        if self._queue:
            self._wake.set()

    def drive(self, node: Driven | None = None) -> None:
        """Look at the node and at every queued one; nested calls leave it to the outer."""
        queue = self._queue
        if node is not None and not node.queued:
            node.queued = True
            queue.append(node)
        if self._driving:
            return
        self._driving = True
        try:
            while queue:
                node = queue.popleft()
                node.queued = False
                node.advance()
        except (KeyboardInterrupt, SystemExit):
            self._driving = False
            if node is not None:
                self.touch(node)  # it is in the middle of something
            raise
        finally:
            self._driving = False
        if self._quiet is not None and not self.transitions:
            self._quiet.set()
            self._quiet = None

    async def wait_quiet(self) -> None:
        """Return when no fiber of the tree is in transition, and none waits for the pump."""
        self.drive()
        while self.transitions or self._queue:
            if self._quiet is None:
                self._quiet = anyio.Event()
            await self._quiet.wait()


def _at_once(call: Callable[[], None]) -> None:
    call()


def _runs_trio() -> bool:
    trio = sys.modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_run())
