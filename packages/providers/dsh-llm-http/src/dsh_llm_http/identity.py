"""A cache by identity that keeps nothing alive."""

import weakref
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


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
