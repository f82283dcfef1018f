"""Listeners and how each mode runs them. Upstream: packages/core/src/events.ts of Cordis."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import ContextVar
from functools import partial
from types import CoroutineType
from typing import Any, ClassVar, Final, Protocol, TypeVar, cast
from weakref import ref

import anyio
from typing_extensions import override

from dsh_cordis._activation import Activation
from dsh_cordis._effects import Background, is_awaitable
from dsh_cordis._keys import KeyRecord, chain_of, find_record
from dsh_cordis.errors import NotEnteredError
from dsh_cordis.events import Event
from dsh_cordis.handle import Handle, Record

R = TypeVar("R")
Fn = Callable[..., object]

UNKEYED: Final = object()
"""The key of a `Target` that routes by its predicate alone."""


class Route(Record, eq=False):
    """What a dispatch reads of a `Target`, whose predicate takes a class of the layer above."""

    key: object = UNKEYED
    admits: Callable[[Any], bool] | None = None


class TaskCensus(Protocol):
    """Who wants to know which tasks run on somebody's behalf."""

    def enter(
        self,
        kind: str,
        label: str,
        *,
        call_id: str | None = None,
        cancel: Callable[[], None] | None = None,
    ) -> Callable[[], None]:
        """Enter a task; the result leaves, once, when the task has really ended.

        Args:
            kind: What runs, such as `"listener"`.
            label: What diagnostics show.
            call_id: The tool call that it belongs to.
            cancel: Cancels that one task natively.
        """
        ...


task_census: ContextVar[TaskCensus | None] = ContextVar("dsh_task_census", default=None)
"""Set by who wants a census (the loop); read by everything that starts a task for somebody."""


def _nothing(*_: object) -> None:
    return None


Hot = dict[type, tuple["Listener", ...]]
"""Who takes part by payload class alone: no key matters, and nobody observes dispatches."""


class Listener(Handle):
    """One registration of a listener; it is its own handle."""

    ctx: object
    scope: object
    row: "Row"
    fn: Fn
    """What dispatches call; a no-op once this is disposed, so a snapshot skips it."""

    everywhere: bool
    once: Fn | None = None
    """What is still to be called, at most once."""

    simple: ClassVar[bool] = True

    def call_once(self, event: Event, rest: Callable[[], object] | None = None) -> object:
        """Call a once-listener; one that is used up is passed over."""
        once, self.once = self.once, None
        if once is None:
            return None if rest is None else rest()
        self()
        return once(event) if rest is None else once(event, rest)

    @property
    def activation(self) -> Activation:
        """The activation that it belongs to."""
        return cast("Activation", self._owner)

    @override
    def _undo(self) -> bool:
        self.row.remove(self)
        self.fn = _nothing
        self.ctx = None
        return True


class Row:
    """The listeners of one event, with the snapshots that dispatches use."""

    __slots__ = ("_back", "_front", "_hot", "_reached", "_snapshot", "tagged")

    def __init__(self, *hot: Hot) -> None:
        self._hot = hot
        self._back: dict[Listener, None] = {}
        self._front: dict[Listener, None] = {}
        self._snapshot: tuple[Listener, ...] | None = ()
        # Whether the key of a dispatch matters; true of the snapshot.
        self.tagged = False
        # By identity of a scope key: its record, the count of moves, and who is reached.
        self._reached: dict[int, tuple[ref[KeyRecord], int, tuple[Listener, ...]]] = {}

    def add(self, listener: Listener, *, prepend: bool) -> None:
        """Enter a listener, last or before all present ones."""
        (self._front if prepend else self._back)[listener] = None
        self._forget()

    def remove(self, listener: Listener) -> None:
        """Take a listener out."""
        if self._back.pop(listener, listener) is not None:
            self._front.pop(listener, None)
        self._forget()

    def _forget(self) -> None:
        self._snapshot = None
        self._reached.clear()
        for hot in self._hot:
            hot.clear()

    def listeners(self) -> tuple[Listener, ...]:
        """All listeners in order."""
        if self._snapshot is None:
            found = self._snapshot = (*reversed(self._front), *self._back)
            self.tagged = any(each.scope is not None and not each.everywhere for each in found)
        return self._snapshot

    def reached_from(self, key: object) -> tuple[Listener, ...]:
        """The listeners that a dispatch keyed `key` reaches: untagged, or tagged up from it."""
        listeners = self.listeners()
        if not self.tagged:
            return listeners
        known = self._reached.get(id(key))
        if known is not None:
            record = known[0]()
            if record is not None and record.key is key and known[1] == KeyRecord.moves:
                return known[2]
        record = find_record(key)
        above = (None, *chain_of(record))
        reached = tuple(each for each in listeners if each.everywhere or each.scope in above)
        if record is not None:
            # The table must neither keep a key alive nor grow with every key that is gone. (The
            # reference is passed to its callback, which is the default of `pop` here.)
            watch = ref(record, partial(self._reached.pop, id(key)))
            self._reached[id(key)] = (watch, KeyRecord.moves, reached)
        return reached


