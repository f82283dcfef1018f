"""What one root owns: the queue of fibers to look at, the pump, and the host task."""

from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from itertools import count
from typing import Protocol

import anyio

from dsh_cordis._host import Host, Job
from dsh_cordis.errors import NotEnteredError


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
        self.host: Host | None = None
        self.uids = count(1)
        self.fatal: BaseException | None = None
        self.on_crash: Callable[[], object]
        self.report: Callable[[Exception, Driven, str], None]
        self.transitions = 0
        self._queue: deque[Driven] = deque()
        self._driving = False
        self._quiet: anyio.Event | None = None
        self._ordered: deque[tuple[Job, Context]] = deque()

    async def open(self) -> None:
        """Start the host task."""
        host = Host(self.drive, self._queue.__len__, self.crash)
        await host.open()
        self.host = host

    async def close(self) -> None:
        """End the host task; re-raise what crashed in a kernel task."""
        host, self.host = self.host, None
        if host is not None:
            await host.close()
        fatal, self.fatal = self.fatal, None
        if fatal is not None:
            raise fatal

    def require_host(self, what: str) -> Host:
        """The host, or `NotEnteredError` when the root is not open."""
        if self.host is None:
            raise NotEnteredError(what)
        return self.host

    def crash(self, error: BaseException) -> None:
        """Take down the tree after what nothing contains (SystemExit); `close` re-raises it."""
        if self.fatal is None:
            self.fatal = error
        self.on_crash()

    def touch(self, node: Driven) -> None:
        """Have the pump look at a node soon; a kernel task may just as well `drive` it."""
        if not node.queued:
            node.queued = True
            self._queue.append(node)
        if self.host is not None and not self._driving:
            self.host.wake()

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

    def start(self, job: Job, context: Context | None = None, *, what: str = "a task") -> None:
        """Run a job in a kernel task, in a copy of the given or the caller's context variables."""
        self.require_host(what).start(job, context if context is not None else copy_context())

    def start_ordered(self, job: Job) -> None:
        """As `start`, but jobs begin in the order of these calls.

        trio starts tasks in shuffled order, so each job starts the next one when it begins.
        """
        self._ordered.append((job, copy_context()))
        if len(self._ordered) == 1:
            self._start_first()

    def _start_first(self) -> None:
        job, context = self._ordered[0]
        self.start(partial(self._begin_ordered, job), context)

    async def _begin_ordered(self, job: Job) -> None:
        self._ordered.popleft()
        if self._ordered and self.host is not None:
            self._start_first()
        await job()
