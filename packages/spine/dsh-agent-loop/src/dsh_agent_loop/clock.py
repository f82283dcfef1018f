"""The time that grace periods are measured in; tests give one of their own."""

import time
from contextlib import AbstractContextManager
from typing import Protocol

import anyio


class Clock(Protocol):
    """What `ctx.clock` may be; without one the loop uses the time of the event loop."""

    def now_s(self) -> float:
        """Seconds, from any origin."""
        ...

    def move_on_after(
        self, seconds: float | None, *, shield: bool = False
    ) -> AbstractContextManager[anyio.CancelScope]:
        """A scope that is cancelled `seconds` after it was entered; `None` sets no bound."""
        ...


class SystemClock:
    """The clock of the event loop."""

    def now_s(self) -> float:
        """Seconds of the monotonic clock, without asking which event loop runs."""
        return time.monotonic()

    def move_on_after(
        self, seconds: float | None, *, shield: bool = False
    ) -> AbstractContextManager[anyio.CancelScope]:
        """As `anyio.move_on_after`."""
        return anyio.move_on_after(seconds, shield=shield)
