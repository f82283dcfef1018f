"""What runs for an agent, and how long it may go on after an abort."""

import itertools
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Generic, TypeVar

import anyio
import msgspec

from dsh_llm import AbortSignal

from .clock import Clock, SystemClock
from .gate import Gate
from .stacks import stacks_below

T = TypeVar("T")
Leave = Callable[[], None]


class CensusEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is alive for an agent."""

    kind: str
    """`driver`, `maintenance`, `listener`, `tool-body`, ..."""
    label: str
    call_id: str | None
    age_s: float
    abandoned: bool


class _Live:
    """An entry of the census."""

    __slots__ = ("abandoned", "began_s", "call_id", "cancel", "kind", "label")

    def __init__(
        self,
        kind: str,
        label: str,
        call_id: str | None,
        cancel: Callable[[], object] | None,
        began_s: float,
    ) -> None:
        self.kind = kind
        self.label = label
        self.call_id = call_id
        self.cancel = cancel
        self.began_s = began_s
        self.abandoned = False

    def entry(self, now_s: float) -> CensusEntry:
        """What others see of it."""
        return CensusEntry(
            kind=self.kind,
            label=self.label,
            call_id=self.call_id,
            age_s=now_s - self.began_s,
            abandoned=self.abandoned,
        )


class Census:
    """Everything that is alive for one agent; the kernel and the tool pipeline enter here."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._ids = itertools.count()
        self._live: dict[int, _Live] = {}
        self._waiters = 0
        self._changed = Gate()

    def enter(
        self,
        kind: str,
        label: str,
        *,
        call_id: str | None = None,
        cancel: Callable[[], object] | None = None,
    ) -> Leave:
        """Count something in until the returned handle is called."""
        key = next(self._ids)
        self._live[key] = _Live(kind, label, call_id, cancel, self._clock.now_s())

        def leave() -> None:
            if self._live.pop(key, None) is not None:
                self._notify()

        return leave

    def entries(self) -> list[CensusEntry]:
        """What is alive, oldest first."""
        now_s = self._clock.now_s()
        return [live.entry(now_s) for live in self._live.values()]

    def abandon_call(self, call_id: str) -> list[CensusEntry]:
        """Mark what still runs for a call as given up.

        Returns:
            The entries marked by this.
        """
        marked = [
            live for live in self._live.values() if live.call_id == call_id and not live.abandoned
        ]
        for live in marked:
            live.abandoned = True
        self._notify()
        now_s = self._clock.now_s()
        return [live.entry(now_s) for live in marked]

    @property
    def quiet(self) -> bool:
        """Whether nothing counts: all that is left was given up or itself waits for quiet."""
        counting = [live for live in self._live.values() if not live.abandoned]
        listeners = sum(1 for live in counting if live.kind == "listener")
        # Which listener waits is not known, only how many do; nothing else may wait from inside.
        return listeners == len(counting) and listeners <= self._waiters

    async def wait_quiet(self, *, inside: bool = False) -> None:
        """Return when nothing counts any more.

        Args:
            inside: The caller is counted itself and does not count while it waits.
        """
        with self.waiting(inside=inside):
            while not self.quiet:
                await self._changed.wait()

    @contextmanager
    def waiting(self, *, inside: bool) -> Generator[None]:
        """Do not count the caller, if it is counted, while the block runs."""
        self._waiters += inside
        self._notify()
        try:
            yield
        finally:
            self._waiters -= inside

    async def join_listeners(self, grace_s: float | None) -> None:
        """Wait for the listener tasks that run now; after `grace_s` cancel them and wait on."""
        present = {key: live for key, live in self._live.items() if live.kind == "listener"}
        if not present:
            return
        with self._clock.move_on_after(grace_s) as limit:
            await self._gone(present)
        if not limit.cancelled_caught:
            return
        for key, live in present.items():
            if key in self._live and live.cancel is not None:
                live.cancel()
        await self._gone({key: live for key, live in present.items() if live.cancel is not None})

    async def _gone(self, entries: dict[int, "_Live"]) -> None:
        # Listeners that wait for quiet cannot end before the caller of this has.
        while sum(1 for key in entries if key in self._live) > self._waiters:
            await self._changed.wait()

    def _notify(self) -> None:
        changed, self._changed = self._changed, Gate()
        changed.open()


class Grace(msgspec.Struct, frozen=True, kw_only=True):
    """How long work may go on after an abort; `None` waits without bound."""

    cancel_s: float | None
    """To end of its own accord."""
    abandon_s: float | None
    """To end by native cancellation."""
    clock: Clock
    """What both are measured with."""


class Outlived(Exception):  # noqa: N818  # a result of the ladder, never an error of anybody
    """The work went on after both graces and was given up."""


class WorkCancelled(Exception):  # noqa: N818  # a result of the ladder, never an error of anybody
    """The work ended by the native cancellation that the ladder ordered."""


class Work(Generic[T]):
    """One stage of a call in a task of the loop, so that giving it up does not hold the turn."""

    def __init__(self, fn: Callable[[], Awaitable[T]]) -> None:
        self._fn = fn
        self._scope = anyio.CancelScope()
        self._done = anyio.Event()
        self._value: T | None = None
        self._error: BaseException | None = None
        self._cancelled = False
        self._on_done: list[Callable[[], None]] = []
        self._task_id: int | None = None

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._done.is_set()

    async def run(self) -> None:
        """The task: keeps value or error, never raises an `Exception`."""
        self._task_id = anyio.get_current_task().id
        try:
            with self._scope:
                self._value = await self._fn()
            self._cancelled = self._scope.cancelled_caught
        except Exception as error:  # noqa: BLE001  # handed to whoever asks for the outcome
            self._error = error
        except BaseException:
            self._cancelled = True
            raise
        finally:
            self._done.set()
            for callback in self._on_done:
                callback()

    @property
    def stack(self) -> str:
        """Where it stands, for people; empty before it began and when it has ended."""
        return "" if self._task_id is None or self.done else stacks_below(self._task_id)

    def cancel(self) -> None:
        """Cancel it natively."""
        self._scope.cancel()

    def outcome(self) -> T:
        """Its value.

        Raises:
            WorkCancelled: It was cancelled.
            Exception: What it raised.
        """
        if self._error is not None:
            raise self._error
        if self._cancelled:
            raise WorkCancelled
        return self._value  # type: ignore[return-value]  # set whenever neither of the above is

    async def settled(self, signal: AbortSignal, grace: Grace) -> None:
        """Return when it has ended.

        Raises:
            Outlived: The signal aborted and both graces passed.
        """
        await self._ended_or(signal)
        if self.done:
            return
        with grace.clock.move_on_after(grace.cancel_s):
            await self._done.wait()
        if not self.done:
            await self.stop(grace)

    async def stop(self, grace: Grace) -> None:
        """Cancel it natively and wait for its end.

        Raises:
            Outlived: It did not end in time.
        """
        self.cancel()
        with grace.clock.move_on_after(grace.abandon_s, shield=True):
            await self._done.wait()
        if not self.done:
            raise Outlived

    async def ended(self) -> None:
        """Return when it has ended."""
        await self._done.wait()

    def observe(self, callback: Callable[[], None]) -> None:
        """Call back when it ends, at once if it has."""
        if self.done:
            callback()
        else:
            self._on_done.append(callback)

    async def _ended_or(self, signal: AbortSignal) -> None:
        wake = anyio.Event()
        self.observe(wake.set)
        remove = signal.observe(wake.set)
        try:
            await wake.wait()
        finally:
            remove()
