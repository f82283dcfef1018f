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
_CRASHES = (Exception, KeyboardInterrupt, SystemExit)


class Host:
    """Starts kernel tasks, and calls `pump` after each `wake` if there still is work by then."""

    def __init__(
        self,
        pump: Callable[[], None],
        has_work: Callable[[], object],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._pump = pump
        self._has_work = has_work
        self._crashed = crashed
        self._tasks: TaskGroup | None = None
        self._wake = anyio.Event()
        self._woken = False
        self._started = anyio.Event()
        self._finished = anyio.Event()
        self._closing = False
        self._soon: Callable[[Callable[[], None]], object] = _at_once
        self._native: object = None

    async def open(self) -> None:
        """Start the host task on the running event loop and wait until it takes jobs."""
        if _runs_trio():
            import trio

            self._native = trio.lowlevel.spawn_system_task(self._main, name="dsh_cordis host")
        else:
            import asyncio  # noqa: TID251  # the native start that this module exists for

            loop = asyncio.get_running_loop()
            self._soon = loop.call_soon
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
        if not self._woken and self._tasks is not None:
            self._woken = True
            # Who mounts a plugin mostly awaits it next, and that drives the kernel at once. So
            # where that is cheap, the task is woken only if there is work left a moment later.
            self._soon(self._ring)

    def _ring(self) -> None:
        self._woken = False
        if self._has_work():
            self._wake.set()

    def start(self, job: Job, context: Context) -> None:
        """Run a job in a task of the host, in a copy of `context`."""
        if self._tasks is None:
            raise RuntimeError("the host task of this root has ended; nothing can be started on it")
        _ = context.run(self._tasks.start_soon, self._guarded, job)

    async def _guarded(self, job: Job) -> None:
        try:
            await job()
        except _CRASHES as error:
            self._crashed(error)

    async def _main(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                self._started.set()
                while not self._closing:
                    await self._wake.wait()
                    self._wake = anyio.Event()
                    try:
                        self._pump()
                    except _CRASHES as error:
                        self._crashed(error)
        finally:
            self._tasks = None
            self._finished.set()


def _at_once(call: Callable[[], None]) -> None:
    call()


class Gate:
    """A cancel scope that can be cancelled until it is shut, and never after.

    Work may leave scopes of its own open inside, so nothing may be entered or exited between the
    work and its clean-up: the inner scope encloses both, and shutting only shields it.
    """

    __slots__ = ("_inner", "_outer", "_shut")

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

    async def run(self, work: Callable[[], Awaitable[object]]) -> Exception | None:
        """Do the work inside, unless cancelled already, and shut; returns its failure.

        Our own cancellation is no failure. What is neither passes.
        """
        try:
            if not self.cancelled:
                await work()
        except BaseException as error:  # noqa: BLE001  # `_failure` raises what is not ours
            return self._failure(error)
        finally:
            self.shut()
        return None

    def _failure(self, error: BaseException) -> Exception | None:
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
