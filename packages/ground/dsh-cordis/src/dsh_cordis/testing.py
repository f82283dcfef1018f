"""For tests of plugins: the `ctx` fixture, a leak check, recorders and a clock.

Needs the extra `testing`. A test module or a `conftest.py` loads it with
`pytest_plugins = ["dsh_cordis.testing"]`.
PYTEST_DONT_REWRITE: a test module may have imported this one before pytest meets that line.
"""

import gc
import heapq
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Generic, TypeVar

import anyio
import msgspec
import pytest

from dsh_cordis.context import Context, Fiber
from dsh_cordis.events import Event, EventType, Mode
from dsh_cordis.handle import Handle
from dsh_cordis.internal import InternalDispatch, InternalError, InternalStatus

E = TypeVar("E")


@pytest.fixture
async def ctx() -> AsyncIterator[Context]:
    """An open root context; afterwards everything mounted on it must be gone."""
    async with Context() as root:
        yield root
    assert_unloaded(root)


def assert_unloaded(root: Context) -> None:
    """Check that a closed root left no fiber, claim, effect or listener behind."""
    left = traces(root)
    assert left == Traces(), f"left behind: {left}"


class Traces(msgspec.Struct, frozen=True):
    """What stands in a tree, each with how often it stands there."""

    fibers: Counter[str] = msgspec.field(default_factory=Counter)
    """By name."""

    listeners: Counter[str] = msgspec.field(default_factory=Counter)
    """By event name."""

    services: Counter[str] = msgspec.field(default_factory=Counter)
    """By key."""

    effects: Counter[str] = msgspec.field(default_factory=Counter)
    """Those of the context's own fiber, by label."""


def traces(ctx: Context) -> Traces:
    """Everything that is mounted, claimed and listened to in the tree of a context."""
    tree = ctx._tree
    return Traces(
        fibers=Counter(fiber.name for fiber in tree.fibers()),
        listeners=+Counter({name: len(row.listeners()) for name, row in tree.rows.items()}),
        services=Counter(key for _, key in tree.claims.live),
        effects=Counter(effect.label for effect in ctx.fiber.effects()),
    )


@asynccontextmanager
async def leaks_nothing(ctx: Context) -> AsyncIterator[None]:
    """Check that what happens inside leaves no listener, effect, service, fiber or task behind.

    The tree is left as it was found: what was mounted inside is disposed inside.
    """
    before, tasks = traces(ctx), _tasks()
    yield
    await ctx.settled()
    await anyio.wait_all_tasks_blocked()
    after = traces(ctx)
    for field in Traces.__struct_fields__:
        more: Counter[str] = getattr(after, field) - getattr(before, field)
        assert not more, f"{field} left behind: {dict(more)}"
    running = _tasks() - tasks
    assert not running, f"tasks left behind: {dict(running)}"


def _tasks() -> Counter[str]:
    return Counter(task.name or "?" for task in anyio.get_running_tasks())


class Recorder(Generic[E]):
    """Keeps every event that it hears: `ctx.on(Event, recorder)`, or `record(ctx, Event)`."""

    def __init__(self) -> None:
        self.events: list[E] = []

    def __call__(self, event: E) -> None:
        """Keep the event."""
        self.events.append(event)

    @property
    def last(self) -> E:
        """The newest event."""
        return self.events[-1]


class ErrorRecorder:
    """Keeps what the kernel reports on a tree, and the states that fibers went through."""

    def __init__(self, ctx: Context) -> None:
        self.errors: list[Exception] = []
        self.states: list[tuple[str, str]] = []
        ctx.root.on(InternalError, self._on_error, everywhere=True)
        ctx.root.on(InternalStatus, self._on_status, everywhere=True)

    def _on_error(self, event: InternalError) -> None:
        self.errors.append(event.error)

    def _on_status(self, event: InternalStatus) -> None:
        self.states.append((event.fiber.name, event.fiber.state.value))

    def states_of(self, fiber: Fiber) -> list[str]:
        """The states that a fiber entered, in order."""
        return [state for name, state in self.states if name == fiber.name]


class DispatchRecorder:
    """Keeps every dispatch of a tree, whether or not anybody listens; internal events apart."""

    def __init__(self, ctx: Context) -> None:
        self.dispatches: list[tuple[Mode, Event]] = []
        ctx.root.on(InternalDispatch, self._on_dispatch, everywhere=True)

    def _on_dispatch(self, event: InternalDispatch) -> None:
        self.dispatches.append((event.dispatch_mode, event.event))

    @property
    def names(self) -> list[str]:
        """The names of the events, in order."""
        return [event.name for _, event in self.dispatches]


def record(ctx: Context, event: EventType[Recorder[E]]) -> Recorder[E]:
    """Listen to an event, in every scope, with a new recorder."""
    recorder: Recorder[E] = Recorder()
    handle: Handle = ctx.on(event, recorder, everywhere=True)
    assert not handle.used
    return recorder


class FakeClock:
    """A clock that a test moves; give `now_ms` and `sleep` to what takes a clock."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = float(now_ms)
        self._sleepers: list[tuple[float, int, anyio.Event]] = []
        self._order = count()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int(self._now_ms)

    def now_s(self) -> float:
        """Seconds since the epoch."""
        return self._now_ms / 1000

    async def sleep(self, delay_s: float) -> None:
        """Wait until the clock has been moved this far."""
        woken = anyio.Event()
        heapq.heappush(self._sleepers, (self._now_ms + delay_s * 1000, next(self._order), woken))
        await woken.wait()

    async def advance(self, seconds: float) -> None:
        """Move the clock; sleepers run at their time, in order, and until they block again."""
        end = self._now_ms + seconds * 1000
        await anyio.wait_all_tasks_blocked()
        while self._sleepers and self._sleepers[0][0] <= end:
            self._now_ms, _, woken = heapq.heappop(self._sleepers)
            woken.set()
            await anyio.wait_all_tasks_blocked()
        self._now_ms = end


def collect_garbage() -> None:
    """Run the collector until weak references to dropped cycles are dead."""
    for _ in range(3):
        gc.collect()
