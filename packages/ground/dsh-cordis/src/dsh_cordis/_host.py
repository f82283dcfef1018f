"""The host task of a root: the one place that starts a task outside any task group.

A root may be opened in one task and closed in another (async test fixtures do that), and no task
group survives this. So one task is started natively; it holds a task group of its own, in which
all kernel tasks run, and drives the kernel whenever it is woken.
"""

import sys
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import TYPE_CHECKING, Self

import anyio

if TYPE_CHECKING:
    # anyio loads its parts when they are named; this one is only an annotation.
    from anyio.abc import TaskGroup

Job = Callable[[], Awaitable[None]]


class Host:
    """Starts kernel tasks and calls `pump` after each `wake`."""

    def __init__(self, pump: Callable[[], None], crashed: Callable[[BaseException], None]) -> None:
        self._pump = pump
        self._crashed = crashed
        self._tasks: TaskGroup | None = None
        self._wake = anyio.Event()
        self._woken = False
        self._started = anyio.Event()
        self._finished = anyio.Event()
        self._closing = False
        self._native: object = None

    async def open(self) -> None:
        """Start the host task on the running event loop and wait until it takes jobs."""
        if _runs_trio():
            import trio

            self._native = trio.lowlevel.spawn_system_task(self._main, name="dsh_cordis host")
        else:
            import asyncio  # noqa: TID251  # the native start that this module exists for

            loop = asyncio.get_running_loop()
            self._native = loop.create_task(self._main(), name="dsh_cordis host")
        await self._started.wait()

    async def close(self) -> None:
        """Let the host end, and wait until it and every job have ended."""
        self._closing = True
        self._wake.set()
        await self._finished.wait()
        self._native = None

    def wake(self) -> None:
        """Have the kernel driven soon; a second call before that costs nothing."""
        if not self._woken:
            self._woken = True
            self._wake.set()

    def start(self, job: Job, context: Context) -> None:
        """Run a job in a task of the host, in a copy of `context`."""
        if self._tasks is None:
            raise RuntimeError("the host task of this root has ended; nothing can be started on it")
        _ = context.run(self._tasks.start_soon, self._guarded, job)

    async def _guarded(self, job: Job) -> None:
        try:
            await job()
        except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001  # `close` raises it
            self._crashed(error)

    async def _main(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                self._started.set()
                while not self._closing:
                    await self._wake.wait()
                    self._wake = anyio.Event()
                    self._woken = False
                    try:
                        self._pump()
                    except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001  # `close` raises it
                        self._crashed(error)
        finally:
            self._tasks = None
            self._finished.set()


class Gate:
    """A cancel scope that can be cancelled until it is shut, and never after.

    Work may leave scopes of its own open inside, so nothing may be entered or exited between the
    work and its clean-up: the inner scope encloses both, and shutting only shields it.
    """

    def __init__(self) -> None:
        self._outer = anyio.CancelScope()
        self._inner = anyio.CancelScope()
        self._shut = False

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` took effect."""
        return self._outer.cancel_called

    def cancel(self) -> None:
        """Cancel the work inside; without effect once the gate is shut."""
        if not self._shut:
            self._outer.cancel()

    def shut(self) -> None:
        """End the time in which the inside can be cancelled."""
        self._shut = True
        # Shielding only when needed lets a root that was abandoned die with its event loop.
        self._inner.shield = self._outer.cancel_called

    def __enter__(self) -> Self:
        self._outer.__enter__()
        self._inner.__enter__()
        return self

    def __exit__(self, *exc: object) -> bool:
        inner = self._inner.__exit__(*exc)  # type: ignore[arg-type]  # the triple of __exit__
        if inner:
            exc = (None, None, None)
        return bool(self._outer.__exit__(*exc)) or bool(inner)  # type: ignore[arg-type]  # as above

    def contain(self, error: BaseException) -> Exception | None:
        """Sort what the work raised: its failure, None for our own cancellation, else raise."""
        cancelled = anyio.get_cancelled_exc_class()
        rest: BaseException | None = error
        if isinstance(error, BaseExceptionGroup):
            rest = error.split(cancelled)[1]
        elif isinstance(error, cancelled):
            rest = None
        if rest is None and self.cancelled:
            return None
        if isinstance(rest, Exception):
            return rest
        raise error


def _runs_trio() -> bool:
    trio = sys.modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_run())
