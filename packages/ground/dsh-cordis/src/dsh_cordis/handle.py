"""Handles: single-shot disposers, and the stacks they are unwound from.

Every registration returns a `Handle` and stands in one `Stack`: that of its activation, or that
of the composite effect it was moved into. Unwinding goes strictly newest first.
Upstream: packages/core/src/fiber.ts of Cordis (disposables).
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextvars import ContextVar
from enum import Enum, auto
from functools import partial
from typing import Final, Literal

import anyio
from typing_extensions import override

from dsh_cordis._kernel import Kernel

Sink = Callable[[Exception, str], None]
"""Takes what a disposer raised, and its label."""

Rest = Callable[[], Awaitable[None]] | Literal["pending"] | None
"""What is left after the synchronous part of undoing: work, a wait for itself, or nothing."""

_within: ContextVar[tuple["Handle", ...]] = ContextVar("dsh_cordis_within", default=())


class Owner(ABC):
    """Whose registrations a stack holds; an activation of a fiber."""

    kernel: Kernel

    @abstractmethod
    def report(self, error: Exception, label: str) -> None:
        """Log an error with the fiber's name and deliver it to `internal/error`."""

    @abstractmethod
    def fail(self, error: Exception) -> None:
        """Take the fiber down because a background task of it raised."""

    @abstractmethod
    def mark_task(self) -> None:
        """Mark the current task as a background task of the fiber."""


class Done:
    """Something asked for is complete already; awaiting it returns at once."""

    __slots__ = ()

    def __await__(self) -> Generator[object, None, None]:
        return
        yield


class Going:
    """Something asked for goes on in the kernel; awaiting it only waits and raises its errors."""

    __slots__ = ("_wait",)

    def __init__(self, wait: Callable[[], Awaitable[None]]) -> None:
        self._wait = wait

    def __await__(self) -> Generator[object, None, None]:
        return self._run().__await__()

    async def _run(self) -> None:
        await self._wait()


Completion = Done | Going
"""What acting on a handle or a fiber gives; it may be awaited, and may be dropped."""

DONE: Final = Done()


def all_of(parts: Sequence[Completion]) -> Completion:
    """Several completions as one."""

    async def wait() -> None:
        for part in parts:
            await part

    return Going(wait) if parts else DONE


class HandleState(Enum):
    """Where a handle is in its single use."""

    LIVE = auto()
    UNDOING = auto()
    USED = auto()


