"""What services keep per scope: derived values, and walks along the layers of a table."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Generic, TypeVar
from weakref import ref

from dsh_cordis import Layer, scope_chain_of

V = TypeVar("V")


class _Kept(Generic[V]):
    __slots__ = ("chain", "value")

    def __init__(self, chain: tuple[ref[object], ...], value: V) -> None:
        self.chain = chain
        self.value = value

    def holds_for(self, chain: list[object]) -> bool:
        if len(chain) != len(self.chain):
            return False
        for known, key in zip(self.chain, chain, strict=True):  # noqa: SIM110  # a generator costs more
            if known() is not key:
                return False
        return True


class ScopeCache(Generic[V]):
    """One value per viewer, made when it is asked for.

    It is made anew after `clear`, which is for whoever owns the tables it is made of, and when the
    scope stands below another one. It goes with its scope.
    """

    def __init__(self, make: Callable[[object | None], V]) -> None:
        """Take what makes a value for a scope key, or for `None`: for everyone."""
        self._make = make
        # Keys are told apart by identity, and need not be hashable.
        self._kept: dict[int, _Kept[V]] = {}

    def clear(self) -> None:
        """Something changed of which values are made."""
        self._kept.clear()

    def get(self, scope: object | None) -> V:
        """The value for a viewer."""
        chain = scope_chain_of(scope)
        kept = self._kept.get(id(scope))
        if kept is not None and kept.holds_for(chain):
            return kept.value
        value = self._make(scope)
        try:
            above = tuple(ref(key) for key in chain[1:])
            own = () if scope is None else (ref(scope, partial(self._forget, id(scope))),)
        except TypeError:
            return value  # a key that cannot be referred to weakly: nobody would tell of its end
        self._kept[id(scope)] = _Kept((*own, *above), value)
        return value

    def _forget(self, ident: int, gone: ref[object]) -> None:
        kept = self._kept.get(ident)
        if kept is not None and kept.chain[0] is gone:
            del self._kept[ident]


def walk(layers: Callable[[], Sequence[Layer[V]]]) -> Iterator[Layer[V]]:
    """Each layer as it is when its turn comes, for tables whose entries may register others.

    What is registered meanwhile counts in layers not reached yet.

    Args:
        layers: Reads the layers, farthest first.
    """
    walked: list[object | None] = []
    while True:
        for layer in layers():
            if not any(layer.scope is scope for scope in walked):
                break
        else:
            return
        walked.append(layer.scope)
        yield layer
