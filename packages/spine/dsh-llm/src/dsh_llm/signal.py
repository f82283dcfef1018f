"""Abort signals: plain objects with two one-way latches.

A signal belongs to no event loop and no cancel scope, so it can be made, passed on and aborted
before any task runs. All calls are for one thread, the loop's.
"""

from collections.abc import Callable

import anyio

Observer = Callable[[], None]


class _Latch:
    """A one-way switch; observers run once, in the order of their registration."""

    __slots__ = ("_observers", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._observers: dict[object, Observer] = {}

    def set(self) -> None:
        if self.is_set:
            return
        self.is_set = True
        observers, self._observers = self._observers, {}
        for token in list(observers):
            # An observer may remove a later one, which then must not run.
            observer = observers.pop(token, None)
            if observer is not None:
                _call(observer)

    def observe(self, observer: Observer) -> Observer:
        if self.is_set:
            _call(observer)
            return _nothing
        token = object()
        registry = self._observers
        registry[token] = observer

        def remove() -> None:
            registry.pop(token, None)

        return remove

    async def wait(self) -> None:
        if self.is_set:
            return
        event = anyio.Event()
        remove = self.observe(event.set)
        try:
            await event.wait()
        finally:
            remove()


def _nothing() -> None:
    """Remove nothing: the observer has run already, or there is none."""


def _call(observer: Observer) -> None:
    try:
        observer()
    except Exception as error:  # one broken observer must not stop an abort
        # structlog takes longer to import than this package, and this line runs almost never.
        import structlog
        from structlog.typing import FilteringBoundLogger

        log: FilteringBoundLogger = structlog.get_logger(__name__)
        log.error("signal.observer_failed", observer=repr(observer), exc_info=error)


class AbortSignal:
    """What running work watches to learn that its result is no longer wanted.

    `aborted` asks the work to stop. `abandoned` says that its caller has stopped waiting for it;
    neither latch ever goes back, and neither sets the other.
    """

    __slots__ = ("__weakref__", "_abandon", "_abort", "_reason")

    def __init__(self) -> None:
        self._abort = _Latch()
        self._abandon = _Latch()
        self._reason: object = None

    @property
    def aborted(self) -> bool:
        """Whether the work was asked to stop."""
        return self._abort.is_set

    @property
    def reason(self) -> object:
        """Why it was aborted: what the first `abort()` gave, `None` before that."""
        return self._reason

    @property
    def abandoned(self) -> bool:
        """Whether the caller has given the work up."""
        return self._abandon.is_set

    async def wait(self) -> None:
        """Return once the signal is aborted, at once if it already is."""
        await self._abort.wait()

    async def wait_abandoned(self) -> None:
        """Return once the work is abandoned, at once if it already is."""
        await self._abandon.wait()

    def observe(self, observer: Observer) -> Observer:
        """Call `observer` when the signal is aborted; at once if it already is.

        An observer runs synchronously inside `abort()`; an error it raises is logged and contained.

        Returns:
            A callable that removes the observer; calling it again does nothing.
        """
        return self._abort.observe(observer)

    def observe_abandoned(self, observer: Observer) -> Observer:
        """Call `observer` when the work is abandoned, as `observe` does for the abort."""
        return self._abandon.observe(observer)


class AbortController:
    """The side that may abort: it owns one `signal` and hands it out.

    Attributes:
        signal: The signal that the work watches.
    """

    __slots__ = ("__weakref__", "signal")

    def __init__(self) -> None:
        self.signal = AbortSignal()

    def abort(self, reason: object = None) -> None:
        """Ask the work to stop. Only the first call counts, with its reason."""
        # The signal has no public way to be aborted: who holds only the signal cannot abort.
        signal = self.signal
        if not signal.aborted:
            signal._reason = reason
            signal._abort.set()

    def abandon(self) -> None:
        """Tell the work that nobody waits for it any more. Only the first call counts."""
        self.signal._abandon.set()


def fuse_signals(*signals: AbortSignal | None) -> tuple[AbortController, Callable[[], None]]:
    """Make a controller whose signal follows all of `signals`; the first reason wins.

    Args:
        *signals: The signals to follow; `None` entries are left out.

    Returns:
        The controller, which may also be aborted on its own, and a callable that detaches it from
        the sources, so that a long-lived source does not keep it alive.
    """
    controller = AbortController()
    removers: list[Observer] = []
    for signal in signals:
        if signal is not None:
            removers.append(signal.observe(_forward_abort(controller, signal)))
            removers.append(signal.observe_abandoned(controller.abandon))
    if not removers:
        return controller, _nothing

    def detach() -> None:
        while removers:
            removers.pop()()

    return controller, detach


def _forward_abort(controller: AbortController, signal: AbortSignal) -> Observer:
    return lambda: controller.abort(signal.reason)
