"""What is remembered of an object, by identity, as long as it lives."""

import weakref
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class _Ref(weakref.ref[K]):
    """A reference that knows under which number it stands."""

    __slots__ = ("number",)
    number: int


class IdentityMemory(Generic[K, V]):
    """A value for each key object; keeps no key alive, and tells equal ones apart."""

    __slots__ = ("_entries", "_forget")

    def __init__(self) -> None:
        self._entries: dict[int, tuple[_Ref[K], V]] = {}
        entries = self._entries

        def forget(reference: _Ref[K]) -> None:
            entry = entries.get(reference.number)
            # The number may already belong to a newer object.
            if entry is not None and entry[0] is reference:
                del entries[reference.number]

        self._forget = forget

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """The value of this very object."""
        entry = self._entries.get(id(key))
        return entry[1] if entry is not None and entry[0]() is key else None

    def set(self, key: K, value: V) -> None:
        """Remember a value."""
        reference = _Ref(key, self._forget)
        reference.number = id(key)
        self._entries[reference.number] = (reference, value)
