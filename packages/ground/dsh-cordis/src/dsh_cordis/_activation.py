"""What one run of a fiber holds: its stack, its claims, what it captured, and where it stands."""

from collections.abc import Callable, Iterator, Mapping
from contextvars import Context
from enum import Enum
from functools import partial
from itertools import count
from types import TracebackType
from typing import ClassVar, Final, Literal
from weakref import WeakSet

import anyio
import msgspec
from typing_extensions import override

from dsh_cordis._gate import Gate
from dsh_cordis._kernel import Kernel
from dsh_cordis._plugin import Definition
from dsh_cordis.errors import InactiveError, ServiceConflict
from dsh_cordis.handle import Handle, Record, Stack, lifecycle, undoing

Pair = tuple[object, str]
"""A realm and a key; the default realm is None."""

NOTHING: Final[Mapping[str, object]] = {}


class FiberState(Enum):
    """The states of a fiber."""

    PENDING = "pending"
    LOADING = "loading"
    ACTIVE = "active"
    UNLOADING = "unloading"
    FAILED = "failed"
    DISPOSED = "disposed"


class Node(Handle, kw_only=True):
    """What an activation knows of its fiber."""

    kernel: Kernel
    definition: Definition
    mount: "Place | None"
    required: dict[str, object] = msgspec.field(default_factory=dict)
    uid: int | None = None
    state: FiberState = FiberState.PENDING
    error: Exception | None = None
    # Made with the fiber, and again for each run.
    activation: "Activation" = None  # type: ignore[assignment]  # see above
    queued: bool = False
    _again: bool = False

    simple: ClassVar[bool] = True

    @property
    def parent(self) -> "Node | None":
        """The fiber that it is mounted on."""
        return None if self.mount is None else self.mount.activation.fiber

    @property
    def name(self) -> str:
        """The fiber's own or nearest named ancestor's name."""
        node: Node | None = self
        while node is not None:
            if node.definition.name is not None:
                return node.definition.name
            node = node.parent
        return "root"

    def subtree(self) -> "list[Node]":
        """The fiber and all fibers below it."""
        found = [self]
        for fiber in found:
            found += fiber.fibers_below()
        return found

    def fibers_below(self) -> "Iterator[Node]":
        """The child fibers, those in composites included."""
        stack = list(self.activation.stack.items)
        while stack:
            handle = stack.pop()
            if isinstance(handle, Node):
                yield handle
            else:
                stack.extend(handle.children())

    def advance(self) -> None:
        """See `Driven`."""
        raise NotImplementedError

    def lose(self) -> None:
        """A captured claim is being withdrawn: unwind and look for another."""
        # An activation that is unwinding already keeps its reason; a failed one stays failed.
        if not self.activation.closed:
            self._again = True
            self.kernel.touch(self)

    def recheck(self) -> None:
        """The availability of a required claim may have changed."""
        place = self.activation.place
        if all(claim.is_available(place) for claim in self.activation.captured.values()):
            self.kernel.touch(self)
        else:
            self.lose()


class Place(Record, eq=False):
    """Where a context stands: its activation, realms, scope, intercepts, and how it resolves."""

    activation: "Activation"
    realms: Mapping[str, object] = NOTHING
    scope: object = None
    intercepts: tuple[tuple[str, object], ...] = ()
    resolver: "Place | None" = None
    service: str | None = None

    def through(self, claim: "Claim") -> "Place":
        """Where a view of a service stands: it owns as this place, resolves as the provider."""
        provider = claim.place.resolver or claim.place
        return Place(self.activation, self.realms, self.scope, self.intercepts, provider, claim.key)

    def pair(self, key: str) -> Pair:
        """The pair that a key means here."""
        return (self.realms.get(key), key)


