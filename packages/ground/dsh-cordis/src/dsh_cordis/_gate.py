"""Gates: cancel scopes around work that kernel tasks do for a plugin."""

from collections.abc import Awaitable, Callable
from typing import Self

import anyio


class Gate:
    """A cancel scope that can be cancelled until it is shut, and never after.

    Work may leave scopes of its own open inside, so nothing may be entered or exited between the
    work and its clean-up: the inner scope encloses both, and shutting only shields it.
    """

    __slots__ = ("_inner", "_outer", "_shut")

    def __init__(self) -> None:
        self._outer = anyio.CancelScope()
        self._inner = anyio.CancelScope()
        self._shut = False

    def cancel(self) -> None:
        """Cancel the work inside; without effect once the gate is shut."""
        if not self._shut:
            self._outer.cancel()

    def shut(self) -> None:
        """End the time in which the inside can be cancelled."""
        self._shut = True
        # Shielding only when needed lets a root that was abandoned die with its event loop.
        self._inner.shield = self._outer.cancel_called

    def __enter__(self) -> Self:
        self._outer.__enter__()
        self._inner.__enter__()
        return self

    def __exit__(self, *exc: object) -> bool:
        inner = self._inner.__exit__(*exc)  # type: ignore[arg-type]  # the triple of __exit__
        if inner:
            exc = (None, None, None)
        return bool(self._outer.__exit__(*exc)) or bool(inner)  # type: ignore[arg-type]  # as above

    async def run(self, work: Callable[[], Awaitable[object]]) -> Exception | None:
        """Do the work inside, unless cancelled already, and shut; returns its failure.

        Our own cancellation is no failure. What is neither passes.
        """
        try:
            if not self._outer.cancel_called:
                await work()
        except BaseException as error:  # noqa: BLE001  # `_failure` raises what is not ours
            return self._failure(error)
        finally:
            self.shut()
        return None

    def _failure(self, error: BaseException) -> Exception | None:
        cancelled = anyio.get_cancelled_exc_class()
        rest: BaseException | None = error
        if isinstance(error, BaseExceptionGroup):
            rest = error.split(cancelled)[1]
        elif isinstance(error, cancelled):
            rest = None
        if rest is None and self._outer.cancel_called:
            return None
        if isinstance(rest, Exception):
            return rest
        raise error
