"""Listeners and how each mode runs them. Upstream: packages/core/src/events.ts of Cordis."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import ContextVar, copy_context
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import ref

import anyio
from typing_extensions import override

from dsh_cordis._activation import Activation
from dsh_cordis._effects import Background, is_awaitable
from dsh_cordis._keys import KeyRecord, chain_of, find_record, moves
from dsh_cordis.errors import NotEnteredError
from dsh_cordis.events import Event
from dsh_cordis.handle import Handle, HandleState, Pause, Rest

if TYPE_CHECKING:
    # anyio loads its parts when they are named; this one is only an annotation.
    from anyio.abc import TaskGroup

Fn = Callable[..., object]

UNKEYED: Final = object()
"""The key of a `Target` that routes by its predicate alone."""


class Route:
    """What a dispatch reads of a `Target`, whose predicate takes a class of the layer above."""

    __slots__ = ("admits", "key")

    def __init__(self, key: object, admits: Callable[[Any], bool] | None) -> None:
        self.key = key
        self.admits = admits


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


class Listener(Handle):
    """One registration of a listener; it is its own handle."""

    simple = True
    once = False
    everywhere = False
    _spent = False
    _owner: Activation

    def __init__(self, ctx: object, scope: object, fn: Fn, row: "Row", owner: Activation) -> None:
        # The label is the event's name, which stands in the row.
        self._owner = owner
        self.ctx = ctx
        self.scope = scope
        # What a waterfall calls, in whose chain a listener stays once it is admitted.
        self.wrapped = fn
        # What other dispatches call; a no-op once this is disposed, so a snapshot skips it.
        self.fn = fn
        self._row = row

    @property
    @override
    def label(self) -> str:
        return self._row.event

    def only_once(self) -> None:
        """Make it a once-listener; before the first dispatch."""
        self.once = True
        self.fn = self._call_once

    def take(self) -> bool:
        """Use up a once-listener; False when it is used up already."""
        if self._spent:
            return False
        self._spent = True
        self()
        return True

    def _call_once(self, event: Event) -> object:
        return self.wrapped(event) if self.take() else None

    @property
    def activation(self) -> Activation:
        """The activation that it belongs to."""
        return self._owner

    def report(self, error: Exception) -> None:
        """It raised where nobody takes an exception."""
        self._owner.report(error, f"listener of {self.label!r}")

    @override
    def unload(self) -> Pause | None:
        if self._use is not HandleState.LIVE or self._callbacks is not None:
            return super().unload()
        # The short way, since most of what a plugin registers are listeners.
        self._use = HandleState.USED
        self._home = None
        self._row.remove(self)
        self.fn = _nothing
        self.ctx = None
        return None

    @override
    def _begin(self) -> Rest:
        self._row.remove(self)
        self.fn = _nothing
        self.ctx = None
        return None


class Row:
    """The listeners of one event, with the snapshots that dispatches use."""

    __slots__ = ("_back", "_front", "_hot", "_reached", "_snapshot", "event", "tagged")

    def __init__(self, event: str, hot: "Hot") -> None:
        self.event = event
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
        self._snapshot = None
        hot = self._hot
        if self._reached or hot.emit or hot.rest:
            self._forget()

    def remove(self, listener: Listener) -> None:
        """Take a listener out."""
        if self._back.pop(listener, listener) is not None:
            self._front.pop(listener, None)
        self._snapshot = None
        hot = self._hot
        if self._reached or hot.emit or hot.rest:
            self._forget()

    def _forget(self) -> None:
        self._reached.clear()
        self._hot.forget()

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
            if record is not None and record.key is key and known[1] == moves.count:
                return known[2]
        record = find_record(key)
        above = (None, *chain_of(record))
        reached = tuple(each for each in listeners if each.everywhere or each.scope in above)
        if record is not None:
            self._reached[id(key)] = (self._watch(record), moves.count, reached)
        return reached

    def _watch(self, record: KeyRecord) -> ref[KeyRecord]:
        # The table must neither keep a key alive nor grow with every key that is gone.
        return ref(record, partial(_drop, self._reached, id(record.key)))


def _drop(reached: dict[int, Any], ident: int, _: ref[KeyRecord]) -> None:
    reached.pop(ident, None)


class Hot:
    """Who takes part by payload class alone: no key matters, and nobody observes dispatches."""

    __slots__ = ("emit", "rest")

    def __init__(self) -> None:
        self.emit: dict[type, tuple[Listener, ...]] = {}
        self.rest: dict[type, tuple[Listener, ...]] = {}

    def forget(self) -> None:
        """A listener came or went."""
        self.emit.clear()
        self.rest.clear()


class ListenerTask(Background):
    """An asynchronous listener of an Emit; its failure is reported and takes nothing down."""

    @override
    def _task_failed(self, error: Exception) -> None:
        self._owner.report(error, self.label)


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
            listener.report(error)
            continue
        if result is not None and isinstance(result, CoroutineType):
            late = late or []
            late.append((listener, result))
    if late is not None:
        for listener, coroutine in late:
            _start_late(event, listener, coroutine)


def _start_late(
    event: Event, listener: Listener, coroutine: Coroutine[object, object, object]
) -> None:
    activation = listener.activation
    label = f"{event.name} {activation.fiber.name}"
    if activation.kernel.host is None:
        coroutine.close()
        activation.report(NotEnteredError("an asynchronous listener"), label)
        return
    task = ListenerTask(activation, label, partial(_wait_for, coroutine))
    activation.stack.add(task)
    task.when_used(coroutine.close)
    census = task_census.get()
    if census is not None:
        task.when_used(census.enter("listener", label, cancel=task.cancel))
    activation.kernel.start_ordered(task.run, copy_context())


async def _wait_for(coroutine: Coroutine[object, object, object]) -> None:
    await coroutine


class _Gathering:
    """The awaited part of a parallel dispatch."""

    def __init__(self, event: Event) -> None:
        self.event = event
        self.errors: dict[int, tuple[Listener, Exception]] = {}
        self.late: list[tuple[int, Listener, Awaitable[object]]] = []

    def call(self, index: int, listener: Listener) -> None:
        """Start one listener."""
        try:
            result = listener.fn(self.event)
        except Exception as error:  # noqa: BLE001  # collected for the group
            self.errors[index] = (listener, error)
            return
        if is_awaitable(result):
            self.late.append((index, listener, result))

    async def run(self) -> None:
        """Wait for all, none cancelled because another failed."""
        try:
            if len(self.late) == 1:
                await self._wait(0)
            elif self.late:
                async with anyio.create_task_group() as tasks:
                    _ = tasks.start_soon(self._chain, 0, tasks)
        except BaseException:
            for listener, error in self.errors.values():
                listener.report(error)
            raise

    async def _chain(self, position: int, tasks: "TaskGroup") -> None:
        # Each starts the next: trio shuffles tasks that are started together.
        if position + 1 < len(self.late):
            _ = tasks.start_soon(self._chain, position + 1, tasks)
        await self._wait(position)

    async def _wait(self, position: int) -> None:
        index, listener, awaitable = self.late[position]
        try:
            await awaitable
        except Exception as error:  # noqa: BLE001  # collected for the group
            self.errors[index] = (listener, error)


async def parallel(event: Event, listeners: Sequence[Listener]) -> None:
    """Run all at once; raise one group of all failures in listener order."""
    gathering = _Gathering(event)
    for index, listener in enumerate(listeners):
        gathering.call(index, listener)
    await gathering.run()
    if gathering.errors:
        failures = [error for _, (_, error) in sorted(gathering.errors.items(), key=_first)]
        raise ExceptionGroup(f"listeners of {event.name!r} failed", failures)


def _first(item: tuple[int, object]) -> int:
    return item[0]


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


def waterfall(event: Event, listeners: Sequence[Listener], inner: Callable[[], object]) -> object:
    """Nest the listeners around `inner`, outermost first, and call the outermost."""
    if not listeners:
        return inner()
    rest: Callable[[], object] = inner
    for listener in reversed(listeners):
        if listener.once:
            rest = partial(_once, listener, event, rest)
        else:
            rest = partial(listener.fn, event, rest)
    return rest()


def _once(listener: Listener, event: Event, rest: Callable[[], object]) -> object:
    return listener.wrapped(event, rest) if listener.take() else rest()
