"""What runs for an agent, and how long it may go on after an abort."""

from collections.abc import Awaitable, Callable, Collection
from contextvars import Token
from typing import Generic, TypeVar

import anyio
import msgspec

from dsh_cordis import TaskCensus, task_census
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
    """An entry of the census; calling it takes it out."""

    __slots__ = ("_census", "abandoned", "began_s", "call_id", "cancel", "kind", "label")

    def __init__(
        self,
        census: "Census",
        kind: str,
        label: str,
        call_id: str | None,
        cancel: Callable[[], object] | None,
        began_s: float,
    ) -> None:
        self._census = census
        self.kind = kind
        self.label = label
        self.call_id = call_id
        self.cancel = cancel
        self.began_s = began_s
        self.abandoned = False

    def __call__(self) -> None:
        self._census.leave(self)

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

    __slots__ = (
        "_changed",
        "_clock",
        "_live",
        "_waiters",
    )

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._live: list[_Live] = []  # a few at most; empty, it weighs a quarter of a dictionary
        self._waiters = 0
        self._changed: Gate | None = None
        """Made by who waits for a change."""

    def enter(
        self,
        kind: str,
        label: str,
        *,
        call_id: str | None = None,
        cancel: Callable[[], object] | None = None,
    ) -> Leave:
        """Count something in until the returned handle is called."""
        live = _Live(self, kind, label, call_id, cancel, self._clock.now_s())
        self._live.append(live)
        return live

    def leave(self, live: _Live) -> None:
        """Take an entry out; a second time does nothing."""
        if live in self._live:
            self._live.remove(live)
            # Whoever waits, waits for quiet or for listeners; it is not woken for anything else.
            if live.kind == "listener" or self.quiet:
                self._notify()

    def entries(self) -> list[CensusEntry]:
        """What is alive, oldest first."""
        now_s = self._clock.now_s()
        return [live.entry(now_s) for live in self._live]

    def abandon_call(self, call_id: str) -> list[CensusEntry]:
        """Mark what still runs for a call as given up.

        Returns:
            The entries marked by this.
        """
        marked = [live for live in self._live if live.call_id == call_id and not live.abandoned]
        for live in marked:
            live.abandoned = True
        self._notify()
        now_s = self._clock.now_s()
        return [live.entry(now_s) for live in marked]

    @property
    def quiet(self) -> bool:
        """Whether nothing counts: all that is left was given up or itself waits for quiet."""
        # Which listener waits is not known, only how many do; nothing else may wait from inside.
        waiters = self._waiters
        for live in self._live:
            if live.abandoned:
                continue
            if live.kind != "listener" or waiters == 0:
                return False
            waiters -= 1
        return True

    async def wait_quiet(self, *, inside: bool = False) -> None:
        """Return when nothing counts any more.

        Args:
            inside: The caller is counted itself and does not count while it waits.
        """
        with self.waiting(inside=inside):
            while not self.quiet:
                await self._change()

    def waiting(self, *, inside: bool) -> "_Waiting":
        """Do not count the caller, if it is counted, while the block runs."""
        return _Waiting(self, inside)

    def count_waiter(self, change: int) -> None:
        """One more waits from inside, or one less."""
        self._waiters += change
        if change > 0:
            self._notify()

    async def join_listeners(self, grace_s: float | None) -> None:
        """Wait for the listener tasks that run now; after `grace_s` cancel them and wait on."""
        present = [live for live in self._live if live.kind == "listener"]
        if not present:
            return
        with self._clock.move_on_after(grace_s) as limit:
            await self._gone(present)
        if not limit.cancelled_caught:
            return
        for live in present:
            if live in self._live and live.cancel is not None:
                live.cancel()
        await self._gone([live for live in present if live.cancel is not None])

    async def _gone(self, entries: Collection["_Live"]) -> None:
        # Listeners that wait for quiet cannot end before the caller of this has.
        while sum(1 for live in entries if live in self._live) > self._waiters:
            await self._change()

    async def _change(self) -> None:
        if self._changed is None:
            self._changed = Gate()
        await self._changed.wait()

    def _notify(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.open()


class _Waiting:
    """While the block runs, a caller from inside the census does not count in it."""

    __slots__ = ("_census", "_inside")

    def __init__(self, census: Census, inside: bool) -> None:
        self._census = census
        self._inside = inside

    def __enter__(self) -> None:
        if self._inside:
            self._census.count_waiter(1)

    def __exit__(self, *exc: object) -> None:
        if self._inside:
            self._census.count_waiter(-1)


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
    """One stage of a call in a task of the loop, so that giving it up does not hold the turn.

    `own_tasks` are the tasks that must not wait for the agent; the one of this stage is among them.
    """

    __slots__ = (
        "_cancelled",
        "_done",
        "_error",
        "_on_done",
        "_own_tasks",
        "_scope",
        "_stage",
        "_task_id",
        "_value",
    )

    def __init__(self, stage: Awaitable[T], own_tasks: list[int]) -> None:
        self._stage = stage
        self._own_tasks = own_tasks
        self._scope = anyio.CancelScope()
        self._done = Gate()
        self._value: T | None = None
        self._error: BaseException | None = None
        self._cancelled = False
        self._on_done: list[Callable[[], None]] = []
        self._task_id: int | None = None

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._done.is_open

    async def run(self) -> None:
        """The task: keeps value or error, never raises an `Exception`."""
        self._task_id = task_id = anyio.get_current_task().id
        self._own_tasks.append(task_id)
        try:
            with self._scope:
                self._value = await self._stage
            self._cancelled = self._scope.cancelled_caught
        except Exception as error:  # noqa: BLE001  # handed to whoever asks for the outcome
            self._error = error
        except BaseException:
            self._cancelled = True
            raise
        finally:
            self._own_tasks.remove(task_id)
            self._done.open()
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


class Counted:
    """While the block runs, listener tasks that it starts are counted in `census`."""

    __slots__ = ("_census", "_token")

    def __init__(self, census: Census) -> None:
        self._census = census

    def __enter__(self) -> None:
        self._token: Token[TaskCensus | None] = task_census.set(self._census)

    def __exit__(self, *exc: object) -> None:
        task_census.reset(self._token)


class OwnTask:
    """While the block runs, the current task is one of `tasks`."""

    __slots__ = ("_id", "_tasks")

    def __init__(self, tasks: list[int]) -> None:
        self._tasks = tasks

    def __enter__(self) -> None:
        self._id = anyio.get_current_task().id
        self._tasks.append(self._id)

    def __exit__(self, *exc: object) -> None:
        self._tasks.remove(self._id)
