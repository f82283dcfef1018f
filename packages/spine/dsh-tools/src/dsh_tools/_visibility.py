"""Which tool a viewer sees: layers, shadowing, restrictions and guards."""

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final
from weakref import WeakKeyDictionary, ref

import msgspec

from dsh_cordis import Context, Handle, ScopedTable, scope_chain_of, scope_of

from . import texts
from .errors import ToolNotFoundError, ToolRegistrationError
from .execution import ToolRunContext
from .types import ToolDefinition

Guard = Callable[[ToolRunContext], str | None]
"""Denies a call with the reason it returns; `None` says nothing."""

TRANSPORT: Final = "run_code"
"""Reserved: the name of the code transport is never registered and never restricted."""

_NAME_LIMIT: Final = 64


class _Restriction(msgspec.Struct, frozen=True):
    allow: frozenset[str] | None
    deny: frozenset[str]

    def admits(self, name: str) -> bool:
        return name not in self.deny and (self.allow is None or name in self.allow)


class View:
    """What one viewer sees, and the chain of scopes for which that holds."""

    __slots__ = ("chain", "guarded", "visible")

    def __init__(self, visible: Mapping[str, ToolDefinition], guarded: bool) -> None:
        self.visible: Final = visible
        self.guarded: Final = guarded
        self.chain: list[ref[object]] = []

    def holds_for(self, chain: list[object]) -> bool:
        if len(chain) != len(self.chain):
            return False
        for known, key in zip(self.chain, chain, strict=True):  # noqa: SIM110  # a generator costs more
            if known() is not key:
                return False
        return True


class _ViewCache:
    """Views by scope; every call of a tool reads one, and they change seldom."""

    def __init__(self, make: Callable[[object | None], View]) -> None:
        self._make = make
        self._views: WeakKeyDictionary[object, View] = WeakKeyDictionary()
        self._unscoped: View | None = None

    def clear(self) -> None:
        self._views.clear()
        self._unscoped = None

    def get(self, scope: object | None) -> View:
        if scope is None:
            if self._unscoped is None:
                self._unscoped = self._make(None)
            return self._unscoped
        # Keys are told apart by identity, and a scope may be moved below another one.
        chain = scope_chain_of(scope)
        try:
            view = self._views.get(scope)
            if view is None or not view.holds_for(chain):
                view = self._make(scope)
                view.chain = [ref(key) for key in chain]
                self._views[scope] = view
        except TypeError:  # a key that is not hashable, or cannot be referred to weakly
            return self._make(scope)
        return view


