"""Effects: the shapes that `ctx.effect`, a plugin body and `ctx.spawn` may bring.

A shape is judged by what it is (a context manager) or by what calling it gives (nothing, a
disposer, a handle, a context manager, a generator, a coroutine), so partials, bound methods and
lambdas need no special care.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import aclosing
from contextvars import copy_context
from functools import partial
from inspect import isasyncgen, iscoroutine, isgenerator
from typing import TypeGuard

import anyio
from typing_extensions import override

from dsh_cordis._host import Gate
from dsh_cordis.handle import (
    Handle,
    HandleState,
    Owner,
    Pause,
    Rest,
    Stack,
    _within,
    move,
)


class Disposer(Handle):
    """One disposer: a callable that may return an awaitable."""

    def __init__(self, owner: Owner, label: str, undo: Callable[[], object]) -> None:
        super().__init__(owner, label)
        self._undo: Callable[[], object] | None = undo

    @override
    def _begin(self) -> Rest:
        undo, self._undo = self._undo, None
        if undo is None:
            return None
        try:
            result = undo()
        except Exception as error:  # noqa: BLE001  # kept; every other disposer still runs
            self._failed(error)
            return None
        if is_awaitable(result):
            return partial(self._await, result)
        return None

    async def _await(self, result: Awaitable[object]) -> None:
        try:
            await result
        except Exception as error:  # noqa: BLE001  # as above
            self._failed(error)


class Effect(Handle):
    """A set-up and the parts it brought, undone newest first."""

    _gate: Gate | None = None
    _ready: "anyio.Event | None" = None
    _setup_error: Exception | None = None
    _waiting = 0

    def __init__(self, owner: Owner, label: str) -> None:
        super().__init__(owner, label)
        self._parts = Stack(self._part_failed)

    @override
    def children(self) -> list[Handle]:
        return list(self._parts.items)

    @override
    def would_hang(self) -> bool:
        return super().would_hang() or any(part.would_hang() for part in self._parts.items)

    @override
    async def ready(self) -> None:
        if self._ready is not None:
            self._waiting += 1
            try:
                await self._ready.wait()
            finally:
                self._waiting -= 1
        if self._setup_error is not None:
            raise self._setup_error
        # A synchronous set-up may have brought async context managers, which are still entering.
        for part in list(self._parts.items):
            await part.ready()

    def set_up(self, shape: Callable[[], object]) -> None:
        """Run the set-up; an asynchronous one goes on in a kernel task.

        Raises:
            Exception: What the set-up raised; the parts collected so far are undone.
        """
        try:
            result = shape()
            if iscoroutine(result) or isasyncgen(result):
                self._start(result)  # type: ignore[arg-type]  # the checks know no yield type
            else:
                gather(self._parts, self._owner, result, self.label)
        except BaseException:
            self._roll_back()
            raise

    def _start(self, work: Coroutine[object, object, object] | AsyncGenerator[object]) -> None:
        if self._owner.kernel.host is None:
            close_unstarted(work)
        self._owner.kernel.require_host(self.label)
        self._gate, self._ready = Gate(), anyio.Event()
        self._owner.kernel.start(partial(self._set_up_async, work), what=self.label)

    async def _set_up_async(
        self, work: Coroutine[object, object, object] | AsyncGenerator[object]
    ) -> None:
        gate = self._gate
        assert gate is not None
        with gate:
            try:
                if gate.cancelled:
                    close_unstarted(work)
                else:
                    await gather_async(self._parts, self._owner, work, self.label)
            except BaseException as error:  # noqa: BLE001  # `contain` raises what is not ours
                self._setup_error = gate.contain(error)
            gate.shut()
            self._gate = None
            if self._setup_error is not None or self._use is HandleState.UNDOING:
                await self._abandon()
            self._announce()

    async def _abandon(self) -> None:
        """Unwind what a failed or cancelled set-up had produced."""
        if self._use is HandleState.LIVE:
            self._use = HandleState.UNDOING
        with within(self):
            await self._parts.unwind_all()
        self._finish()

    def _announce(self) -> None:
        """The set-up is over: wake who waits for it, or report an error nobody waits for."""
        error = self._setup_error
        if error is not None and not self._waiting:
            self._owner.report(error, self.label)
        if self._ready is not None:
            self._ready.set()
            self._ready = None

    def _roll_back(self) -> None:
        self._use = HandleState.UNDOING
        pause = self._parts.unwind()
        if pause is None:
            self._finish()
        else:
            self._owner.kernel.start(partial(self._complete, partial(self._unwind, pause)))

    @override
    def _begin(self) -> Rest:
        if self._gate is not None:
            self._gate.cancel()
            return "pending"
        with within(self):
            pause = self._parts.unwind()
        return None if pause is None else partial(self._unwind, pause)

    async def _unwind(self, pause: Pause) -> None:
        with within(self):
            await pause.wait()
            await self._parts.unwind_all()

    def _part_failed(self, error: Exception, label: str) -> None:
        self._failed(error)


class Managed(Handle):
    """An async context manager, entered and exited in one kernel task of its own."""

    _setup_error: Exception | None = None
    _waiting = 0

    def __init__(self, owner: Owner, label: str, manager: object) -> None:
        super().__init__(owner, label)
        self._manager = manager
        self._gate = Gate()
        self._ready = anyio.Event()
        self._leave = anyio.Event()

    def begin(self) -> None:
        """Start entering it."""
        self._owner.kernel.start(self._run, what=self.label)

    @override
    async def ready(self) -> None:
        self._waiting += 1
        try:
            await self._ready.wait()
        finally:
            self._waiting -= 1
        if self._setup_error is not None:
            raise self._setup_error

    @override
    def _begin(self) -> Rest:
        self._leave.set()
        self._gate.cancel()
        return "pending"

    async def _run(self) -> None:
        error: Exception | None = None
        with self._gate as gate:
            try:
                await self._stay()
            except BaseException as raised:  # noqa: BLE001  # `contain` raises what is not ours
                error = gate.contain(raised)
            gate.shut()
            self._end(error)

    async def _stay(self) -> None:
        if self._leave.is_set():
            return
        manager = self._manager
        async with manager:  # type: ignore[attr-defined]  # checked by `is_async_manager`
            self._gate.shut()
            self._ready.set()
            await self._leave.wait()

    def _end(self, error: Exception | None) -> None:
        self._manager = None
        undoing = self._use is HandleState.UNDOING
        if error is not None and not self._ready.is_set():
            self._setup_error = error
            if not self._waiting:
                self._owner.report(error, self.label)
        elif error is not None and undoing:
            self._failed(error)
        elif error is not None:
            self._owner.report(error, self.label)
        self._ready.set()
        self._finish()


class Background(Handle):
    """A task of the activation; undoing cancels and joins it."""

    def __init__(self, owner: Owner, label: str, work: Callable[[], Awaitable[object]]) -> None:
        super().__init__(owner, label)
        self._work: Callable[[], Awaitable[object]] | None = work
        self._gate = Gate()

    @override
    def _begin(self) -> Rest:
        self._gate.cancel()
        return "pending"

    def cancel(self) -> None:
        """Cancel the task alone; its end is neither awaited here nor a failure."""
        self._gate.cancel()

    async def run(self) -> None:
        """The task."""
        work, self._work = self._work, None
        error: Exception | None = None
        self._owner.mark_task()
        with self._gate as gate:
            try:
                if not gate.cancelled and work is not None:
                    await work()
            except BaseException as raised:  # noqa: BLE001  # `contain` raises what is not ours
                error = gate.contain(raised)
        if error is not None:
            self._task_failed(error)
        self._finish()

    def _task_failed(self, error: Exception) -> None:
        self._owner.fail(error)


def start_background(
    owner: Owner, stack: Stack, work: Callable[[], Awaitable[object]], label: str
) -> Handle:
    """Start a background task as an effect."""
    owner.kernel.require_host("ctx.spawn")
    task = Background(owner, label, work)
    stack.add(task)
    owner.kernel.start(task.run, copy_context())
    return task


def set_up(owner: Owner, stack: Stack, shape: object, label: str) -> Handle:
    """Register one effect of any accepted shape; it belongs to `stack` before its set-up runs."""
    if is_async_manager(shape):
        return manage(owner, stack, shape, label)
    effect = Effect(owner, label)
    if is_manager(shape):
        stack.add(effect)
        effect.set_up(lambda: shape)
    elif callable(shape) and not isinstance(shape, Handle):
        stack.add(effect)
        effect.set_up(shape)
    else:
        raise TypeError(
            f"{label}: {shape!r} is no effect; give a callable, a context manager, a generator "
            "function or a coroutine function"
        )
    return effect


def gather(stack: Stack, owner: Owner, result: object, label: str) -> None:
    """Take what a synchronous set-up gave: run a generator to its end, else take the one value."""
    if not isgenerator(result):
        collect(stack, owner, result, label)
        return
    take = partial(_collect_yielded, stack, owner, label)
    last = yield_from(result, take)  # type: ignore[arg-type]  # the check knows no yield type
    collect(stack, owner, last, label)


def _collect_yielded(stack: Stack, owner: Owner, label: str, value: object) -> None:
    collect(stack, owner, value, label, bare=True)


def yield_from(
    generator: Generator[object, None, object], take: Callable[[object], object]
) -> object:
    """Run a generator to its end; returns its return value."""
    try:
        while True:
            take(next(generator))
    except StopIteration as stop:
        return stop.value
    finally:
        generator.close()


async def gather_async(
    stack: Stack,
    owner: Owner,
    work: Coroutine[object, object, object] | AsyncGenerator[object],
    label: str,
) -> None:
    """Take what an asynchronous set-up gives; waits for async context managers in between."""
    if not isasyncgen(work):
        await _ready(collect(stack, owner, await work, label))  # type: ignore[misc]  # not a generator
        return
    async with aclosing(work):
        async for value in work:
            await _ready(collect(stack, owner, value, label, bare=True))


async def _ready(handle: Handle | None) -> None:
    if isinstance(handle, Managed):
        await handle.ready()


def collect(
    stack: Stack, owner: Owner, value: object, label: str, *, bare: bool = False
) -> Handle | None:
    """Put one value that a set-up gave onto the stack."""
    if value is None and not bare:
        return None
    if isinstance(value, Handle):
        if not move(value, stack, owner):
            stack.add(Disposer(owner, value.label, value))
        return value
    if is_async_manager(value):
        return manage(owner, stack, value, label)
    if is_manager(value):
        value.__enter__()  # type: ignore[attr-defined]  # checked by `is_manager`
        stack.add(Disposer(owner, label, partial(_exit, value)))
        return None
    if callable(value):
        stack.add(Disposer(owner, label, value))
        return None
    raise TypeError(
        f"{label}: a set-up gave {value!r}; give a disposer, a handle or a context manager"
        + (" (a bare yield splits nothing here: use a context manager)" if value is None else "")
    )


def manage(owner: Owner, stack: Stack, manager: object, label: str) -> Managed:
    """Register an async context manager and start entering it."""
    owner.kernel.require_host(label)
    managed = Managed(owner, label, manager)
    stack.add(managed)
    managed.begin()
    return managed


def _exit(manager: object) -> None:
    manager.__exit__(None, None, None)  # type: ignore[attr-defined]  # checked by `is_manager`


class within:  # noqa: N801  # reads as a statement
    """Marks code that runs while a handle is being undone, so that its own call cannot wait."""

    __slots__ = ("_handle", "_token")

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __enter__(self) -> None:
        self._token = _within.set((*_within.get(), self._handle))

    def __exit__(self, *exc: object) -> None:
        _within.reset(self._token)


def close_unstarted(work: Coroutine[object, object, object] | AsyncGenerator[object]) -> None:
    """Drop a coroutine that will not run; a generator that never began needs nothing."""
    if iscoroutine(work):
        work.close()


def is_awaitable(value: object) -> TypeGuard[Awaitable[object]]:
    """Whether a value can be awaited."""
    return value is not None and hasattr(type(value), "__await__")


def is_manager(value: object) -> bool:
    """Whether a value is a context manager."""
    return hasattr(type(value), "__enter__") and hasattr(type(value), "__exit__")


def is_async_manager(value: object) -> bool:
    """Whether a value is an async context manager; a fiber is a handle first."""
    if isinstance(value, Handle):
        return False
    return hasattr(type(value), "__aenter__") and hasattr(type(value), "__aexit__")
