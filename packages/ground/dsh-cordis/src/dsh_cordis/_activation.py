"""What one run of a fiber holds: its stack, its claims, what it captured, and where it stands."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import Context, ContextVar
from enum import Enum
from types import TracebackType
from typing import Final, Literal, NoReturn
from weakref import WeakSet

import anyio
from typing_extensions import override

from dsh_cordis._host import Gate
from dsh_cordis._kernel import Kernel
from dsh_cordis._plugin import Definition
from dsh_cordis.errors import InactiveError, ServiceConflict
from dsh_cordis.handle import Handle, Owner, Rest, Stack, _within

Pair = tuple[object, str]
"""A realm and a key; the default realm is None."""

_NOTHING: Final[Mapping[str, object]] = {}


class FiberState(Enum):
    """The states of a fiber."""

    PENDING = "pending"
    LOADING = "loading"
    ACTIVE = "active"
    UNLOADING = "unloading"
    FAILED = "failed"
    DISPOSED = "disposed"


class Frame:
    """Marks code that runs for an activation; tells what its lifecycle code waits for."""

    __slots__ = ("activation", "awaiting", "inherited", "is_task")

    def __init__(self, activation: "Activation", *, is_task: bool = False) -> None:
        self.activation = activation
        self.is_task = is_task
        self.awaiting: Sequence[Node] = ()
        self.inherited: Sequence[tuple[BaseException, TracebackType | None]] = ()


frame_var: ContextVar[Frame | None] = ContextVar("dsh_cordis_frame", default=None)


class Node(Handle):
    """What an activation knows of its fiber."""

    kernel: Kernel
    definition: Definition
    parent: "Node | None"
    uid: int | None
    state: FiberState
    error: Exception | None
    activation: "Activation"
    own_name: str | None
    queued: bool
    transparent: bool
    opaque = True

    def fibers_below(self) -> "Iterator[Node]":
        """The child fibers, those in composites included."""
        stack = list(self.activation.stack.items)
        while stack:
            handle = stack.pop()
            if isinstance(handle, Node):
                yield handle
            else:
                stack.extend(handle.children())

    @property
    @abstractmethod
    def name(self) -> str:
        """The fiber's own or nearest named ancestor's name."""

    @abstractmethod
    def place_for(self, activation: "Activation", mount: "Place") -> "Place":
        """Where the context of a new activation stands."""

    @abstractmethod
    def advance(self) -> None:
        """See `Driven`."""

    @abstractmethod
    def lose(self) -> None:
        """A captured claim is being withdrawn: unwind and look for another."""

    @abstractmethod
    def recheck(self) -> None:
        """The availability of a captured claim may have changed."""

    @abstractmethod
    def report(self, error: Exception, label: str) -> None:
        """See `Owner.report`."""

    @abstractmethod
    def fail_in(self, activation: "Activation", error: Exception) -> None:
        """A background task of an activation raised."""


class Place:
    """Where a context stands: its activation, realms, scope, intercepts, and how it resolves."""

    __slots__ = ("activation", "intercepts", "realms", "resolver", "scope", "service")

    def __init__(
        self,
        activation: "Activation",
        realms: Mapping[str, object] = _NOTHING,
        scope: object = None,
        intercepts: tuple[tuple[str, object], ...] = (),
        resolver: "Place | None" = None,
        service: str | None = None,
    ) -> None:
        self.activation = activation
        self.realms = realms
        self.scope = scope
        self.intercepts = intercepts
        self.resolver = resolver
        self.service = service

    def but(
        self,
        *,
        realms: Mapping[str, object] | None = None,
        scope: object = None,
        intercepts: tuple[tuple[str, object], ...] | None = None,
    ) -> "Place":
        """A derived place of the same activation."""
        return Place(
            self.activation,
            self.realms if realms is None else realms,
            self.scope if scope is None else scope,
            self.intercepts if intercepts is None else intercepts,
            self.resolver,
            self.service,
        )

    def through(self, claim: "Claim") -> "Place":
        """Where a view of a service stands: it owns as this place, resolves as the provider."""
        provider = claim.place.resolver or claim.place
        return Place(self.activation, self.realms, self.scope, self.intercepts, provider, claim.key)

    def pair(self, key: str) -> Pair:
        """The pair that a key means here."""
        return (self.realms.get(key), key)


class Activation(Owner):
    """One run of a fiber, from the moment something can be registered on it."""

    # Class attributes are the defaults of what many activations never need.
    ctx: object = None
    closed = False
    phase: Literal["new", "running", "done"] = "new"
    error: Exception | None = None
    traceback: TracebackType | None = None
    gate: Gate | None = None
    unwind_go: "anyio.Event | None" = None  # a text: anyio loads what it names
    unwinding = False
    unwound = False
    joined: Handle | None = None

    def __init__(self, fiber: Node, mount: Place | None, context: Context) -> None:
        self.fiber = fiber
        self.kernel = fiber.kernel
        self.mount = mount
        self.stack = Stack(self.report)
        self.context = context
        self.claims: dict[Pair, Claim] = {}
        self.captured: dict[Pair, Claim] = {}
        self.frame = Frame(self)
        self.place = Place(self) if mount is None else fiber.place_for(self, mount)
        context.run(frame_var.set, self.frame)

    def check(self, what: str) -> None:
        """Refuse a registration when this activation has ended."""
        if self.closed:
            self.refuse(what)

    def refuse(self, what: str) -> NoReturn:
        """Raise what a registration on an ended activation gets."""
        raise InactiveError(self.fiber.name, what)

    @override
    def report(self, error: Exception, label: str) -> None:
        self.fiber.report(error, label)

    @override
    def fail(self, error: Exception) -> None:
        self.fiber.fail_in(self, error)

    @override
    def mark_task(self) -> None:
        frame_var.set(Frame(self, is_task=True))

    def find(self, place: Place, key: str) -> "Claim | None":
        """The claim that a read through `place` gives: own and captured, then the ancestors'."""
        pair = place.pair(key)
        activation: Activation | None = place.activation
        while activation is not None:
            claim = activation.claims.get(pair) or activation.captured.get(pair)
            if claim is not None:
                return claim
            above = activation.mount
            if above is None:
                return None
            above = above.resolver or above
            if above.realms.get(key) != pair[0]:
                return None
            activation = above.activation
        return None

    def reader(self) -> Node:
        """The fiber whose declarations count here; a scope reads as the plugin that made it."""
        activation = self
        while activation.fiber.transparent and activation.mount is not None:
            activation = (activation.mount.resolver or activation.mount).activation
        return activation.fiber

    def release(self) -> None:
        """The activation has ended: let the providers of what it captured go on."""
        if self.captured:
            captured, self.captured = self.captured, {}
            for claim in captured.values():
                claim.dependent_ended(self)


