"""Scopes: tagged contexts, and tables whose entries are layered by tag.

Upstream: packages/core/dsh-scope of the harness.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from dsh_cordis._keys import KeyRecord, chain_of, find_record, link, record_for
from dsh_cordis._plugin import Definition
from dsh_cordis.context import Context, Fiber
from dsh_cordis.errors import ScopeError
from dsh_cordis.handle import Handle, Record

V = TypeVar("V")


class ScopeBinding(Record, eq=False, weakref=True):
    """The one object that may move a key's parent."""

    _record: KeyRecord

    @property
    def key(self) -> object:
        """The bound key."""
        return self._record.key

    def move(self, parent: object | None) -> None:
        """Put the key below another one, or below none; a cycle raises and changes nothing."""
        link(self._record, parent)


class Scope(Record, eq=False, weakref=True):
    """A tagged context and the fiber behind it."""

    ctx: Context
    """Usable at once; what is registered through it belongs to the scope."""

    key: object
    """The tag."""

    handle: Fiber
    """The raw handle, which may be yielded into a composite effect."""

    binding: ScopeBinding | None
    """What may move the key's parent, if this scope bound one."""

    async def dispose(self) -> None:
        """Undo every registration of the scope; all callers wait for the same end."""
        await self.handle.dispose()


def create_scope(ctx: Context, key: object, parent: object | None = None) -> Scope:
    """Make a scope that belongs to the fiber of `ctx`.

    Args:
        ctx: The owner; services resolve in the scope as they do there.
        key: The tag, an opaque object compared by identity.
        parent: The key above; leave it out when the key is bound elsewhere.

    Raises:
        InactiveError: The activation of `ctx` has ended; no parent is bound.
        ScopeError: The key has a parent already, or the link would close a cycle.
    """
    ctx._place.activation.check("create_scope")
    ctx._tree.require_open("create_scope")
    record = record_for(key)
    binding = None if parent is None else bind_scope_parent(key, parent)
    try:
        fiber = ctx._mount(_SCOPE, None, msgspec.structs.replace(ctx._place, scope=record))
    except BaseException:
        if binding is not None:
            link(record, None)
            record.bound = False
        raise
    return Scope(fiber.ctx, key, fiber, binding)


_SCOPE: Final = Definition(create_scope, None, transparent=True)


def scope_of(ctx: Context) -> object | None:
    """The nearest tag of a context; None outside all scopes."""
    record = ctx._place.scope
    return record.key if isinstance(record, KeyRecord) else None


def scope_chain_of(key: object | None) -> list[object]:
    """The key and those above it, nearest first; nothing for None."""
    above = [record.key for record in chain_of(find_record(key))]
    return above or ([] if key is None else [key])


def bind_scope_parent(key: object, parent: object) -> ScopeBinding:
    """Give a key its parent; only the result may move it afterwards.

    Raises:
        ScopeError: The key has a parent already, or the link would close a cycle.
    """
    record = record_for(key)
    if record.bound:
        raise ScopeError(f"scope key {key!r} has a parent already; move it through its binding")
    link(record, parent)
    record.bound = True
    return ScopeBinding(record)


class Layer(Record, Generic[V], eq=False):
    """What one scope holds in a table; a snapshot."""

    scope: object | None
    named: dict[str, V]
    anonymous: list[V]


class _Entry(Record, Generic[V], eq=False):
    value: V


class _Layer(Record, Generic[V], eq=False):
    named: dict[str, _Entry[V]] = msgspec.field(default_factory=dict)
    anonymous: dict[_Entry[V], None] = msgspec.field(default_factory=dict)


class ScopedTable(Generic[V]):
    """A table with one layer per scope; visibility and ownership come from the same context."""

    def __init__(
        self,
        duplicate: Callable[[str], Exception],
        on_change: Callable[[], None] | None = None,
    ) -> None:
        """Make an empty table.

        Args:
            duplicate: Gives (or raises) the owner's own error for a name that its layer holds.
            on_change: Called after each registration and each undo.
        """
        self._duplicate = duplicate
        self._on_change = on_change or (lambda: None)
        self._layers: dict[KeyRecord | None, _Layer[V]] = {}

    def set(self, ctx: Context, name: str, value: V) -> Handle:
        """Register a named value in the layer of `ctx`'s scope; it shadows farther layers."""
        return self._register(ctx, name, _Entry(value))

    def add(self, ctx: Context, value: V) -> Handle:
        """Register an anonymous value; equal values are separate entries."""
        return self._register(ctx, None, _Entry(value))

    def _register(self, ctx: Context, name: str | None, entry: _Entry[V]) -> Handle:
        scope = ctx._place.scope
        record = scope if isinstance(scope, KeyRecord) else None

        def undo() -> None:
            layer = self._layers.get(record)
            if layer is not None:
                layer.anonymous.pop(entry, None)
                if name is not None and layer.named.get(name) is entry:
                    del layer.named[name]
                if not layer.named and not layer.anonymous:
                    del self._layers[record]
            self._on_change()

        def set_up() -> Callable[[], None]:
            layer = self._layers.get(record) or _Layer()
            if name is None:
                layer.anonymous[entry] = None
            elif name in layer.named:
                raise self._duplicate(name)
            else:
                layer.named[name] = entry
            self._layers[record] = layer
            try:
                self._on_change()
            except BaseException:
                undo()
                raise
            return undo

        return ctx.effect(set_up, label=name or "entry")

    def view(self, scope: object | None) -> dict[str, V]:
        """The merged named entries: global ones, then each layer down to the scope's own."""
        layers = self._layers_down_to(scope)
        return {name: entry.value for layer in layers for name, entry in layer.named.items()}

    def entries(self, scope: object | None) -> list[V]:
        """The anonymous entries, farthest layer first."""
        return [entry.value for layer in self._layers_down_to(scope) for entry in layer.anonymous]

    def peek(self, scope: object | None) -> Layer[V] | None:
        """Exactly one layer, never an ancestor's; None when it holds nothing."""
        record = find_record(scope)
        layer = self._layers.get(record)
        if layer is None or (scope is not None and record is None):
            return None
        named = {name: entry.value for name, entry in layer.named.items()}
        return Layer(scope, named, [entry.value for entry in layer.anonymous])

    def chain_layers(self, scope: object | None) -> list[Layer[V]]:
        """The existing layers of the scope's chain, farthest first, the global one included."""
        keys: list[object | None] = [None, *reversed(scope_chain_of(scope))]
        return [layer for key in keys if (layer := self.peek(key)) is not None]

    def _layers_down_to(self, scope: object | None) -> list[_Layer[V]]:
        records = [None, *reversed([*chain_of(find_record(scope))])]
        return [layer for record in records if (layer := self._layers.get(record)) is not None]
