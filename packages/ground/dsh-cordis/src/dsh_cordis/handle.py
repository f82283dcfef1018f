"""Handles: single-shot disposers, and the stacks they are unwound from.

Every registration returns a `Handle` and stands in one `Stack`: that of its activation, or that
of the composite effect it was moved into. Unwinding goes strictly newest first.
Upstream: packages/core/src/fiber.ts of Cordis (disposables).
"""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import Any, ClassVar, Protocol

import anyio
import msgspec
from typing_extensions import override

from dsh_cordis._kernel import Kernel

Work = Callable[[], Awaitable[None]]


class Owner(Protocol):
    """Whose registrations a stack holds; an activation of a fiber."""

    kernel: Kernel

    def report(self, error: Exception, label: str) -> None:
        """Log an error with the fiber's name and deliver it to `internal/error`."""

    def fail(self, error: Exception) -> None:
        """Take the fiber down because a background task of it raised."""


class Record(msgspec.Struct, eq=False):
    """Base of what the kernel keeps; such structs are made in half the time of other objects."""

    __repr__ = object.__repr__


class Completion:
    """What acting on a handle or a fiber gives; it may be awaited, and may be dropped.

    What was asked for goes on without it: awaiting only waits, and raises the errors.
    """

    __slots__ = ("_wait",)

    def __init__(self, wait: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Made by the kernel; without a wait what was asked for is complete already."""
        self._wait = wait

    def __await__(self) -> Generator[Any, None, None]:  # what it yields belongs to the event loop
        if self._wait is not None:
            yield from self._wait().__await__()


DONE = Completion()


class Handle(Record, eq=False, weakref=True, kw_only=True):
    """Undoes one registration, once.

    `handle()` undoes a synchronous effect before it returns; `await handle()` also waits for an
    asynchronous one. Further calls do no work and wait for the same completion.
    """

    _owner: Owner
    label: str = ""
    """What diagnostics call this registration."""

    _home: "Stack | None" = None
    _begun: bool = False
    _by_hand: bool = False
    used: bool = False
    """Whether undoing is complete."""

    # What is left to do after the synchronous part of undoing; whoever undoes it does that, too.
    # Without it, a handle that is not used yet finishes by itself.
    _rest: Work | None = None
    _errors: list[Exception] | None = None
    _callbacks: list[Callable[[], None]] | None = None
    _raisers: int = 0

    simple: ClassVar[bool] = False
    """Whether undoing it never needs the task of the body."""

    @override
    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label!r}>"

    def __call__(self) -> Completion:
        """Undo the registration; the result may be awaited.

        Raises:
            Exception: What disposers raised, after all have run (a group if several), unless the
                undo is asynchronous; then awaiting raises it.
        """
        if self._begun:
            return DONE if self.used else Completion(self.wait_by_hand)
        self._begun = self._by_hand = True
        self._raisers += 1
        try:
            if self._undo():
                self._finish()
        finally:
            self._raisers -= 1
        if self.used:
            self._raise_errors()
            return DONE
        if self._rest is not None:
            self._owner.kernel.start(self.complete, what=f"undoing {self.label!r}")
        return Completion(self.wait_by_hand)

    async def ready(self) -> None:
        """Wait until an asynchronous set-up is done; raise its error.

        A synchronous registration is ready at once.
        """

    def children(self) -> "list[Handle]":
        """The parts of a composite, oldest first; those of a fiber are no parts of its mount."""
        return []

    def would_hang(self) -> bool:
        """Whether undoing can only be complete after the code that asks."""
        return self in undoing.get()

    async def wait_by_hand(self) -> None:
        """Wait until undoing is complete, and raise what failed; at once where it would hang."""
        if not self.would_hang():
            self._raisers += 1
            try:
                await self.wait_used()
            finally:
                self._raisers -= 1
            self._raise_errors()

    async def wait_used(self) -> None:
        """Wait until undoing is complete."""
        if not self.used:
            event = anyio.Event()
            self.when_used(event.set)
            await event.wait()

    def when_used(self, callback: Callable[[], None]) -> None:
        """Call back when undoing is complete."""
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append(callback)

    def _undo(self) -> bool:
        """Do the synchronous part of undoing; errors go to `_failed`.

        True if nothing is left. Otherwise `_rest` is what is left, or this finishes by itself.
        """
        return True

    async def complete(self) -> None:
        """Do what is left of undoing, or wait for who does it."""
        rest, self._rest = self._rest, None
        if rest is None:
            await self.wait_used()
        else:
            await rest()
            self._finish()

    def _failed(self, error: Exception, label: str = "") -> None:
        """Keep what a disposer raised; the others still run."""
        if self._errors is None:
            self._errors = []
        self._errors.append(error)

    def _finish(self) -> None:
        """Undoing is complete: leave the stack, hand out errors, wake who waits."""
        self.used = True
        home, self._home = self._home, None
        if home is not None:
            home.items.pop(self, None)
        if self._errors is not None and not (self._by_hand and self._raisers):
            errors, self._errors = self._errors, None
            # What is undone by hand, or ended by itself, is no failure of what is above it.
            sink = home.sink if home and self._begun and not self._by_hand else self._owner.report
            for error in errors:
                sink(error, self.label)
        if self._callbacks is not None:
            callbacks, self._callbacks = self._callbacks, None
            for callback in callbacks:
                callback()

    def _raise_errors(self) -> None:
        if self._errors is None:
            return
        if len(self._errors) == 1:
            raise self._errors[0]
        raise ExceptionGroup(f"undoing {self.label!r} failed", list(self._errors))

    def unload(self) -> bool:
        """Undo as part of unwinding the stack; False if that has to be awaited."""
        if not self._begun:
            self._begun = True
            if self._undo():
                if self._errors is None and self._callbacks is None:
                    # Nobody waits, and the stack has let go of it already.
                    self.used, self._home = True, None
                else:
                    self._finish()
        return self.used


class Stack(Record, eq=False):
    """Registrations in order, unwound newest first."""

    owner: Owner
    sink: Callable[[Exception, str], None]
    """Takes what a disposer raised, and its label."""

    items: dict[Handle, None] = msgspec.field(default_factory=dict)

    def add(self, handle: Handle) -> None:
        """Put a handle on top; one that stands elsewhere moves."""
        if handle._home is not None:
            handle._home.items.pop(handle, None)
        handle._home = self
        self.items[handle] = None

    def unwind(self) -> Handle | None:
        """Undo from the top until nothing is left (None), or up to what has to be awaited."""
        items = self.items
        while items:
            handle, _ = items.popitem()
            try:
                finished = handle.unload()
            except BaseException:
                items[handle] = None
                raise
            if not finished:
                items[handle] = None  # it leaves the list only when finished
                return handle
        return None

    async def unwind_all(self) -> None:
        """Undo everything, waiting where needed."""
        while (handle := self.unwind()) is not None:
            await handle.complete()


class EffectInfo(msgspec.Struct, frozen=True):
    """One live registration and its parts, for diagnostics."""

    label: str
    children: "list[EffectInfo]"

    @classmethod
    def of(cls, handle: Handle) -> "EffectInfo":
        """What stands under a handle now."""
        return cls(handle.label, [cls.of(part) for part in handle.children()])


undoing: ContextVar[tuple[Handle, ...]] = ContextVar("dsh_cordis_undoing", default=())
"""The handles whose disposers are the running code, so that its own call cannot wait for them."""

lifecycle: ContextVar[Owner | None] = ContextVar("dsh_cordis_lifecycle", default=None)
"""The activation whose body or disposer is the running code; no background task has one."""