def emit(event: Event, listeners: Sequence[Listener]) -> None:
    """Run the synchronous listeners now and start the asynchronous ones after the emitter."""
    late: list[tuple[Listener, Coroutine[object, object, object]]] | None = None
    for listener in listeners:
        try:
            result = listener.fn(event)
        except Exception as error:
            if event.vetoing:
                for _, coroutine in late or ():
                    coroutine.close()
                raise
            _report(listener, error)
            continue
        if result is not None and isinstance(result, CoroutineType):
            late = late or []
            late.append((listener, result))
    if late is not None:
        for listener, coroutine in late:
            _start_late(event, listener, coroutine)


def _report(listener: Listener, error: Exception) -> None:
    """It raised where nobody takes an exception."""
    listener._owner.report(error, f"listener of {listener.label!r}")


def _start_late(
    event: Event, listener: Listener, coroutine: Coroutine[object, object, object]
) -> None:
    activation = listener.activation
    label = f"{event.name} {activation.fiber.name}"
    if activation.kernel.tasks is None:
        coroutine.close()
        activation.report(NotEnteredError("an asynchronous listener"), label)
        return
    task = Background(work=lambda: coroutine, _owner=activation, label=label)
    activation.stack.add(task)
    task.when_used(coroutine.close)
    census = task_census.get()
    if census is not None:
        task.when_used(census.enter("listener", label, cancel=task.cancel))
    activation.kernel.start_ordered(task.run)


async def parallel(event: Event, listeners: Sequence[Listener]) -> None:
    """Run all at once; raise one group of all failures in listener order."""
    failures: dict[Listener, Exception] = {}
    pending: list[tuple[Listener, Awaitable[object]]] = []
    for listener in listeners:
        try:
            result = listener.fn(event)
        except Exception as error:  # noqa: BLE001  # collected for the group
            failures[listener] = error
        else:
            if is_awaitable(result):
                pending.append((listener, result))
    try:
        await _wait_for_all(pending, failures)
    except BaseException:
        for listener, failure in failures.items():
            _report(listener, failure)
        raise
    if failures:
        in_order = [failures[listener] for listener in listeners if listener in failures]
        raise ExceptionGroup(f"listeners of {event.name!r} failed", in_order)


async def _wait_for_all(
    pending: Sequence[tuple[Listener, Awaitable[object]]], failures: dict[Listener, Exception]
) -> None:
    async def wait(position: int) -> None:
        # Each starts the next: trio shuffles tasks that are started together.
        if position + 1 < len(pending):
            _ = tasks.start_soon(wait, position + 1)
        listener, result = pending[position]
        try:
            await result
        except Exception as error:  # noqa: BLE001  # collected for the group
            failures[listener] = error

    if len(pending) == 1:
        await wait(0)
    elif pending:
        async with anyio.create_task_group() as tasks:
            _ = tasks.start_soon(wait, 0)


def bail(event: Event, listeners: Sequence[Listener]) -> object:
    """One by one until the first answer, which must be there at once."""
    for listener in listeners:
        result = listener.fn(event)
        if isinstance(result, CoroutineType):
            result.close()
            raise TypeError(
                f"a listener of {event.name!r} is asynchronous; a Bail event takes only answers "
                "that are there at once"
            )
        if result is not None and result is not False:
            return result
    return None


def waterfall(event: Event, listeners: Sequence[Listener], inner: Callable[[], R]) -> R:
    """Nest the listeners around `inner`, outermost first, and call the outermost."""
    rest: Callable[[], Any] = inner  # that listeners answer as `inner` does is checked by `ctx.on`
    for listener in reversed(listeners):
        rest = partial(listener.fn, event, rest)
    result: R = rest()
    return result
