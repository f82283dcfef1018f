"""The kernel's own events, for tools that watch, show or test a running tree.

Upstream: packages/core/src/events.ts of Cordis.
"""

from typing import ClassVar

from dsh_cordis._activation import FiberState
from dsh_cordis._tree import Tree
from dsh_cordis.context import Fiber, Target
from dsh_cordis.events import Emit, Event, Mode, SyncWaterfall, Waterfall


class InternalPlugin(Emit, frozen=True):
    """A plugin is being mounted (raising vetoes it), or has been disposed (`uid` is None)."""

    name: ClassVar[str] = "internal/plugin"
    vetoing: ClassVar[bool] = True
    fiber: Fiber
    """The fiber, PENDING at its mount: an observer may add requirements or dispose it."""


class InternalStatus(Emit, frozen=True):
    """A fiber changed its state."""

    name: ClassVar[str] = "internal/status"
    fiber: Fiber
    """The fiber, in its new state."""

    previous: FiberState
    """The state that it left."""


class InternalError(Emit, frozen=True):
    """An error was contained by the kernel."""

    name: ClassVar[str] = "internal/error"
    error: Exception
    """What was raised, traceback included."""

    fiber: Fiber
    """The fiber whose code raised it."""

    label: str
    """What that code did for the fiber, such as `"plugin body"` or the label of an effect."""


class InternalDispatch(Emit, frozen=True):
    """An event is about to be dispatched; raising stops the dispatch in every mode."""

    name: ClassVar[str] = "internal/dispatch"
    vetoing: ClassVar[bool] = True
    dispatch_mode: Mode
    """How the event goes out."""

    event: Event
    """The payload."""

    target: Target | None
    """The target that the dispatcher gave, if any; a subject in the payload is not repeated."""


class InternalConfig(SyncWaterfall[object], frozen=True):
    """A raw config is about to be validated; listeners may interpolate it."""

    name: ClassVar[str] = "internal/config"
    fiber: Fiber
    """The fiber that the config is for."""

    config: object
    """The config as it was given; what the chain answers is validated."""


class InternalUpdate(Waterfall[None], frozen=True):
    """An active fiber gets a valid new config; a listener that does not call next took it over.

    Calling next restarts the fiber, which cancels what the listener has not done by then.
    """

    name: ClassVar[str] = "internal/update"
    fiber: Fiber
    """The fiber that is updated."""

    config: object
    """The new config as it was given, found valid."""


# The tree announces, and knows no class of the layers above it.
Tree.events.update(
    {
        event.name: event
        for event in (
            InternalPlugin,
            InternalStatus,
            InternalError,
            InternalDispatch,
            InternalConfig,
            InternalUpdate,
        )
    }
)