class Claim(Handle):
    """One live `provide`; dependents unwind before its withdrawal is complete."""

    def __init__(
        self,
        place: Place,
        key: str,
        value: object,
        available: Callable[[Place], bool] | None,
        table: "Claims",
    ) -> None:
        self._owner = place.activation
        self.place = place
        self.key = key
        self.pair = place.pair(key)
        self.value = value
        self.available = available
        self.id = next(place.activation.kernel.uids)
        self.public = False
        self.live = True
        self.dependents: dict[Activation, None] = {}
        self.cached_in: WeakSet[object] | None = None
        self._table = table

    @property
    @override
    def label(self) -> str:
        return f"service {self.key!r}"

    def cache_in(self, context: object) -> None:
        """A context keeps the service as an attribute, until this claim ends."""
        if self.cached_in is None:
            self.cached_in = WeakSet()
        self.cached_in.add(context)

    @property
    def fiber(self) -> Node:
        """The providing fiber."""
        return self.place.activation.fiber

    def visible_to(self, place: Place) -> bool:
        """Whether a fiber mounted at `place` may capture this claim."""
        return (self.public or self._is_above(place)) and self.is_available(place)

    def is_available(self, place: Place) -> bool:
        """Ask the availability predicate; raising counts as absent and is reported."""
        if self.available is None:
            return True
        try:
            return self.available(place)
        except Exception as error:  # noqa: BLE001  # a provider's predicate cannot stop dependents
            self.fiber.report(error, f"availability of {self.key!r}")
            return False

    def _is_above(self, place: Place | None) -> bool:
        while place is not None:
            if place.activation is self.place.activation:
                return True
            place = place.activation.mount
        return False

    def hide(self) -> None:
        """Stop being visible, free the pair, and have every dependent unwind."""
        if not self.live:
            return
        self.live = False
        self._table.remove(self)
        for activation in list(self.dependents):
            activation.fiber.lose()

    def dependent_ended(self, activation: Activation) -> None:
        """One dependent has unwound."""
        self.dependents.pop(activation, None)
        if not self.dependents and not self.live:
            if self._waits:
                self._waits = False
                self._end()
                self._finish()
            self.fiber.kernel.touch(self.fiber)

    _waits = False
    simple = True

    @override
    def would_hang(self) -> bool:
        return super().would_hang() or any(
            caller_behind(activation.fiber, going_down=True) for activation in self.dependents
        )

    @override
    def _begin(self) -> Rest:
        self.hide()
        if self.dependents:
            self._waits = True
            return "pending"
        self._end()
        return None

    def _end(self) -> None:
        claims = self.place.activation.claims
        if claims.get(self.pair) is self:
            del claims[self.pair]
        if self.cached_in is not None:
            cached, self.cached_in = self.cached_in, None
            for context in list(cached):
                context.__dict__.pop(self.key, None)


