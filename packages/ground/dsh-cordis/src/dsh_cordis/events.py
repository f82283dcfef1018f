"""Events: a payload class is the event, its base class is its dispatch mode.

`EventType` is what `ctx.on` takes. It is contravariant in the listener type, so that a type
checker judges listeners by the payload class without a plugin of its own. (The parameters of a
lambda are Any to mypy; its return value is checked. Write a function where more matters.)
Upstream: packages/core/src/events.ts of Cordis.
"""

from collections.abc import Awaitable, Callable
from typing import ClassVar, Generic, Literal, Protocol, Self, TypeVar

import msgspec

R = TypeVar("R")
L_contra = TypeVar("L_contra", contravariant=True)

Next = Callable[[], Awaitable[R]]
"""The rest of a waterfall; takes nothing, may be called again, and late."""

Mode = Literal["emit", "parallel", "serial", "bail", "waterfall"]


class Event(msgspec.Struct, frozen=True):
    """Base of all payloads; derive from one of the modes below, not from this.

    Class attributes of a payload class:
        name: What the event is known by, such as `"agent/status"`.
        subject: The payload field that is the scope key; makes the event scoped.
        scoped: A dispatch needs a keyed target although no field names it.
        vetoing: For `Emit`: the first exception of a listener reaches the emitter.
    """

    name: ClassVar[str]
    subject: ClassVar[str | None] = None
    scoped: ClassVar[bool] = False
    vetoing: ClassVar[bool] = False
    mode: ClassVar[Mode]


class Emit(Event, frozen=True):
    """`ctx.emit(event)`: synchronous, listeners are contained, no result."""

    mode: ClassVar[Mode] = "emit"

    @classmethod
    def _accepts(cls, listener: Callable[[Self], object], /) -> None: ...


class Parallel(Event, frozen=True):
    """`await ctx.parallel(event)`: all listeners at once, failures come as one group."""

    mode: ClassVar[Mode] = "parallel"

    @classmethod
    def _accepts(cls, listener: Callable[[Self], object], /) -> None: ...


class Serial(Event, Generic[R], frozen=True):
    """`await ctx.serial(event)`: one by one, the first answer other than None or False wins."""

    mode: ClassVar[Mode] = "serial"

    @classmethod
    def _accepts(
        cls, listener: Callable[[Self], Awaitable[R | Literal[False] | None]], /
    ) -> None: ...


class Bail(Event, Generic[R], frozen=True):
    """`ctx.bail(event)`: as `Serial`, synchronous."""

    mode: ClassVar[Mode] = "bail"

    @classmethod
    def _accepts(cls, listener: Callable[[Self], R | Literal[False] | None], /) -> None: ...


class SyncWaterfall(Event, Generic[R], frozen=True):
    """`ctx.waterfall(event, inner)`: listeners wrap `inner`, outermost first.

    The value is handed on untouched.
    """

    mode: ClassVar[Mode] = "waterfall"

    @classmethod
    def _accepts(cls, listener: Callable[[Self, Callable[[], R]], R], /) -> None: ...


class Waterfall(SyncWaterfall[Awaitable[R]], Generic[R], frozen=True):
    """`await ctx.waterfall(event, inner)`: a waterfall whose value is awaited."""


class EventType(Protocol[L_contra]):
    """A payload class that takes listeners of type `L_contra`."""

    @classmethod
    def _accepts(cls, listener: L_contra, /) -> None: ...
