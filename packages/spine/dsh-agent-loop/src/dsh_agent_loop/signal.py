"""The turn signal at work: aborts delivered natively to what would be discarded anyway."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from dsh_llm import AbortSignal

T = TypeVar("T")


class TurnAborted(Exception):  # noqa: N818  # control flow of the driver, never shown to anybody
    """The turn's signal is aborted."""


def check(signal: AbortSignal) -> None:
    """Stop here if the turn was aborted.

    Raises:
        TurnAborted: It was.
    """
    if signal.aborted:
        raise TurnAborted


async def until_aborted(signal: AbortSignal, fn: Callable[[], Awaitable[T]]) -> T:
    """Await `fn()`, cancelled natively when the signal aborts.

    What it gives counts, also when the signal aborted in its last moments.

    Raises:
        TurnAborted: The cancellation ended it.
    """
    with anyio.CancelScope() as scope:
        remove = signal.observe(scope.cancel)
        try:
            return await fn()
        finally:
            remove()
    raise TurnAborted


async def under(signal: AbortSignal, fn: Callable[[], Awaitable[T]]) -> T:
    """Await `fn()`, cancelled natively when the signal aborts.

    Returns only when the work has ended; the signal decides the outcome, not how it ended.

    Raises:
        TurnAborted: The signal is aborted.
    """
    check(signal)
    value = await until_aborted(signal, fn)
    check(signal)
    return value
