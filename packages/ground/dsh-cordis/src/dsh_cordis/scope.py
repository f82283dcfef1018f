"""Scopes: tagged contexts, and tables whose entries are layered by tag.

Upstream: packages/core/dsh-scope of the harness.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from dsh_cordis._keys import KeyRecord, chain, find_record, link, record_for
from dsh_cordis._plugin import Definition
from dsh_cordis.context import Context, Fiber
from dsh_cordis.errors import ScopeError
from dsh_cordis.handle import Handle

V = TypeVar("V")


class ScopeBinding:
    """The one object that may move a key's parent."""

    def __init__(self, record: KeyRecord) -> None:
        """Made by `bind_scope_parent`."""
        self._record = record

    @property
    def key(self) -> object:
        """The bound key."""
        return self._record.key

    def move(self, parent: object | None) -> None:
        """Put the key below another one, or below none; a cycle raises and changes nothing."""
        link(self._record, parent)


class Scope:
    """A tagged context and the fiber behind it.

    Attributes:
        ctx: Usable at once; what is registered through it belongs to the scope.
        key: The tag.
        handle: The raw handle, which may be yielded into a composite effect.
        binding: What may move the key's parent, if this scope bound one.
    """

    def __init__(self, fiber: Fiber, key: object, binding: ScopeBinding | None) -> None:
        """Made by `create_scope`."""
        self.handle: Handle = fiber
        self.ctx = fiber.ctx
        self.key = key
        self.binding = binding
        self._fiber = fiber

    async def dispose(self) -> None:
        """Undo every registration of the scope; all callers wait for the same end."""
        await self._fiber.dispose()


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
    ctx._tree.kernel.require_host("create_scope")
    record = record_for(key)
    binding = None if parent is None else bind_scope_parent(key, parent)
    definition = Definition(record, None, transparent=True)
    try:
        fiber = ctx._mount(definition, None, ctx._place.but(scope=record))
    except BaseException:
        if binding is not None:
            link(record, None)
            record.bound = False
        raise
    return Scope(fiber, key, binding)


def scope_of(ctx: Context) -> object | None:
    """The nearest tag of a context; None outside all scopes."""
    record = ctx._place.scope
    return record.key if isinstance(record, KeyRecord) else None


def scope_chain_of(key: object | None) -> list[object]:
    """The key and those above it, nearest first; nothing for None."""
    return list(chain(key))


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


class Layer(Generic[V]):
    """What one scope holds in a table; a snapshot."""

    __slots__ = ("anonymous", "named", "scope")

    def __init__(self, scope: object | None, named: dict[str, V], anonymous: list[V]) -> None:
        """Made by `ScopedTable`."""
        self.scope = scope
        self.named = named
        self.anonymous = anonymous


class _Entry(Generic[V]):
    __slots__ = ("value",)

    def __init__(self, value: V) -> None:
        self.value = value


class _Layer(Generic[V]):
    __slots__ = ("anonymous", "named")

    def __init__(self) -> None:
        self.named: dict[str, _Entry[V]] = {}
        self.anonymous: dict[_Entry[V], None] = {}

    @property
    def empty(self) -> bool:
        return not self.named and not self.anonymous


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
        entry = _Entry(value)

        def enter(layer: _Layer[V]) -> None:
            if name in layer.named:
                raise self._duplicate(name)
            layer.named[name] = entry

        def leave(layer: _Layer[V]) -> None:
            if layer.named.get(name) is entry:
                del layer.named[name]

        return self._register(ctx, enter, leave, name)

    def add(self, ctx: Context, value: V) -> Handle:
        """Register an anonymous value; equal values are separate entries."""
        entry = _Entry(value)

        def enter(layer: _Layer[V]) -> None:
            layer.anonymous[entry] = None

        def leave(layer: _Layer[V]) -> None:
            layer.anonymous.pop(entry, None)

        return self._register(ctx, enter, leave, "entry")

    def _register(
        self,
        ctx: Context,
        enter: Callable[[_Layer[V]], None],
        leave: Callable[[_Layer[V]], None],
        label: str,
    ) -> Handle:
        scope = ctx._place.scope
        record = scope if isinstance(scope, KeyRecord) else None

        def undo() -> None:
            layer = self._layers.get(record)
            if layer is not None:
                leave(layer)
            self._drop_empty(record)
            self._on_change()

        def set_up() -> Callable[[], None]:
            layer = self._layers.setdefault(record, _Layer())
            try:
                enter(layer)
            finally:
                self._drop_empty(record)
            try:
                self._on_change()
            except BaseException:
                undo()
                raise
            return undo

        return ctx.effect(set_up, label=label)

    def _drop_empty(self, record: KeyRecord | None) -> None:
        layer = self._layers.get(record)
        if layer is not None and layer.empty:
            del self._layers[record]

    def view(self, scope: object | None) -> dict[str, V]:
        """The merged named entries: global ones, then each layer down to the scope's own."""
        merged: dict[str, V] = {}
        for layer in self._layers_down_to(scope):
            for name, entry in layer.named.items():
                merged[name] = entry.value
        return merged

    def entries(self, scope: object | None) -> list[V]:
        """The anonymous entries, farthest layer first."""
        return [entry.value for layer in self._layers_down_to(scope) for entry in layer.anonymous]

    def peek(self, scope: object | None) -> Layer[V] | None:
        """Exactly one layer, never an ancestor's; None when it holds nothing."""
        record = find_record(scope)
        if scope is not None and record is None:
            return None
        layer = self._layers.get(record)
        return None if layer is None else _snapshot(scope, layer)

    def chain_layers(self, scope: object | None) -> list[Layer[V]]:
        """The existing layers of the scope's chain, farthest first, the global one included."""
        keys: list[object | None] = [None, *reversed(scope_chain_of(scope))]
        return [layer for key in keys if (layer := self.peek(key)) is not None]

    def _layers_down_to(self, scope: object | None) -> list[_Layer[V]]:
        records = [find_record(key) for key in reversed(scope_chain_of(scope))]
        found = [self._layers.get(None)]
        found += [self._layers.get(record) for record in records if record is not None]
        return [layer for layer in found if layer is not None]


def _snapshot(scope: object | None, layer: _Layer[V]) -> Layer[V]:
    named = {name: entry.value for name, entry in layer.named.items()}
    return Layer(scope, named, [entry.value for entry in layer.anonymous])
