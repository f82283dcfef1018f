"""Blocking file work in worker threads."""

from collections.abc import Callable
from functools import partial
from typing import Final, ParamSpec, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from dsh_cordis import task_census
from dsh_llm import AbortSignal

from .errors import FsError

P = ParamSpec("P")
T = TypeVar("T")

MAX_THREADS: Final = 16
"""File operations that run at the same time in one event loop."""

_limiter: Final = anyio.lowlevel.RunVar[anyio.CapacityLimiter]("dsh_fs.threads")


async def work(
    signal: AbortSignal | None, label: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run `call` in a thread and wait for its end, also through cancellation.

    What it does to files is done as a whole or not at all; its result is dropped after an abort.

    Raises:
        FsError: The signal was aborted before or meanwhile.
    """
    check_abort(signal, label)
    census = task_census.get()
    leave = None if census is None else census.enter("fs-thread", label)
    try:
        result = await anyio.to_thread.run_sync(partial(call, *args, **kwargs), limiter=_shared())
    finally:
        if leave is not None:
            leave()
    check_abort(signal, label)
    return result


def check_abort(signal: AbortSignal | None, label: str) -> None:
    """Raise if the signal is aborted; callable from threads.

    Raises:
        FsError: It is.
    """
    if signal is not None and signal.aborted:
        raise FsError(f"{label} was aborted", "FS_ABORTED")


def _shared() -> anyio.CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(MAX_THREADS)
        _limiter.set(limiter)
        return limiter
