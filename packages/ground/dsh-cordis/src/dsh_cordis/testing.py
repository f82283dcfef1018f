"""For tests of plugins: the `ctx` fixture and recorders. Needs the extra `testing`.

A test module or a `conftest.py` loads it with `pytest_plugins = ["dsh_cordis.testing"]`.
PYTEST_DONT_REWRITE: a test module may have imported this one before pytest meets that line.
"""

import gc
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

import pytest

from dsh_cordis.context import Context, Fiber, InternalError, InternalStatus
from dsh_cordis.events import EventType
from dsh_cordis.handle import Handle

E = TypeVar("E")


@pytest.fixture
async def ctx() -> AsyncIterator[Context]:
    """An open root context; afterwards everything mounted on it must be gone."""
    async with Context() as root:
        yield root
    assert_unloaded(root)


def assert_unloaded(root: Context) -> None:
    """Check that a closed root left no fiber, claim or listener behind."""
    left = root._tree.fibers()
    assert not left, f"fibers left behind: {left}"
    listeners = {name: row.listeners() for name, row in root._tree.rows.items()}
    assert not any(listeners.values()), f"listeners left behind: {listeners}"


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


def record(ctx: Context, event: EventType[Recorder[E]]) -> Recorder[E]:
    """Listen to an event, in every scope, with a new recorder."""
    recorder: Recorder[E] = Recorder()
    handle: Handle = ctx.on(event, recorder, everywhere=True)
    assert not handle.used
    return recorder


def collect_garbage() -> None:
    """Run the collector until weak references to dropped cycles are dead."""
    for _ in range(3):
        gc.collect()
