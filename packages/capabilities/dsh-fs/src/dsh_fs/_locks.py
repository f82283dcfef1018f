"""One writer for each file, first come first served."""

import unicodedata
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from dsh_llm import AbortSignal

from ._worker import check_abort


class KeyLocks:
    """Locks by key; a key is forgotten when nobody holds or awaits it."""

    def __init__(self) -> None:
        # Invariant: a mutation of a file begins only when the one before it has ended, whatever
        # became of its caller.
        self._locks: dict[str, anyio.Semaphore] = {}
        self._users: dict[str, int] = {}

    @asynccontextmanager
    async def hold(self, key: str, signal: AbortSignal | None, label: str) -> AsyncIterator[None]:
        """Hold a key. A waiter whose signal aborts leaves the queue.

        Raises:
            FsError: The signal was aborted before the key was free.
        """
        # Where capitals or forms of accents make no difference, two keys may be one file.
        key = unicodedata.normalize("NFC", key).casefold()
        lock = self._locks.setdefault(key, anyio.Semaphore(1))
        self._users[key] = self._users.get(key, 0) + 1
        try:
            if not await _acquired(lock, signal):
                check_abort(signal, label)
            try:
                yield
            finally:
                lock.release()
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]


async def _acquired(lock: anyio.Semaphore, signal: AbortSignal | None) -> bool:
    """True when the lock is held; false when the signal aborted first."""
    held = False
    with anyio.CancelScope() as waiting:
        stop_watching = None if signal is None else signal.observe(waiting.cancel)
        try:
            await lock.acquire()
            held = True
        finally:
            if stop_watching is not None:
                stop_watching()
    return held