class ToolViews:
    """The layered tables behind the registry."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        def changed() -> None:
            self._cache.clear()
            on_change()

        self._tools = ScopedTable[ToolDefinition](duplicate=_duplicate, on_change=changed)
        self._restrictions = ScopedTable[_Restriction](duplicate=_duplicate, on_change=changed)
        self._guards = ScopedTable[Guard](duplicate=_duplicate, on_change=self._forget)
        self._cache = _ViewCache(self._view)
        self.current: Final = self._cache.get
        """All that concerns the calls of a viewer; every call of a tool asks."""
        self._owners: WeakKeyDictionary[ToolDefinition, str] = WeakKeyDictionary()

    def register(self, ctx: Context, definition: ToolDefinition) -> Handle:
        """Make a tool visible in the caller's layer and below."""
        if definition.name == TRANSPORT:
            raise ToolRegistrationError(
                f"the name {TRANSPORT!r} is reserved for the code transport; choose another"
            )
        scope = scope_of(ctx)
        if definition.name in self._own_names(scope):
            raise _duplicate(definition.name, scope)
        handle = self._tools.set(ctx, definition.name, definition)
        self._owners[definition] = ctx.fiber.name or ""
        return handle

    def owners(self, scope: object | None) -> dict[str, str]:
        """The plugin that registered each tool a viewer sees."""
        visible = self.visible(scope).items()
        return {name: self._owners.get(definition, "") for name, definition in visible}

    def restrict(
        self, ctx: Context, allow: Collection[str] | None, deny: Collection[str] | None
    ) -> Handle:
        """Mask what the caller's scope inherits."""
        scope = scope_of(ctx)
        if scope is None:
            raise ToolRegistrationError(
                "a restriction needs a scope; restrict through an agent's context"
            )
        if allow is None and deny is None:
            raise ToolRegistrationError("a restriction needs 'allow' or 'deny'; neither was given")
        self._check_names({*(allow or ()), *(deny or ())}, scope)
        entry = _Restriction(None if allow is None else frozenset(allow), frozenset(deny or ()))
        return self._restrictions.add(ctx, entry)

    def guard(self, ctx: Context, guard: Guard) -> Handle:
        """Let `guard` deny calls of the caller's scope."""
        return self._guards.add(ctx, guard)

    def visible(self, scope: object | None) -> Mapping[str, ToolDefinition]:
        """What a viewer sees, by name."""
        return self._cache.get(scope).visible

    def _view(self, scope: object | None) -> View:
        own = self._own_names(scope)
        masks = self._restrictions.entries(scope)
        visible = {
            name: definition
            for name, definition in self._tools.view(scope).items()
            if name in own or all(mask.admits(name) for mask in masks)
        }
        return View(visible, bool(self._guards.entries(scope)))

    def _forget(self) -> None:
        self._cache.clear()

    def known_names(self, scope: object | None) -> list[str]:
        """All names of a viewer's layers, hidden ones too."""
        return list(self._tools.view(scope))

    def lookup(self, name: str, scope: object | None) -> ToolDefinition:
        """The tool a viewer means by `name`.

        Raises:
            ToolNotFoundError: It sees none; the message offers similar names.
        """
        visible = self.visible(scope)
        found = visible.get(name)
        if found is not None:
            return found
        shown = name if len(name) <= _NAME_LIMIT else name[:_NAME_LIMIT] + "…"
        message = texts.UNKNOWN_TOOL.format(name=repr(shown))
        close = difflib.get_close_matches(name[:_NAME_LIMIT], visible, n=5)
        if close:
            message += texts.SIMILAR_TOOLS.format(names=", ".join(map(repr, close)))
        raise ToolNotFoundError(message)

    def guards(self, scope: object | None) -> Iterator[Guard]:
        """Global guards first, then the chain, farthest first; each layer as it is when reached."""
        # Layers that come up during the walk count, entries of a table being walked do not.
        walked: list[object | None] = []
        while True:
            layers = self._guards.chain_layers(scope)
            layer = next((each for each in layers if each.scope not in walked), None)
            if layer is None:
                return
            walked.append(layer.scope)
            yield from list(layer.anonymous)

    def _own_names(self, scope: object | None) -> Collection[str]:
        layer = self._tools.peek(scope)
        return () if layer is None else layer.named

    def _check_names(self, names: set[str], scope: object) -> None:
        if TRANSPORT in names:
            raise ToolRegistrationError(f"{TRANSPORT!r} is a transport and cannot be restricted")
        inherited = {
            name
            for layer in self._tools.chain_layers(scope)
            if layer.scope is not scope
            for name in layer.named
        }
        unknown = sorted(names - inherited)
        if unknown:
            raise ToolRegistrationError(
                f"unknown tools {', '.join(unknown)}; the scope inherits: "
                f"{', '.join(sorted(inherited)) or 'none'}"
            )


def _duplicate(name: str, scope: object | None = None) -> Exception:
    if scope is None:
        return ToolRegistrationError(
            f"tool {name!r} is already registered for everyone; dispose that registration, or "
            "register this one through an agent's context to shadow it there"
        )
    return ToolRegistrationError(
        f"tool {name!r} is already registered in this scope; dispose that registration first"
    )
