"""Effects: the shapes that `ctx.effect`, a plugin body and `ctx.spawn` may bring.

A shape is judged by what it is (a context manager) or by what calling it gives (nothing, a
disposer, a handle, a context manager, a generator, a coroutine), so partials, bound methods and
lambdas need no special care.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager, aclosing, closing
from functools import partial
from inspect import isasyncgen, iscoroutine, isgenerator
from types import FunctionType, MethodType
from typing import Final, TypeGuard

import anyio
import msgspec
from typing_extensions import override

from dsh_cordis._gate import Gate
from dsh_cordis.handle import Handle, Stack, lifecycle, undoing

Late = Coroutine[object, object, object] | AsyncGenerator[object]
"""A set-up that has to be awaited."""


class Disposer(Handle):
    """One disposer: a callable that may return an awaitable."""

    undo: Callable[[], object] | None = None

    @override
    def _undo(self) -> bool:
        undo, self.undo = self.undo, None
        try:
            result = undo() if undo is not None else None
        except Exception as error:  # noqa: BLE001  # kept; every other disposer still runs
            self._failed(error)
            return True
        except BaseException:
            self._finish()  # it has had its turn, and nobody may wait for another
            raise
        if not is_awaitable(result):
            return True
        self._rest = partial(self._await, result)
        return False

    async def _await(self, result: Awaitable[object]) -> None:
        try:
            await result
        except Exception as error:  # noqa: BLE001  # as above
            self._failed(error)


class Starting(Disposer, kw_only=True):
    """What has a set-up that others may wait for."""

    started: "anyio.Event | None" = None  # a text: anyio loads what it names
    """While an asynchronous set-up goes on."""

    setup_error: Exception | None = None
    waiting: int = 0

    @override
    async def ready(self) -> None:
        if self.started is not None:
            self.waiting += 1
            try:
                await self.started.wait()
            finally:
                self.waiting -= 1
        if self.setup_error is not None:
            raise self.setup_error

    def announce(self, error: Exception | None = None) -> None:
        """The set-up is over: wake who waits for it, or report an error nobody waits for."""
        self.setup_error = error
        if error is not None and not self.waiting:
            self._owner.report(error, self.label)
        if self.started is not None:
            self.started.set()
            self.started = None


class Effect(Starting):
    """A set-up and what it brought: the one disposer that most give, or parts."""

    stack: Stack | None = None
    """Its parts, undone newest first."""

    gate: Gate | None = None

    @override
    def children(self) -> list[Handle]:
        return [] if self.stack is None else list(self.stack.items)

    @override
    def would_hang(self) -> bool:
        return Handle.would_hang(self) or any(part.would_hang() for part in self.children())

    @override
    async def ready(self) -> None:
        await Starting.ready(self)
        # A synchronous set-up may have brought async context managers, which are still entering.
        for part in self.children():
            await part.ready()

    def set_up(self, shape: Callable[[], object]) -> None:
        """Run the set-up; an asynchronous one goes on in a kernel task.

        Raises:
            Exception: What the set-up raised; the parts collected so far are undone.
        """
        try:
            result = shape()
            if is_late(result):
                self._start(result)
            elif is_plain(result):
                self.undo = result
            else:
                gather(self._parts(), result, self.label)
        except BaseException:
            self._begun = True
            if self._undo():
                self._finish()
            else:
                self._owner.kernel.start(self.complete)
            raise

    def _parts(self) -> Stack:
        self.stack = Stack(self._owner, self._failed)
        return self.stack

    def _start(self, work: Late) -> None:
        if self._owner.kernel.tasks is None:
            close_unstarted(work)
        self._owner.kernel.require_open(self.label)
        self.gate, self.started = Gate(), anyio.Event()
        self._owner.kernel.start(partial(self._set_up_async, work, self.gate))

    async def _set_up_async(self, work: Late, gate: Gate) -> None:
        stack = self._parts()
        with gate:
            error = await gate.run(partial(gather_async, stack, work, self.label))
            close_unstarted(work)
            self.gate = None
            if error is not None or self._begun:
                self._begun = True
                self._rest = partial(self._unwind, stack)
                await self.complete()
            self.announce(error)

    @override
    def _undo(self) -> bool:
        if self.gate is not None:
            self.gate.cancel()
            return False
        stack = self.stack
        if stack is None:
            with marked_as_undoing(self):
                return Disposer._undo(self)
        self._rest = partial(self._unwind, stack)  # first, as an interrupt may end what follows
        with marked_as_undoing(self):
            if stack.unwind() is not None:
                return False
        self._rest = None
        return True

    @override
    async def _await(self, result: Awaitable[object]) -> None:
        with marked_as_undoing(self):
            await Disposer._await(self, result)

    async def _unwind(self, stack: Stack) -> None:
        with marked_as_undoing(self):
            await stack.unwind_all()


class Background(Starting, kw_only=True):
    """A task of the activation; undoing cancels and joins it."""

    work: Callable[[], Awaitable[object]] | None
    failed: Callable[[Exception], None] | None = None
    """Takes what the task raised; without it that is a failure of undoing it."""

    gate: Gate = msgspec.field(default_factory=Gate)

    @override
    def _undo(self) -> bool:
        self.cancel()
        return False

    def cancel(self) -> None:
        """Cancel the task alone; its end is neither awaited here nor a failure."""
        self.gate.cancel()

    async def run(self) -> None:
        """The task."""
        work, self.work = self.work, None
        assert work is not None
        if self.started is None:
            lifecycle.set(None)  # nothing waits for it but its end
        with self.gate as gate:
            error = await gate.run(work)
        if self.started is not None:
            self.announce(error)
        elif error is not None:
            (self.failed or self._failed)(error)
        self._finish()


class Managed(Background, kw_only=True):
    """An async context manager, entered and exited in one kernel task of its own."""

    leave: "anyio.Event"

    @override
    def _undo(self) -> bool:
        self.leave.set()
        return Background._undo(self)

    async def stay(self, manager: AbstractAsyncContextManager[object]) -> None:
        """Enter the context manager, and exit it when this is undone."""
        async with manager:
            self.gate.shut()
            self.announce()
            await self.leave.wait()


def start_background(stack: Stack, work: Callable[[], Awaitable[object]], label: str) -> Handle:
    """Start a background task as an effect."""
    owner = stack.owner
    owner.kernel.require_open("ctx.spawn")
    task = Background(work=work, failed=owner.fail, _owner=owner, label=label)
    stack.add(task)
    owner.kernel.start(task.run)
    return task


def set_up(stack: Stack, shape: object, label: str) -> Handle:
    """Register one effect of any accepted shape; it belongs to `stack` before its set-up runs."""
    if is_async_manager(shape):
        return manage(stack, shape, label)
    begin = (lambda: shape) if is_manager(shape) else shape
    if isinstance(begin, Handle) or not callable(begin):
        raise TypeError(
            f"{label}: {shape!r} is no effect; give a callable, a context manager, a generator "
            "function or a coroutine function"
        )
    effect = Effect(_owner=stack.owner, label=label)
    stack.add(effect)
    effect.set_up(begin)
    return effect


def manage(stack: Stack, manager: AbstractAsyncContextManager[object], label: str) -> Managed:
    """Register an async context manager and start entering it."""
    owner = stack.owner
    owner.kernel.require_open(label)
    managed = Managed(
        work=None, leave=anyio.Event(), _owner=owner, label=label, started=anyio.Event()
    )
    managed.work = partial(managed.stay, manager)
    stack.add(managed)
    owner.kernel.start(managed.run)
    return managed


def gather(stack: Stack, result: object, label: str) -> None:
    """Take what a synchronous set-up gave: run a generator to its end, else take the one value."""
    if isgenerator(result):
        with closing(result) as parts:
            try:
                while True:
                    collect(stack, next(parts), label, bare=True)
            except StopIteration as stop:
                result = stop.value
    collect(stack, result, label)


async def gather_async(stack: Stack, work: Late, label: str) -> None:
    """Take what an asynchronous set-up gives; waits for async context managers in between."""
    if not isasyncgen(work):
        await _ready(collect(stack, await work, label))  # type: ignore[misc]  # not a generator
        return
    async with aclosing(work):
        async for value in work:
            await _ready(collect(stack, value, label, bare=True))


async def _ready(handle: Handle | None) -> None:
    if isinstance(handle, Managed):
        await handle.ready()


def collect(stack: Stack, value: object, label: str, *, bare: bool = False) -> Handle | None:
    """Put one value that a set-up gave onto the stack."""
    if value is None and not bare:
        return None
    if isinstance(value, Handle):
        if value._owner is not stack.owner:
            stack.add(Disposer(value, _owner=stack.owner, label=value.label))
        elif not value.used:
            stack.add(value)  # it moves here
        return value
    if is_async_manager(value):
        return manage(stack, value, label)
    if is_manager(value):
        value.__enter__()
        value = partial(value.__exit__, None, None, None)
    if not callable(value):
        raise TypeError(
            f"{label}: a set-up gave {value!r}; give a disposer, a handle or a context manager"
            + (" (a bare yield splits nothing here: use a context manager)" * (value is None))
        )
    stack.add(Disposer(value, _owner=stack.owner, label=label))
    return None


class marked_as_undoing:  # noqa: N801  # reads as a statement
    """Marks code that runs while a handle is being undone, so that its own call cannot wait."""

    __slots__ = ("_handle", "_token")

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __enter__(self) -> None:
        self._token = undoing.set((*undoing.get(), self._handle))

    def __exit__(self, *exc: object) -> None:
        undoing.reset(self._token)


def close_unstarted(work: Late) -> None:
    """Drop a coroutine that did not run; a generator that never began needs nothing."""
    if iscoroutine(work):
        work.close()


def is_late(value: object) -> TypeGuard[Late]:
    """Whether a set-up has to be awaited."""
    return iscoroutine(value) or isasyncgen(value)


def is_awaitable(value: object) -> TypeGuard[Awaitable[object]]:
    """Whether a value can be awaited."""
    return value is not None and hasattr(type(value), "__await__")


def is_async_manager(value: object) -> TypeGuard[AbstractAsyncContextManager[object]]:
    """Whether a value is an async context manager; a fiber is a handle first."""
    if type(value) in _PLAIN or isinstance(value, Handle):
        return False
    return isinstance(value, AbstractAsyncContextManager)


def is_plain(value: object) -> TypeGuard[Callable[[], object]]:
    """Whether a value is a callable and nothing else."""
    return type(value) in _PLAIN


def is_manager(value: object) -> TypeGuard[AbstractContextManager[object]]:
    """Whether a value is a context manager."""
    return not is_plain(value) and isinstance(value, AbstractContextManager)


_PLAIN: Final = (FunctionType, MethodType, partial)
"""What nearly every effect is, and never a context manager; asking the abstract class is slow."""
