"""A cache by identity that keeps nothing alive."""

import weakref
from collections.abc import Callable, Iterable, Sequence
from operator import call, is_
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_PARTS_KEPT = 32


class IdentityCache(Generic[K, V]):
    """Remembers a value for each key object as long as that object lives.

    Equal keys are told apart: comparing or hashing a long message costs more than encoding it.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[K], V]] = {}

    def get(self, key: K) -> V | None:
        """The value of this very object."""
        entry = self._entries.get(id(key))
        return entry[1] if entry is not None and entry[0]() is key else None

    def all(self, keys: Iterable[K], make: Callable[[K], V]) -> list[V]:
        """The values of many objects, made and remembered where there is none yet.

        One loop without calls: a long history asks for thousands with each request.
        """
        entry_of = self._entries.get
        found: list[V] = []
        for key in keys:
            entry = entry_of(id(key))
            if entry is not None and entry[0]() is key:
                found.append(entry[1])
            else:
                value = make(key)
                self.set(key, value)
                found.append(value)
        return found

    def set(self, key: K, value: V) -> None:
        """Remember the value."""
        number = id(key)
        entries = self._entries

        def forget(reference: weakref.ref[K]) -> None:
            entry = entries.get(number)
            # The number may already belong to a newer object.
            if entry is not None and entry[0] is reference:
                del entries[number]

        entries[number] = (weakref.ref(key, forget), value)

    def __len__(self) -> int:
        return len(self._entries)


class Grown(Generic[K]):
    """The encoded beginning of one history."""

    def __init__(self, tag: object) -> None:
        self.tag = tag
        self.parts: list[bytes] = []
        """What was encoded, in few parts that a comma separates."""
        self._messages: list[weakref.ref[K]] = []

    @property
    def count(self) -> int:
        """How many messages the parts are of."""
        return len(self._messages)

    def begins(self, messages: Sequence[K]) -> bool:
        """Whether these messages begin with the very ones that were encoded."""
        return len(self._messages) <= len(messages) and all(
            map(is_, map(call, self._messages), messages)
        )

    def extend(self, messages: Iterable[K], parts: Iterable[bytes]) -> None:
        """More of the history: messages, and what they are when encoded."""
        self._messages += map(weakref.ref, messages)
        self.parts += parts
        if len(self.parts) > _PARTS_KEPT:
            self.parts = [b",".join(self.parts)]


class GrowingHistory(Generic[K]):
    """Encoded beginnings of histories that grow at their end.

    The next request of a conversation is the last one and a little more: what was encoded of the
    last one is used again as a whole instead of message by message. A beginning is kept as long as
    the first message of its history lives.
    """

    def __init__(self) -> None:
        self._known: IdentityCache[K, Grown[K]] = IdentityCache()

    def beginning(self, messages: Sequence[K], tag: object = None) -> Grown[K]:
        """What is known of a history, possibly nothing; `extend` it with the rest.

        Args:
            messages: The history.
            tag: What else the encoding depends on.
        """
        grown = self._known.get(messages[0]) if messages else None
        if grown is None or grown.tag != tag or not grown.begins(messages):
            grown = self.fresh(messages, tag)
        return grown

    def fresh(self, messages: Sequence[K], tag: object = None) -> Grown[K]:
        """Begin anew: what was known of this history does not fit."""
        grown: Grown[K] = Grown(tag)
        if messages:
            self._known.set(messages[0], grown)
        return grown
