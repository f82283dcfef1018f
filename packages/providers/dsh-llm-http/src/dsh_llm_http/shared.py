"""One engine for all attempts of an adapter."""

from collections.abc import Callable, Sequence

from .engine import Engine


class SharedEngine:
    """Made with the first attempt; after `retire` it is closed with the last one.

    A call that was prepared before its route went away still runs, so a retired engine can be made
    once more, for as long as such a call needs it.
    """

    def __init__(self, make: Callable[[], Engine]) -> None:
        self._make = make
        self._engine: Engine | None = None
        self._users: dict[int, object] = {}
        self._retired = False

    @property
    def users(self) -> Sequence[object]:
        """Who has acquired the engine and not released it."""
        return list(self._users.values())

    def acquire(self, user: object) -> Engine:
        """The engine, for this user until it releases it."""
        if self._engine is None:
            self._engine = self._make()
        self._users[id(user)] = user
        return self._engine

    async def release(self, user: object) -> None:
        """End a user's claim; again does nothing."""
        if self._users.pop(id(user), None) is not None:
            await self._close_if_unused()

    async def retire(self) -> None:
        """Keep no connections beyond the attempts that run."""
        self._retired = True
        await self._close_if_unused()

    async def _close_if_unused(self) -> None:
        if self._retired and not self._users and self._engine is not None:
            engine, self._engine = self._engine, None
            await engine.aclose()
