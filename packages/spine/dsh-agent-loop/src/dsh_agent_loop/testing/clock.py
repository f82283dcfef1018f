"""A clock that stands still until a test moves it."""

from collections.abc import Generator
from contextlib import contextmanager

import anyio


class ManualClock:
    """`ctx.provide("clock", ManualClock())`, before the loop is mounted."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._scopes: dict[anyio.CancelScope, float] = {}

    def now_s(self) -> float:
        """The time it was moved to."""
        return self._now_s

    @contextmanager
    def move_on_after(
        self, seconds: float | None, *, shield: bool = False
    ) -> Generator[anyio.CancelScope]:
        """A scope that `advance` cancels."""
        with anyio.CancelScope(shield=shield) as scope:
            if seconds is not None:
                self._scopes[scope] = self._now_s + seconds
                self._cancel_due()
            try:
                yield scope
            finally:
                self._scopes.pop(scope, None)

    @property
    def waiting(self) -> int:
        """How many bounded waits are under way."""
        return len(self._scopes)

    def advance(self, seconds: float) -> None:
        """Move on, and end the waits whose time has come."""
        self._now_s += seconds
        self._cancel_due()

    def _cancel_due(self) -> None:
        for scope, deadline_s in self._scopes.items():
            if deadline_s <= self._now_s:
                scope.cancel()
