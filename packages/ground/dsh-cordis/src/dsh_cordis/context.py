"""Contexts and fibers: what a plugin receives, and one mounted instance of it.

Upstream: packages/core/src/context.ts and fiber.ts of Cordis.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast, overload

import anyio
import msgspec
from typing_extensions import override

from dsh_cordis import _dispatch
from dsh_cordis._activation import Activation, Claim, FiberState, Place, lifecycle_code
from dsh_cordis._dispatch import Listener, Route
from dsh_cordis._effects import is_awaitable, set_up, start_background
from dsh_cordis._fiber import FiberCore
from dsh_cordis._plugin import Definition, Plugin, define
from dsh_cordis._tree import Tree
from dsh_cordis._views import Viewable, view_of
from dsh_cordis.errors import DeadlockError, ServiceUnavailable
from dsh_cordis.events import (
    Bail,
    Emit,
    Event,
    EventType,
    Mode,
    Parallel,
    Serial,
    SyncWaterfall,
)
from dsh_cordis.handle import Completion, EffectInfo, Handle

if TYPE_CHECKING:
    # structlog brings asyncio and a tenth of a second; it is imported at the first `ctx.log`.
    from structlog.typing import FilteringBoundLogger

_emit = _dispatch.emit

R = TypeVar("R")
L = TypeVar("L")
S = TypeVar("S", bound=Viewable)
_Predicate = Callable[["Context"], bool]


class Target(Route, eq=False):
    """To whom a dispatch goes.

    Args:
        key: A scope key: untagged listeners and those tagged with it or a key above it take
            part. None admits untagged ones only; left out, scopes do not matter.
        admits: A further condition on the listener's owning context.
    """

    admits: _Predicate | None = None


class Fiber(FiberCore):
    """One mounted instance of a plugin.

    `await fiber` returns when no transition is in flight, and raises the plugin's error if it
    failed. As an async context manager it waits until ACTIVE, and disposes at the end.
    """

    @property
    def ctx(self) -> "Context":
        """The context of the current activation."""
        return cast("Context", self.activation.ctx)

    def __await__(self) -> Any:  # a generator whose yields belong to the event loop
        return self.wait_settled().__await__()

    def move(self, ctx: "Context") -> None:
        """Stand below another context without a restart, as far as that is possible.

        The fiber, and each one below it, restarts only if a service that it requires or provides
        now stands in another realm.

        Args:
            ctx: Where it stands from now on; of the same tree, and not below this fiber.

        Raises:
            InactiveError: Disposal has been requested, or the activation of `ctx` has ended.
            TypeError: The fiber was mounted on a context that shares its realms with others; what
                is to be moved is mounted on one that `extend` or `isolate` gave.
        """
        self.move_to(ctx._place)

    def effects(self) -> list[EffectInfo]:
        """The live registrations as a tree, oldest first."""
        return [EffectInfo.of(handle) for handle in self.activation.stack.items]

    async def __aenter__(self) -> Self:
        try:
            await self.active()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.dispose()

    @override
    def __repr__(self) -> str:
        return f"<Fiber {self.name!r} uid={self.uid} {self.state.value}>"


class Context:
    """What a plugin receives: events, services, effects and child plugins of its fiber.

    `Context()` makes the root of a new tree; `async with Context() as ctx` opens it and disposes
    it at the end. An attribute that is no member here is read as the service of that name.
    """

    def __init__(self) -> None:
        """Make a root. Events, `provide` and synchronous effects work before it is opened."""
        tree = self._tree = Tree(Context._at)
        nobody = cast("Activation", None)  # a root has no owner but itself
        definition = Definition(None, "root")
        fiber = Fiber(_owner=nobody, kernel=tree, definition=definition, mount=None, config=None)
        fiber._owner = fiber.activation
        fiber.state = FiberState.ACTIVE
        fiber.activation.phase = "done"
        fiber.activation.ctx = tree.root = self
        tree.root_fiber = fiber
        tree.on_crash = fiber.dispose
        self._place = fiber.activation.place
        self._hot = tree.hot_emits

    @staticmethod
    def _at(tree: Tree, place: Place) -> "Context":
        ctx = object.__new__(Context)
        ctx._tree = tree
        ctx._place = place
        ctx._hot = tree.hot_emits
        return ctx

    @property
    def fiber(self) -> Fiber:
        """The fiber that owns what is registered through this context."""
        return cast("Fiber", self._place.activation.fiber)

    @property
    def root(self) -> "Context":
        """The context at the top of the tree."""
        return cast("Context", self._tree.root)

    async def __aenter__(self) -> Self:
        if self.root is not self:
            raise TypeError("only a root context is opened; mount plugins with ctx.plugin()")
        self._place.activation.check("opening the root")
        if self._tree.tasks is not None:
            raise RuntimeError("this root context is already open; make another with Context()")
        await self._tree.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.fiber.dispose()
            await self._tree.close()

    # Events

    def on(
        self,
        event: EventType[L],
        listener: L,
        *,
        prepend: bool = False,
        once: bool = False,
        everywhere: bool = False,
    ) -> Handle:
        """Listen to an event until the handle is called or the plugin unloads.

        Args:
            event: The payload class.
            listener: What the mode of the event takes; asynchronous listeners of an Emit run as
                tasks of this fiber after the emitter yields.
            prepend: Run before all present listeners.
            once: Run at most once.
            everywhere: Take part whatever the target of a dispatch is.

        Raises:
            InactiveError: The activation of this context has ended.
        """
        place = self._place
        owner = place.activation
        owner.check("ctx.on")
        name = getattr(event, "name", None)
        if not isinstance(name, str) or not callable(listener):
            raise TypeError(
                f"ctx.on takes an event class with a name and a listener, not {event!r}"
            )
        row = self._tree.rows.get(name) or self._tree.add_row(name)
        entry = Listener(self, place.scope, row, listener, everywhere, label=name, _owner=owner)
        if once:
            entry.once, entry.fn = entry.fn, entry.call_once
        row.add(entry, prepend=prepend)
        owner.stack.add(entry)
        return entry

    def emit(self, event: Emit, *, target: Target | None = None) -> None:
        """Run every listener; their errors are reported, unless the event is vetoing."""
        listeners = self._hot.get(type(event)) if target is None else None
        if listeners is None:
            listeners = self._tree.admitted(event, "emit", target)
        if listeners:
            _emit(event, listeners)

    def has_listeners(self, event: type[Event], subject: object = None) -> bool:
        """Whether a dispatch would reach anybody: a listener, or an observer of dispatches.

        For callers that build a payload so often that building it for nobody would be felt, such
        as one per chunk of a stream; elsewhere just dispatch, which costs little when nobody
        listens. The answer holds until the next await or registration, so ask every time. A
        predicate of a `Target` is not asked, and a decision with a default (a waterfall) still
        needs its `inner` to be run when the answer is False.

        Args:
            event: The payload class.
            subject: The scope key that the dispatch would have; None asks for all scopes.
        """
        tree = self._tree
        if event in tree.unheard:
            return False
        row = tree.rows.get(event.name)
        if row is not None and (row.listeners() if subject is None else row.reached_from(subject)):
            return True
        observers = tree.rows.get("internal/dispatch")
        if observers is not None and observers.listeners():
            return True
        if row is None or not row.listeners():
            tree.unheard[event] = ()  # whatever the subject; any row that changes clears it
        return False

    def prepare_emit(self, event: Emit, *, target: Target | None = None) -> Callable[[], None]:
        """Decide who takes part in an emit, and run it when the result is called.

        Everything that can refuse the dispatch (a wrong mode, a missing target, an observer of
        `internal/dispatch`) does so here, so that the caller can commit what it announces between
        the two. Call the result at most once.
        """
        return partial(_dispatch.emit, event, self._tree.admitted(event, "emit", target))

    def _admitted(self, event: Event, mode: Mode, target: Target | None) -> tuple[Listener, ...]:
        listeners = self._tree.hot_others.get(type(event)) if target is None else None
        if listeners is None or event.mode != mode:
            listeners = self._tree.admitted(event, mode, target)
        return listeners

    async def parallel(self, event: Parallel, *, target: Target | None = None) -> None:
        """Run all listeners at once and wait for all.

        Raises:
            ExceptionGroup: All failures, in listener order.
        """
        await _dispatch.parallel(event, self._admitted(event, "parallel", target))

    async def serial(self, event: Serial[R], *, target: Target | None = None) -> R | None:
        """Run listeners one by one until one answers other than None or False."""
        # The loop stands here, since a second coroutine would cost as much as a listener.
        for listener in self._admitted(event, "serial", target):
            result = listener.fn(event)
            if isinstance(result, CoroutineType) or is_awaitable(result):
                result = await result
            if result is not None and result is not False:
                return cast("R", result)
        return None

    def bail(self, event: Bail[R], *, target: Target | None = None) -> R | None:
        """As `serial`, synchronous."""
        return cast("R | None", _dispatch.bail(event, self._admitted(event, "bail", target)))

    def waterfall(
        self, event: SyncWaterfall[R], inner: Callable[[], R], *, target: Target | None = None
    ) -> R:
        """Run `inner` inside all listeners, outermost first; the result is handed on untouched."""
        return _dispatch.waterfall(event, self._admitted(event, "waterfall", target), inner)

    # Services

    def provide(self, key: str, value: object, *, available: _Predicate | None = None) -> Handle:
        """Claim a service key in this realm until the handle is called or the plugin unloads.

        Args:
            key: An identifier that is no member of `Context`.
            value: The service.
            available: Asked per dependent; see `notify`.

        Raises:
            ServiceConflict: Another claim of this key lives in this realm.
            ValueError: The key cannot be read as an attribute.
        """
        place = self._place
        place.activation.check("ctx.provide")
        if not key.isidentifier() or key.startswith("_") or key in _RESERVED:
            raise ValueError(
                f"{key!r} cannot be a service key: give an identifier that Context lacks"
            )
        predicate = None if available is None else partial(self._ask, available)
        activation, claims = place.activation, self._tree.claims
        pair = place.pair(key)
        claim = Claim(
            place, key, pair, value, predicate, claims, _owner=activation, label=f"service {key!r}"
        )
        claim.public = self.fiber.state is FiberState.ACTIVE
        claims.add(claim)
        activation.claims[pair] = claim
        activation.stack.add(claim)
        claims.changed(pair)
        return claim

    def _ask(self, available: _Predicate, place: Place) -> bool:
        return available(Context._at(self._tree, place))

    def notify(self, key: str) -> None:
        """Have the availability predicates of a key asked again."""
        self._tree.claims.changed_key(key)

    @overload
    def get(self, key: Callable[..., S]) -> S | None: ...  # `type[S]` would refuse abstract classes

    @overload
    def get(self, key: str) -> Any: ...  # a service of any class

    def get(self, key: str | Callable[..., Viewable]) -> object:
        """The service of an active plugin in this realm, or None; not to be kept over awaits."""
        name = key if isinstance(key, str) else cast("type[Viewable]", key).key
        place = self._place.resolver or self._place
        claim = self._tree.claims.live.get(place.pair(name))
        if claim is None or not claim.public or not claim.is_available(self._place):
            return None
        return self._seen(claim)

    def __getattr__(self, name: str) -> Any:  # a service of any class; a Context subclass types it
        if name.startswith("_") or name in _RESERVED:
            raise AttributeError(name)
        place = self._place.resolver or self._place
        claim = place.activation.find(place, name)
        if claim is None:
            return self._read_live(cast("Fiber", place.activation.reader()), name)
        value = self._seen(claim)
        self.__dict__[name] = value
        claim.cache_in(self)
        return value

    def _read_live(self, reader: Fiber, name: str) -> object:
        """What is evaluated at every read: optional keys, and everything at the root."""
        optional = name in reader.definition.optional
        value = self.get(name) if optional or reader.parent is None else None
        if value is None and not optional:
            raise ServiceUnavailable(name, reader.name, declared=name in reader.required)
        return value

    def _seen(self, claim: Claim) -> object:
        """The value of a claim as this context sees it."""
        value = claim.value
        if not isinstance(value, Viewable):
            return value
        return view_of(value, Context._at(self._tree, self._place.through(claim)))

    # Effects and plugins

    def effect(self, effect: object, *, label: str = "") -> Handle:
        """Register an effect: a set-up that gives its own undoing.

        Args:
            effect: A callable giving nothing, a disposer or a handle; a (async) context manager;
                a (async) generator function yielding any number of these; a coroutine function.
            label: What diagnostics call it.
        """
        activation = self._place.activation
        activation.check("ctx.effect")
        name = label or getattr(effect, "__name__", None) or type(effect).__name__
        return set_up(activation.stack, effect, name)

    def spawn(self, fn: Callable[..., Awaitable[object]], *args: object, name: str = "") -> Handle:
        """Start a background task of this activation; undoing cancels and joins it.

        If the task raises, the fiber fails with that error.
        """
        activation = self._place.activation
        activation.check("ctx.spawn")
        label = name or getattr(fn, "__name__", None) or "task"
        return start_background(activation.stack, partial(fn, *args), label)

    def plugin(self, plugin: Plugin, config: object = None) -> Fiber:
        """Mount a plugin below this fiber; its body runs after this call.

        Raises:
            TypeError: It has no shape of a plugin.
            InactiveError: The activation of this context has ended.
        """
        self._place.activation.check("ctx.plugin")
        return self._mount(define(plugin, Context), config, self._place)

    def inject(
        self, keys: Sequence[str] | Mapping[str, object], body: Plugin, config: object = None
    ) -> Fiber:
        """Mount a body that loads and unloads with services, while this fiber stays.

        Args:
            keys: What it needs beside its own requirements; a mapping adds intercepted config.
            body: A plugin of any shape.
            config: As for `plugin`.
        """
        self._place.activation.check("ctx.inject")
        definition = define(body, Context)
        configs = keys if isinstance(keys, Mapping) else dict.fromkeys(keys)
        required = {**definition.required, **configs}
        definition = msgspec.structs.replace(definition, required=required)
        return self._mount(definition, config, self._place)

    def _mount(self, definition: Definition, config: object, place: Place) -> Fiber:
        tree, owner = self._tree, place.activation
        tree.require_open("ctx.plugin")
        fiber = Fiber(_owner=owner, kernel=tree, definition=definition, mount=place, config=config)
        owner.stack.add(fiber)
        try:
            tree.announce_mount(fiber)
        except BaseException:
            fiber.veto()
            raise
        fiber.begin()
        return fiber

    def unplug(self, plugin: Plugin) -> Completion:
        """Dispose every fiber of a plugin in this tree."""
        fibers = [each for each in self._tree.fibers() if each.definition.is_of(plugin)]
        disposals = [fiber() for fiber in fibers]

        async def wait() -> None:
            for disposal in disposals:
                await disposal

        return Completion(wait)

    async def settled(self) -> None:
        """Wait until no fiber of the whole tree is in transition; raise what failed.

        Raises:
            Exception: The error of the FAILED fiber; an `ExceptionGroup` if there are several.
            DeadlockError: A plugin body or a disposer asks, for whose end this would wait.
        """
        caller = lifecycle_code()
        if caller is not None:
            raise DeadlockError(caller.fiber.name, "the whole tree")
        await self._tree.wait_quiet()
        errors = self._tree.failures()
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ExceptionGroup("plugins failed", errors)

    # Derived contexts

    def extend(self) -> "Context":
        """A derived context of the same fiber, with a table of realms of its own."""
        return self._but(realms=dict(self._place.realms))

    def isolate(self, key: str, label: str | None = None) -> "Context":
        """A derived context with a fresh realm for one key; equal labels join one realm."""
        realm = object() if label is None else ("label", label)
        return self._but(realms={**self._place.realms, key: realm})

    def intercept(self, key: str, config: object) -> "Context":
        """A derived context through which a service sees additional configuration."""
        return self._but(intercepts=(*self._place.intercepts, (key, config)))

    def _but(self, **changes: object) -> "Context":
        return Context._at(self._tree, msgspec.structs.replace(self._place, **changes))

    @property
    def log(self) -> "FilteringBoundLogger":
        """The logger of this fiber; in a service method that of the service."""
        import structlog  # see the top of this module

        name = self._place.service or self.fiber.name
        log: FilteringBoundLogger = structlog.get_logger("dsh_cordis").bind(fiber=name)
        return log

    @override
    def __repr__(self) -> str:
        return f"<Context of {self.fiber.name!r}>"


_RESERVED: Final = frozenset(dir(Context))
