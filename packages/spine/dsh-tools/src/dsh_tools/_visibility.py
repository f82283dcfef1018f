"""Which tool a viewer sees: layers, shadowing, restrictions and guards."""

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final
from weakref import WeakKeyDictionary

import msgspec

from dsh_brand import NotJsonError, freeze_object
from dsh_cordis import Context, Handle, scope_of
from dsh_llm import ToolSchema
from dsh_system_prompt import ToolsContribution
from dsh_system_prompt.scopes import ScopeCache, WatchedTable, walk

from . import texts
from .errors import ToolDeclarationError, ToolNotFoundError, ToolRegistrationError
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


class View(msgspec.Struct, frozen=True, dict=True):
    """What one viewer sees."""

    visible: Mapping[str, ToolDefinition]
    known_names: Sequence[str]
    """Of the viewer's layers, hidden ones too."""
    owners: Mapping[str, str]
    """The plugin that registered each visible tool."""
    guarded: bool
    """Whether there are guards for the viewer's calls."""

    @cached_property
    def contribution(self) -> ToolsContribution:
        """What a model is told about the visible tools; one object as long as nothing changes.

        Raises:
            ToolDeclarationError: The parameters of a tool are no lossless JSON.
        """
        return ToolsContribution(
            schemas=tuple(map(_schema, self.visible.values())),
            known_names=self.known_names,
            owners=self.owners,
        )


class ToolViews:
    """The layered tables behind the registry."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        def changed() -> None:
            self._cache.clear()
            on_change()

        def guards_changed() -> None:
            self._cache.clear()
            self._guard_layers.clear()

        self._tools = WatchedTable[ToolDefinition](duplicate=_duplicate, on_change=changed)
        self._restrictions = WatchedTable[_Restriction](duplicate=_duplicate, on_change=changed)
        self._guards = WatchedTable[Guard](duplicate=_duplicate, on_change=guards_changed)
        tables = (self._tools, self._restrictions, self._guards)
        self._cache = ScopeCache(self._view, tables)
        self._guard_layers = ScopeCache(self._guards.chain_layers, (self._guards,))
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
        known = self._tools.view(scope)
        visible = {
            name: definition
            for name, definition in known.items()
            if name in own or all(mask.admits(name) for mask in masks)
        }
        owners = {name: self._owners.get(each, "") for name, each in visible.items()}
        return View(visible, tuple(known), owners, bool(self._guards.entries(scope)))

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
        for layer in walk(lambda: self._guard_layers.get(scope)):
            yield from layer.anonymous

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


def _schema(definition: ToolDefinition) -> ToolSchema:
    try:
        parameters = freeze_object(dict(definition.parameters))
    except NotJsonError as error:
        raise ToolDeclarationError(
            f"tool {definition.name!r}: parameters are {error.message}"
        ) from error
    return ToolSchema(
        name=definition.name,
        description=definition.description,
        parameters=parameters,
        defer_loading=True if definition.defer_loading else None,
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
