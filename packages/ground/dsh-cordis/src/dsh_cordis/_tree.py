"""What all contexts of one root share: kernel, claims, listeners and mounted plugins."""

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from dsh_brand import error_chain
from dsh_cordis import _dispatch
from dsh_cordis._activation import Claims, Node, Place
from dsh_cordis._dispatch import UNKEYED, Hot, Listener, Route, Row
from dsh_cordis._kernel import Driven, Kernel
from dsh_cordis.errors import ScopeError
from dsh_cordis.events import Event, Mode

if TYPE_CHECKING:
    # structlog is imported at the first logged error; it brings asyncio and a tenth of a second.
    from structlog.typing import FilteringBoundLogger


class Tree(Kernel):
    """The kernel of a root, and what its contexts share beside it."""

    events: ClassVar[dict[str, Callable[..., Event]]] = {}
    """The kernel's own events by name, entered by the module above that declares them."""

    def __init__(self, make_context: "Callable[[Tree, Place], object]") -> None:
        super().__init__()
        self.claims = Claims()
        self.rows: dict[str, Row] = {}
        self.hot_emits: Hot = {}
        self.hot_others: Hot = {}
        self.unheard: Hot = {}
        self.failed: dict[Node, None] = {}
        self.make_context = partial(make_context, self)
        self.root: object
        self.root_fiber: Node

    def fibers(self) -> list[Node]:
        """All mounted fibers, oldest first; the root is none."""
        return sorted(self.root_fiber.subtree()[1:], key=lambda fiber: fiber.uid or 0)

    def failures(self) -> list[Exception]:
        """The errors of all FAILED fibers, oldest first; one that several share counts once."""
        failed = sorted(self.failed, key=lambda fiber: fiber.uid or 0)
        errors = [fiber.error for fiber in failed if fiber.error is not None]
        return list({id(error): error for error in errors}.values())

    # What the state machine asks for

    def announce_mount(self, fiber: Node) -> None:
        """Tell observers of a new fiber; what one raises vetoes the mount."""
        row = self.rows.get("internal/plugin")
        if row is not None:
            _dispatch.emit(self.events["internal/plugin"](fiber), row.listeners())

    def tell(self, name: str, *fields: object) -> None:
        """Announce what happened in the kernel, every observer contained."""
        row = self.rows.get(name)
        if row is None:
            return
        event = self.events[name](*fields)
        for listener in row.listeners():
            try:
                _dispatch.emit(event, (listener,))
            except Exception as error:  # noqa: BLE001  # an observer must not stop the kernel
                _log_error(error, listener.activation.fiber.name, f"observer of {name!r}")

    @override
    def report(self, error: Exception, fiber: Driven, label: str) -> None:
        """Log an error and deliver it; contained."""
        _log_error(error, fiber.name, label)
        self.tell("internal/error", error, fiber, label)

    def interpolate(self, fiber: Node, raw: object) -> object:
        """Run the `internal/config` chain."""
        row = self.rows.get("internal/config")
        if row is None:
            return raw
        event = self.events["internal/config"](fiber, raw)
        return _dispatch.waterfall(event, row.listeners(), lambda: raw)

    def take_over(
        self, fiber: Node, config: object, default: Callable[[], Awaitable[None]]
    ) -> Callable[[], Awaitable[None]] | None:
        """The `internal/update` chain around `default`, or None when nobody hooks it."""
        row = self.rows.get("internal/update")
        admitted = row.listeners() if row is not None else ()
        hooks = [
            each for each in admitted if each.everywhere or each.activation is fiber.activation
        ]
        if not hooks:
            return None
        hooks.sort(key=lambda each: each.activation is not fiber.activation)  # its own come first
        event = self.events["internal/update"](fiber, config)
        return partial(_dispatch.waterfall, event, hooks, default)

    # Dispatch

    def add_row(self, event: str) -> Row:
        """A place for the first listener of an event name."""
        row = self.rows[event] = Row(self.hot_emits, self.hot_others, self.unheard)
        return row

    def admitted(self, event: Event, mode: Mode, target: Route | None) -> tuple[Listener, ...]:
        """Decide, once and before any runs, which listeners take part.

        Raises:
            TypeError: The event has another mode.
            ScopeError: A scoped event without its keyed target.
        """
        if event.mode != mode:
            raise TypeError(f"{event.name!r} is a {event.mode} event; it cannot go out as {mode}")
        key = _key_of(event, target)
        observers = self.rows.get("internal/dispatch")
        observed = observers.listeners() if observers is not None else ()
        if observed and not event.name.startswith("internal/"):
            _dispatch.emit(self.events["internal/dispatch"](mode, event, target), observed)
        row = self.rows.get(event.name)
        listeners: tuple[Listener, ...] = ()
        if row is not None:
            listeners = row.listeners() if key is UNKEYED else row.reached_from(key)
        if target is not None:
            admits = target.admits
            if admits is None:
                return listeners
            return tuple(each for each in listeners if each.everywhere or admits(each.ctx))
        if not observed and (key is UNKEYED or row is None or not row.tagged):
            # Every row clears this when it changes, so what stands in it is true. A key that
            # the payload names does not matter where no listener is tagged.
            (self.hot_emits if mode == "emit" else self.hot_others)[type(event)] = listeners
        return listeners


def _key_of(event: Event, target: Route | None) -> object:
    """The scope key of a dispatch: the payload's subject, or the target's key."""
    key = UNKEYED if target is None else target.key
    if event.subject is None:
        if event.scoped and key is UNKEYED:
            raise ScopeError(
                f"{event.name!r} is scoped; dispatch it with target=Target(key), or Target(None) "
                "for listeners outside all scopes"
            )
        return key
    own: object = getattr(event, event.subject)
    if key is not UNKEYED and key is not own:
        raise ScopeError(f"the target of {event.name!r} must be keyed by its {event.subject!r}")
    return own


def _log_error(error: Exception, fiber: str, label: str) -> None:
    try:
        _log(error, fiber, label)
    except Exception as failure:  # noqa: BLE001  # a broken logger must not stop the kernel
        failure.add_note(f"raised by the logger for an error of {fiber!r} ({label}): {error!r}")
        sys.excepthook(type(failure), failure, failure.__traceback__)


def _log(error: Exception, fiber: str, label: str) -> None:
    from traceback import format_exception

    import structlog  # brings asyncio; only an error needs either

    # The text of the traceback, not `exc_info`: pretty renderers print locals, secrets included.
    trace = "".join(format_exception(error))
    log: FilteringBoundLogger = structlog.get_logger("dsh_cordis")
    log.error("fiber.error", fiber=fiber, where=label, error=error_chain(error), exception=trace)
