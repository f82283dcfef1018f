"""What services keep per scope: derived values, and walks along the layers of a table."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import ref

from typing_extensions import override

from dsh_cordis import Context, Handle, Layer, ScopedTable, scope_chain_of, scope_of

V = TypeVar("V")


class WatchedTable(ScopedTable[V]):
    """A table that knows whether anybody ever registered for a scope."""

    scoped = False

    @override
    def set(self, ctx: Context, name: str, value: V) -> Handle:
        """See `ScopedTable`."""
        self._watch(ctx)
        return super().set(ctx, name, value)

    @override
    def add(self, ctx: Context, value: V) -> Handle:
        """See `ScopedTable`."""
        self._watch(ctx)
        return super().add(ctx, value)

    def _watch(self, ctx: Context) -> None:
        self.scoped = self.scoped or scope_of(ctx) is not None


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
    """One value per viewer, made of tables when it is asked for.

    Viewers for whom the tables hold nothing of their own share the value for everyone. A value is
    made anew after `clear`, which is for the owner of the tables, and when its scope stands below
    another one. It goes with its scope.
    """

    def __init__(
        self, make: Callable[[object | None], V], tables: Sequence[WatchedTable[Any]]
    ) -> None:
        """Take what makes a value for a scope key or for `None`, and all that it reads."""
        self._make = make
        self._tables = tables  # of entries of any type
        self._for_everyone: _Kept[V] | None = None
        # Keys are told apart by identity, and need not be hashable.
        self._kept: dict[int, _Kept[V]] = {}

    def clear(self) -> None:
        """Something changed of which values are made."""
        self._for_everyone = None
        self._kept.clear()

    def get(self, scope: object | None) -> V:
        """The value for a viewer."""
        if scope is not None:
            for table in self._tables:
                if table.scoped:
                    chain = scope_chain_of(scope)
                    if self._is_layered(chain):
                        return self._get_scoped(scope, chain)
                    break
        kept = self._for_everyone
        if kept is None:
            kept = self._for_everyone = _Kept((), self._make(None))
        return kept.value

    def _is_layered(self, chain: list[object]) -> bool:
        for key in chain:
            for table in self._tables:
                if table.peek(key) is not None:
                    return True
        return False

    def _get_scoped(self, scope: object, chain: list[object]) -> V:
        kept = self._kept.get(id(scope))
        if kept is not None and kept.holds_for(chain):
            return kept.value
        value = self._make(scope)
        try:
            own = ref(scope, partial(self._forget, id(scope)))
            above = [ref(key) for key in chain[1:]]
        except TypeError:
            return value  # a key that cannot be referred to weakly: nobody would tell of its end
        self._kept[id(scope)] = _Kept((own, *above), value)
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
