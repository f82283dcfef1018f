"""The host task of a root: the one place that starts a task outside any task group.

A root may be opened in one task and closed in another (async test fixtures do that), and no task
group survives this. So one task is started natively; it holds a task group of its own, in which
all kernel tasks run, and drives the kernel whenever it is woken.
"""

from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context

import anyio
import sniffio

Job = Callable[[], Awaitable[None]]


class Host:
    """Starts kernel tasks and calls `pump` after each `wake`."""

    def __init__(self, pump: Callable[[], None], crashed: Callable[[BaseException], None]) -> None:
        self._pump = pump
        self._crashed = crashed
        self._tasks: anyio.abc.TaskGroup | None = None
        self._wake = anyio.Event()
        self._started = anyio.Event()
        self._finished = anyio.Event()
        self._closing = False

    async def open(self) -> None:
        """Start the host task on the running event loop and wait until it takes jobs."""
        if sniffio.current_async_library() == "trio":
            import trio

            trio.lowlevel.spawn_system_task(self._main, name="dsh_cordis host")
        else:
            import asyncio  # noqa: TID251  # the native start that this module exists for

            self._task = asyncio.get_running_loop().create_task(
                self._main(), name="dsh_cordis host"
            )
        await self._started.wait()

    async def close(self) -> None:
        """Let the host end, and wait until it and every job have ended."""
        self._closing = True
        self._wake.set()
        await self._finished.wait()

    def wake(self) -> None:
        """Have the kernel driven soon; a second call before that costs nothing."""
        self._wake.set()

    def start(self, job: Job, context: Context) -> None:
        """Run a job in a task of the host, in a copy of `context`."""
        if self._tasks is None:
            raise RuntimeError("the host task of this root has ended")
        context.run(self._tasks.start_soon, self._guarded, job)

    async def _guarded(self, job: Job) -> None:
        try:
            await job()
        except (KeyboardInterrupt, SystemExit) as error:
            self._crashed(error)

    async def _main(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                self._started.set()
                while not self._closing:
                    await self._wake.wait()
                    self._wake = anyio.Event()
                    self._pump()
        finally:
            self._tasks = None
            self._finished.set()


def fresh_context() -> Context:
    """A copy of the caller's context variables."""
    return copy_context()
