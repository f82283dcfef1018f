"""One stage of a call as a task of its own: accounted for, cancellable, and joined.

A task of its own also tells whose a cancellation is. One that leaves foreign code although nobody
cancelled it (a task it awaited was cancelled, or it raised one) is that code's own failure and must
not end its caller.
"""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio

from dsh_cordis import task_census

T = TypeVar("T")


class FrameCancelledError(Exception):
    """The frame was cancelled through its own `Frame.cancel`, and left through that."""


class StrayCancellationError(Exception):
    """Code let a cancellation out that nobody had asked for; the message is its class name."""


class Frame(Generic[T]):
    """Runs one piece of foreign code.

    Args:
        kind: Of the census entry.
        label: Of the census entry.
        call_id: Of the census entry.
        alone: The calling task exists for this code alone, and only cancel scopes cancel it. Then
            it runs in that task; else in one of its own.
    """

    def __init__(self, kind: str, label: str, call_id: str, *, alone: bool = False) -> None:
        self._entry = (kind, label, call_id)
        self._alone = alone
        self._scope: anyio.CancelScope
        self._asked = False
        self._results: list[T] = []
        self._errors: list[BaseException] = []

    def cancel(self) -> None:
        """Cancel the code natively."""
        self._asked = True
        self._scope.cancel()

    async def run(self, body: Callable[[], Awaitable[T]]) -> T:
        """Run `body` to its end, clean-up included.

        Raises:
            FrameCancelledError: It ended by `cancel`.
            StrayCancellationError: It let out a cancellation of its own making.
            BaseException: What it raised; and cancellation from outside, which makes no result.
        """
        run = self._run_here if self._alone else self._run_in_task
        with entered(*self._entry, self.cancel):
            return await run(body)

    async def _run_here(self, body: Callable[[], Awaitable[T]]) -> T:
        self._scope = anyio.CancelScope()
        with self._scope:
            try:
                return await body()
            except anyio.get_cancelled_exc_class() as error:
                if anyio.current_effective_deadline() != float("-inf"):
                    raise stray(error) from error
                raise
        raise FrameCancelledError

    async def _run_in_task(self, body: Callable[[], Awaitable[T]]) -> T:
        kind, label, _ = self._entry
        try:
            async with anyio.create_task_group() as tasks:
                self._scope = tasks.cancel_scope
                tasks.start_soon(self._child, body, name=f"{kind}:{label}")
        except anyio.get_cancelled_exc_class() as error:
            if not _is_stray(error):
                raise
        return self._outcome()

    async def _child(self, body: Callable[[], Awaitable[T]]) -> None:
        try:
            self._results.append(await body())
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001  # handed to `run`, which raises it there
            self._errors.append(error)

    def _outcome(self) -> T:
        if self._errors:
            raise self._errors.pop()
        if self._results:
            return self._results.pop()
        if self._asked:
            raise FrameCancelledError
        raise StrayCancellationError(anyio.get_cancelled_exc_class().__name__)


class entered:  # noqa: N801  # used as a function
    """Counts a piece of foreign code in the census of the caller, where there is one."""

    __slots__ = ("_leave",)

    def __init__(
        self, kind: str, label: str, call_id: str, cancel: Callable[[], None] | None
    ) -> None:
        census = task_census.get()
        self._leave = (
            None if census is None else census.enter(kind, label, call_id=call_id, cancel=cancel)
        )

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        if self._leave is not None:
            self._leave()


def stray(error: BaseException) -> StrayCancellationError:
    """What a cancellation stands for that left code which cannot have been cancelled."""
    return StrayCancellationError(type(error).__name__)


def _is_stray(error: BaseException) -> bool:
    # asyncio ends a task silently with its own cancellation, so only a cancelled caller comes here.
    # trio lets a re-raised one through; its caller is cancelled exactly if its deadline has passed.
    is_trio = type(error).__module__.partition(".")[0] == "trio"
    return is_trio and anyio.current_effective_deadline() != float("-inf")