class Activation(Record, eq=False, weakref=True):
    """One run of a fiber, from the moment something can be registered on it."""

    fiber: Node
    kernel: Kernel
    mount: Place | None
    variables: Context
    place: Place = None  # type: ignore[assignment]  # made with it
    stack: Stack = None  # type: ignore[assignment]  # made with it
    ctx: object = None
    claims: dict[Pair, "Claim"] = msgspec.field(default_factory=dict)
    captured: dict[Pair, "Claim"] = msgspec.field(default_factory=dict)
    phase: Literal["new", "running", "done"] = "new"
    """Of the body."""

    closed: bool = False
    busy: bool = False
    """While a task unwinds it."""

    error: Exception | None = None
    traceback: TracebackType | None = None
    gate: Gate | None = None
    unwind_go: "anyio.Event | None" = None
    """Has the task of the body unwind."""

    awaiting: list[Node] = msgspec.field(default_factory=list)
    """What its lifecycle code waits for."""

    inherited: list[tuple[BaseException, TracebackType | None]] = msgspec.field(
        default_factory=list
    )
    """Errors of other fibers that its lifecycle code was given."""

    def __post_init__(self) -> None:
        """Stand where the fiber is mounted, and mark what runs for this."""
        self.stack = Stack(self, self.report)
        mount = self.mount
        if mount is None:
            self.place = Place(self)
        else:
            intercepts, required = mount.intercepts, self.fiber.required
            if required:
                intercepts += tuple(item for item in required.items() if item[1] is not None)
            self.place = Place(self, mount.realms, mount.scope, intercepts)
        self.variables.run(lifecycle.set, self)

    def check(self, what: str) -> None:
        """Refuse a registration when this activation has ended."""
        if self.closed:
            raise InactiveError(self.fiber.name, what)

    def report(self, error: Exception, label: str) -> None:
        """See `Owner`."""
        self.kernel.report(error, self.fiber, label)

    def fail(self, error: Exception) -> None:
        """See `Owner`."""
        self.report(error, "background task")
        if not self.closed and self.error is None:
            self.error = error
            self.kernel.drive(self.fiber)

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
        while activation.fiber.definition.transparent and activation.mount is not None:
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

    place: Place
    key: str
    pair: Pair
    value: object
    available: Callable[[Place], bool] | None
    table: "Claims"
    id: int = msgspec.field(default_factory=partial(next, count(1)))
    """Told from all claims before, alive or not."""

    public: bool = False
    live: bool = True
    dependents: dict[Activation, None] = msgspec.field(default_factory=dict)
    cached_in: WeakSet[object] | None = None

    simple: ClassVar[bool] = True

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
            self.place.activation.report(error, f"availability of {self.key!r}")
            return False

    def _is_above(self, place: Place | None) -> bool:
        while place is not None:
            if place.activation is self.place.activation:
                return True
            place = place.activation.mount
        return False

    def hide(self) -> None:
        """Stop being visible, free the pair, and have every dependent unwind."""
        if self.live:
            self.live = False
            self.table.live.pop(self.pair, None)
            for activation in list(self.dependents):
                activation.fiber.lose()

    def dependent_ended(self, activation: Activation) -> None:
        """One dependent has unwound."""
        self.dependents.pop(activation, None)
        if not self.dependents and not self.live:
            if self._begun and not self.used:
                self._end()
                self._finish()
            self.fiber.kernel.touch(self.fiber)

    @override
    def would_hang(self) -> bool:
        return super().would_hang() or any(
            caller_behind(activation.fiber, going_down=True) for activation in self.dependents
        )

    @override
    def _undo(self) -> bool:
        self.hide()
        if self.dependents:
            return False
        self._end()
        return True

    def _end(self) -> None:
        claims = self.place.activation.claims
        if claims.get(self.pair) is self:
            del claims[self.pair]
        if self.cached_in is not None:
            cached, self.cached_in = self.cached_in, None
            for context in list(cached):
                context.__dict__.pop(self.key, None)


class Claims:
    """All live claims of a root, and which fibers require which pair."""

    def __init__(self) -> None:
        self.live: dict[Pair, Claim] = {}
        self._wanted: dict[Pair, dict[Node, None]] = {}

    def add(self, claim: Claim) -> None:
        """Enter a claim, or raise `ServiceConflict`."""
        holder = self.live.setdefault(claim.pair, claim)
        if holder is not claim:
            raise ServiceConflict(claim.key, holder.fiber.name)

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


def lifecycle_code() -> Activation | None:
    """The activation of the running code, if a fiber's progress waits for that code."""
    activation = lifecycle.get()
    if not isinstance(activation, Activation):
        return None
    fiber = activation.fiber
    if fiber.activation is not activation:
        return None
    busy = activation.phase == "running" or fiber.state is FiberState.UNLOADING
    return activation if busy else None


def caller_behind(start: Node, *, going_down: bool) -> Node | None:
    """The fiber of the running code, if `start` can only come to rest after that code.

    A fiber that goes down waits for its children and its dependents; one that loads waits for
    what its body awaits. A body that runs is cancelled by a teardown, so that is no wait.
    """
    held: list[tuple[Node, bool]] = []
    caller = lifecycle_code()
    if caller is not None:
        held += [(caller.fiber, down) for down in {False, caller.phase != "running"}]
    owners = [handle._owner for handle in undoing.get()]
    held += [(owner.fiber, True) for owner in owners if isinstance(owner, Activation)]
    behind = _waits(start, going_down) if held else ()
    return next((waiting[0] for waiting in held if waiting in behind), None)


def _waits(start: Node, going_down: bool) -> set[tuple[Node, bool]]:
    """What a fiber waits for, itself included, and whether by going down."""
    seen: set[tuple[Node, bool]] = set()
    todo = [(start, going_down)]
    while todo:
        node, down = todo.pop()
        down = down or node.state is FiberState.UNLOADING
        if (node, down) in seen:
            continue
        seen.add((node, down))
        if down:
            todo += [(child, True) for child in node.fibers_below()]
            for claim in node.activation.claims.values():
                todo += [(activation.fiber, True) for activation in claim.dependents]
        todo += [(awaited, False) for awaited in node.activation.awaiting]
    return seen
