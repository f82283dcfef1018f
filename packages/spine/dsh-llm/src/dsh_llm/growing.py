"""Histories that grow at their end: what is worked out over one is worked out once per message.

A `MessageLog` only grows, so the view of its first messages never changes, and what was gathered
over them stays right: nothing has to be invalidated. Who rewrites a history begins another log.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice
from operator import is_
from typing import Final, Protocol, TypeVar, cast, overload

from typing_extensions import override

from dsh_llm.messages import RequestMessage

_FOLDS_KEPT: Final = 8
"""Routes that take turns on one history each have a few; beyond that the oldest is made anew."""


class MessageFold(Protocol):
    """What is gathered over a history, message by message."""

    def extend(self, messages: Sequence[RequestMessage]) -> None:
        """Take the messages that follow those taken before."""
        ...


F = TypeVar("F", bound=MessageFold)


class MessageLog:
    """Messages that only become more."""

    __slots__ = ("_folds", "_messages")

    def __init__(self, messages: Iterable[RequestMessage] = ()) -> None:
        self._messages = list(messages)
        self._folds: list[tuple[Hashable, int, MessageFold]] = []  # few, the newest last

    def __len__(self) -> int:
        return len(self._messages)

    def extend(self, messages: Iterable[RequestMessage]) -> None:
        """Add messages at the end."""
        self._messages.extend(messages)

    def view(self) -> "LoggedMessages":
        """The messages of this moment; later ones do not change it."""
        return LoggedMessages(self, len(self._messages))


class LoggedMessages(Sequence[RequestMessage]):
    """The first messages of a log, immutable; equal to any sequence of the same messages."""

    __slots__ = ("_count", "_log", "_messages")

    def __init__(self, log: MessageLog, count: int) -> None:
        self._log = log
        self._messages = log._messages
        self._count = count

    @override
    def __len__(self) -> int:
        return self._count

    @override
    def __iter__(self) -> Iterator[RequestMessage]:
        return islice(self._messages, self._count)

    @overload
    def __getitem__(self, index: int) -> RequestMessage: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[RequestMessage, ...]: ...
    @override
    def __getitem__(self, index: int | slice) -> RequestMessage | tuple[RequestMessage, ...]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._count)
            # Of a long history mostly the end is asked for: do not copy all of it first.
            return tuple(self._messages[start:stop]) if step == 1 else tuple(self)[index]
        return self._messages[range(self._count)[index]]

    @override
    def __eq__(self, other: object) -> bool:
        if isinstance(other, LoggedMessages | tuple | list):
            return len(other) == self._count and tuple(self) == tuple(other)
        return NotImplemented

    @override
    def __hash__(self) -> int:
        return hash(tuple(self))

    @override
    def __repr__(self) -> str:
        return f"<{self._count} logged messages>"

    def folded(self, key: Hashable, make: Callable[[], F]) -> F:
        """See `folded`."""
        folds, count = self._log._folds, self._count
        done, known = 0, None
        for index, (name, at, made) in enumerate(folds):
            if name == key:
                if at > count:
                    return _fresh(self, make)
                done, known = at, made
                # Out of the list while it grows: one that breaks off is not used again.
                del folds[index]
                break
        fold = make() if known is None else cast("F", known)
        if done < count:
            fold.extend(self._messages[done:count])
        folds.append((key, count, fold))
        if len(folds) > _FOLDS_KEPT:
            del folds[0]
        return fold


def folded(messages: Sequence[RequestMessage], key: Hashable, make: Callable[[], F]) -> F:
    """A fold over `messages`, which goes on from where it was if they are a view of a log.

    The fold stays with the log and grows on with the next request: read from it at once what is
    needed, and change nothing in it.

    Args:
        messages: The messages to gather over.
        key: Names the fold and all that it depends on besides the messages; held by the log.
        make: Makes an empty fold.
    """
    if isinstance(messages, LoggedMessages):
        return messages.folded(key, make)
    return _fresh(messages, make)


def _fresh(messages: Sequence[RequestMessage], make: Callable[[], F]) -> F:
    fold = make()
    fold.extend(messages)
    return fold


def mapped(
    messages: Sequence[RequestMessage],
    key: Hashable,
    make: Callable[[], Callable[[RequestMessage], RequestMessage | None]],
) -> Sequence[RequestMessage]:
    """What a function makes of each message, those left out for which it returns `None`.

    Args:
        messages: The messages, each given to the function once and in order.
        key: Names the function and all that it depends on besides the messages.
        make: Makes the function.

    Returns:
        `messages` itself if every one came back as it was.
    """
    result = folded(messages, key, lambda: _Mapped(make()))
    return result.of(messages)


class _Mapped:
    """A second log, begun with the first message that changes: most histories never have one."""

    __slots__ = ("_change", "_log", "_same")

    def __init__(self, change: Callable[[RequestMessage], RequestMessage | None]) -> None:
        self._change = change
        self._same = 0
        """How many came back as they were and are not in the log yet."""
        self._log: MessageLog | None = None

    def extend(self, messages: Sequence[RequestMessage]) -> None:
        results = [*map(self._change, messages)]
        if self._log is None:
            if all(map(is_, results, messages)):
                self._same += len(results)
                return
            self._log = MessageLog()
        self._log.extend([message for message in results if message is not None])

    def of(self, messages: Sequence[RequestMessage]) -> Sequence[RequestMessage]:
        """The results for `messages`, all of which this was extended by."""
        if self._log is None:
            return messages
        if self._same:
            self._log = MessageLog([*messages[: self._same], *self._log.view()])
            self._same = 0
        return self._log.view()
