"""Views of a log that stay as they were taken while the log grows."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import overload

from typing_extensions import override

from dsh_session.events import SessionEvent


class EventLog(Sequence[SessionEvent]):
    """The first events of a growing list: taken in O(1), immutable."""

    __slots__ = ("_events", "_length")

    def __init__(self, events: list[SessionEvent]) -> None:
        self._events = events
        self._length = len(events)

    @override
    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> SessionEvent: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[SessionEvent, ...]: ...
    @override
    def __getitem__(self, index: int | slice) -> SessionEvent | tuple[SessionEvent, ...]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            if step < 0:
                return tuple(self._events[position] for position in range(start, stop, step))
            return tuple(self._events[start:stop:step])
        if not -self._length <= index < self._length:
            raise IndexError(f"seq {index} is outside a log of {self._length} events")
        return self._events[index if index >= 0 else self._length + index]

    @override
    def __iter__(self) -> Iterator[SessionEvent]:
        return islice(self._events, self._length)

    @override
    def __reversed__(self) -> Iterator[SessionEvent]:
        return map(self._events.__getitem__, range(self._length - 1, -1, -1))

    @override
    def __eq__(self, other: object) -> bool:
        if isinstance(other, EventLog):
            other_list = other._events
            return self._length == other._length and (
                self._events is other_list or list(self) == list(other)
            )
        return isinstance(other, list | tuple) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # compares by its events, like a list

    @override
    def __repr__(self) -> str:
        return f"EventLog({self._length} events)"