def lifecycle_frame() -> Frame | None:
    """The frame of the running code if a fiber's progress waits for that code."""
    frame = frame_var.get()
    if frame is None or frame.is_task:
        return None
    activation = frame.activation
    fiber = activation.fiber
    if fiber.activation is not activation:
        return None
    running = activation.phase == "running" or fiber.state is FiberState.UNLOADING
    return frame if running else None


def caller_behind(start: Node, *, going_down: bool) -> Node | None:
    """The fiber of the running code, if `start` can only come to rest after that code.

    A fiber that goes down waits for its children and its dependents; one that loads waits for
    what its body awaits. A body that runs is cancelled by a teardown, so that is no wait.
    """
    frame = lifecycle_frame()
    if frame is not None:
        fiber = frame.activation.fiber
        running = frame.activation.phase == "running"
        if any(
            node is fiber and not (down and running) for node, down in _waits(start, going_down)
        ):
            return fiber
    for handle in _within.get():
        owner = handle._owner
        if isinstance(owner, Activation) and (owner.fiber, True) in _waits(start, going_down):
            return owner.fiber
    return None


def _waits(start: Node, going_down: bool) -> Iterator[tuple[Node, bool]]:
    """What a fiber waits for, itself included, and whether by going down."""
    seen: set[tuple[Node, bool]] = set()
    todo = [(start, going_down)]
    while todo:
        node, down = todo.pop()
        down = down or node.state is FiberState.UNLOADING
        if (node, down) in seen:
            continue
        seen.add((node, down))
        yield node, down
        if down:
            todo += [(child, True) for child in node.fibers_below()]
            for claim in node.activation.claims.values():
                todo += [(activation.fiber, True) for activation in claim.dependents]
        todo += [(awaited, False) for awaited in node.activation.frame.awaiting]


class Claims:
    """All live claims of a root, and which fibers require which pair."""

    def __init__(self) -> None:
        self._live: dict[Pair, Claim] = {}
        self._wanted: dict[Pair, dict[Node, None]] = {}

    def add(self, claim: Claim) -> None:
        """Enter a claim, or raise `ServiceConflict`."""
        holder = self._live.get(claim.pair)
        if holder is not None:
            raise ServiceConflict(claim.key, holder.fiber.name)
        self._live[claim.pair] = claim

    def remove(self, claim: Claim) -> None:
        """Free the pair of a claim."""
        if self._live.get(claim.pair) is claim:
            del self._live[claim.pair]

    def pairs(self) -> list[Pair]:
        """All pairs that are claimed."""
        return list(self._live)

    def get(self, pair: Pair) -> Claim | None:
        """The live claim of a pair."""
        return self._live.get(pair)

    def want(self, pair: Pair, fiber: Node) -> None:
        """Have a fiber looked at when the pair changes."""
        self._wanted.setdefault(pair, {})[fiber] = None

    def unwant(self, pair: Pair, fiber: Node) -> None:
        """The end of `want`."""
        fibers = self._wanted.get(pair)
        if fibers is not None:
            fibers.pop(fiber, None)
            if not fibers:
                del self._wanted[pair]

    def changed(self, pair: Pair) -> None:
        """Have every fiber that requires the pair looked at."""
        for fiber in self._wanted.get(pair, ()):
            fiber.kernel.touch(fiber)

    def changed_key(self, key: str) -> None:
        """The availability of a key changed, in whatever realm."""
        for pair, fibers in list(self._wanted.items()):
            if pair[1] == key:
                for fiber in fibers:
                    fiber.recheck()