class Handle:
    """Undoes one registration, once.

    `handle()` undoes a synchronous effect before it returns; `await handle()` also waits for an
    asynchronous one. Further calls do no work and wait for the same completion.
    """

    # Class attributes are the defaults of what most handles never need.
    _home: "Stack | None" = None
    _use = HandleState.LIVE
    _how: Literal["unload", "sync", "async"] = "unload"
    _errors: list[Exception] | None = None
    _callbacks: list[Callable[[], None]] | None = None
    _used_event: "anyio.Event | None" = None
    _raisers = 0

    _label = ""

    def __init__(self, owner: Owner, label: str) -> None:
        """Made by the kernel; see `Context.effect` and its siblings."""
        self._owner = owner
        self._label = label

    @property
    def label(self) -> str:
        """What diagnostics call this registration."""
        return self._label

    @property
    def used(self) -> bool:
        """Whether undoing is complete."""
        return self._use is HandleState.USED

    def __call__(self) -> Completion:
        """Undo the registration; the result may be awaited.

        Raises:
            Exception: What disposers raised, after all have run (a group if several), unless the
                undo is asynchronous; then awaiting raises it.
        """
        if self._use is HandleState.USED:
            return DONE
        if self._use is HandleState.UNDOING:
            return Going(self._wait_by_hand)
        self._use = HandleState.UNDOING
        self._how = "sync"
        rest = self._begin()
        if rest is None:
            self._finish()
        if self.used:
            self._raise_errors()
            return DONE
        self._how = "async"
        if rest is not None and rest != "pending":
            self._owner.kernel.start(partial(self._complete, rest), what=f"undoing {self.label!r}")
        return Going(self._wait_by_hand)

    async def ready(self) -> None:
        """Wait until an asynchronous set-up is done; raise its error.

        A synchronous registration is ready at once.
        """

    opaque = False
    """Whether its children are no parts of it, as those of a fiber."""

    simple = False
    """Whether undoing it never needs the task of the body."""

    def children(self) -> "list[Handle]":
        """The parts of a composite, oldest first."""
        return []

    def would_hang(self) -> bool:
        """Whether undoing can only be complete after the code that asks."""
        return self in _within.get()

    async def _wait_by_hand(self) -> None:
        if not self.would_hang():
            await self.wait_used(raising=True)

    async def wait_used(self, *, raising: bool = False) -> None:
        """Wait until undoing is complete; with `raising`, raise what the disposers raised."""
        if self._use is not HandleState.USED:
            self._raisers += raising
            try:
                await self._event().wait()
            finally:
                self._raisers -= raising
            if raising:
                self._raise_errors()

    def when_used(self, callback: Callable[[], None]) -> None:
        """Call back when undoing is complete."""
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append(callback)

    def _event(self) -> "anyio.Event":
        if self._used_event is None:
            self._used_event = anyio.Event()
        return self._used_event

    def _begin(self) -> Rest:
        """Do the synchronous part of undoing; errors go to `_errors`."""
        return None

    async def _complete(self, rest: Callable[[], Awaitable[None]]) -> None:
        await rest()
        self._finish()

    def _failed(self, error: Exception) -> None:
        """Keep what a disposer raised; the others still run."""
        if self._errors is None:
            self._errors = []
        self._errors.append(error)

    def _finish(self) -> None:
        """Undoing is complete: leave the stack, hand out errors, wake who waits."""
        self._use = HandleState.USED
        home, self._home = self._home, None
        if home is not None:
            home.items.pop(self, None)
        if self._errors is not None:
            if home is not None and self._how == "unload":
                self._drain_errors(home.sink)
            elif self._how == "async" and not self._raisers:
                self._drain_errors(self._owner.report)
        if self._used_event is not None:
            self._used_event.set()
        if self._callbacks is not None:
            callbacks, self._callbacks = self._callbacks, None
            for callback in callbacks:
                callback()

    def _drain_errors(self, sink: Sink) -> None:
        errors, self._errors = self._errors, None
        for error in errors or ():
            sink(error, self.label)

    def _raise_errors(self) -> None:
        if self._errors is None:
            return
        if len(self._errors) == 1:
            raise self._errors[0]
        raise ExceptionGroup(f"undoing {self.label!r} failed", list(self._errors))

    def unload(self) -> "Pause | None":
        """Undo as part of unwinding the stack; returns what has to be awaited first, if any."""
        if self._use is HandleState.USED:
            return None
        if self._use is HandleState.UNDOING:
            return Pause(self, None)
        self._use = HandleState.UNDOING
        rest = self._begin()
        if rest is None:
            if self._errors is None and self._callbacks is None and self._used_event is None:
                # Nobody waits, and the stack has let go of it already.
                self._use, self._home = HandleState.USED, None
            else:
                self._finish()
            return None
        if self.used:
            return None
        if rest == "pending":
            return Pause(self, None)
        return Pause(self, partial(self._complete, rest))


class Pause:
    """A point at which unwinding has to wait: for work it must do, or for a handle by itself."""

    __slots__ = ("handle", "work")

    def __init__(self, handle: Handle, work: Callable[[], Awaitable[None]] | None) -> None:
        self.handle = handle
        self.work = work

    async def wait(self) -> None:
        """Do the work, or wait for the handle."""
        if self.work is not None:
            await self.work()
        else:
            await self.handle.wait_used()


class Stack:
    """Registrations in order, unwound newest first."""

    __slots__ = ("items", "sink")

    def __init__(self, sink: Sink) -> None:
        self.items: dict[Handle, None] = {}
        self.sink = sink

    def add(self, handle: Handle) -> None:
        """Put a handle on top; one that stands elsewhere moves."""
        if handle._home is not None:
            handle._home.discard(handle)
        handle._home = self
        self.items[handle] = None

    def put(self, handle: Handle) -> None:
        """Put a new handle on top."""
        handle._home = self
        self.items[handle] = None

    def discard(self, handle: Handle) -> None:
        """Forget a handle."""
        self.items.pop(handle, None)

    def unwind(self) -> Pause | None:
        """Undo from the top until nothing is left (None) or something has to be awaited."""
        items = self.items
        while items:
            handle, _ = items.popitem()
            pause = handle.unload()
            if pause is not None:
                items[handle] = None  # it leaves the list only when finished
                return pause
        return None

    async def unwind_all(self) -> None:
        """Undo everything, waiting where needed."""
        while (pause := self.unwind()) is not None:
            await pause.wait()


def move(handle: Handle, stack: Stack, owner: Owner) -> bool:
    """Move a handle registered on the same activation into a stack; False for a foreign one."""
    if handle._owner is not owner:
        return False
    if not handle.used:
        stack.add(handle)
    return True


class EffectInfo:
    """One live registration and its parts, for diagnostics."""

    __slots__ = ("children", "label")

    def __init__(self, handle: Handle) -> None:
        self.label = handle.label
        parts = [] if handle.opaque else handle.children()
        self.children = [EffectInfo(part) for part in parts]

    @override
    def __repr__(self) -> str:
        return f"EffectInfo({self.label!r}, {self.children!r})"
