"""Worker threads of tool bodies: bounded, accounted for, never waited for in vain."""

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import anyio
import anyio.lowlevel

from dsh_cordis import task_census
from dsh_llm import AbortSignal

T = TypeVar("T")

MAX_THREADS: Final = 16
"""Blocking tool bodies that run at the same time, over all agents of an event loop."""

_limiter: Final = anyio.lowlevel.RunVar[anyio.CapacityLimiter]("dsh_tools.threads")


class ThreadGivenUpError(Exception):
    """The wait for a thread ended because its caller was given up; the thread still runs."""


class _Ticket:
    """Accounts for one thread until it has really ended, whoever still waits for it."""

    def __init__(self, label: str, call_id: str, release: Callable[[], None]) -> None:
        self._lock = threading.Lock()  # guards the flags below, which both sides read and set
        self._running = False
        self._let_go = False
        self._release = release
        census = task_census.get()
        self._leave = (
            None if census is None else census.enter("tool-thread", label, call_id=call_id)
        )

    def run(self, call: Callable[[], T]) -> T:
        """In the thread; does nothing if nobody waits any more when it begins."""
        with self._lock:
            if self._let_go:
                raise ThreadGivenUpError("given up before it began")
            self._running = True
        try:
            return call()
        finally:
            with self._lock:
                self._running = False
                unattended = self._let_go
            if unattended:
                self._report_end()

    def _report_end(self) -> None:
        from anyio import from_thread  # see `run_in_thread`

        # Without an event loop, everything that kept account is gone too.
        with contextlib.suppress(RuntimeError):
            from_thread.run_sync(self.close)

    def let_go(self) -> None:
        """In the event loop: stop waiting."""
        with self._lock:
            self._let_go = True
            running = self._running
        if not running:
            self.close()

    def close(self) -> None:
        """In the event loop: the thread has ended."""
        self._release()
        if self._leave is not None:
            self._leave()


async def run_in_thread(
    call: Callable[[], T], *, label: str, call_id: str, signals: Sequence[AbortSignal]
) -> T:
    """Run `call` in a thread and wait for it, also through cancellation.

    Args:
        call: The blocking work.
        label: Of the census entry.
        call_id: Of the census entry.
        signals: When one of them is abandoned, the wait ends and the thread is left to itself.

    Raises:
        ThreadGivenUpError: The wait ended before the thread did.
    """
    from anyio import to_thread  # brings thread pools along, which only blocking bodies need

    limiter = _shared_limiter()
    # On behalf of an object, not of this task: the slot is held until the thread has ended.
    borrower = object()
    await limiter.acquire_on_behalf_of(borrower)
    ticket = _Ticket(label, call_id, lambda: limiter.release_on_behalf_of(borrower))
    with anyio.CancelScope(shield=True) as wait:
        removers = [signal.observe_abandoned(wait.cancel) for signal in signals]
        try:
            result = await to_thread.run_sync(
                ticket.run, call, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
            )
        finally:
            for remove in removers:
                remove()
            ticket.let_go()
        return result
    raise ThreadGivenUpError(f"the thread of {label!r} was left to itself")


def _shared_limiter() -> anyio.CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(MAX_THREADS)
        _limiter.set(limiter)
        return limiter
