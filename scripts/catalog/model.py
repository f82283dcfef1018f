"""What the catalog knows about a package, independent of where it is written."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Symbol:
    """Where something is defined: by name, never by line."""

    path: str
    file: str


@dataclass(frozen=True)
class Parameter:
    """One described name: a parameter, a payload field, a raised error."""

    name: str
    type: str
    description: str
    default: str | None = None


@dataclass(frozen=True)
class Method:
    """One public method or property of a service."""

    name: str
    signatures: tuple[str, ...]
    text: str
    parameters: tuple[Parameter, ...] = ()
    returns: str = ""
    errors: tuple[Parameter, ...] = ()
    is_property: bool = False


@dataclass(frozen=True)
class Service:
    """A class that is reached as `ctx.<key>`."""

    key: str
    name: str
    symbol: Symbol
    text: str
    methods: tuple[Method, ...]
    implements: str | None = None
    """Path of the service class whose key it takes over, for implementations of a seam."""


@dataclass(frozen=True)
class Event:
    """A payload class; its base is its dispatch mode."""

    event: str
    name: str
    mode: str
    result: str | None
    subject: str | None
    vetoing: bool
    symbol: Symbol
    text: str
    fields: tuple[Parameter, ...]


@dataclass(frozen=True)
class SessionEvent:
    """A payload class of the session log; its fields are named as in JSON."""

    type: str
    name: str
    surface: bool
    symbol: Symbol
    text: str
    fields: tuple[Parameter, ...]


@dataclass(frozen=True)
class PackageEntry:
    """Everything one package adds to the catalog."""

    dist: str
    import_name: str
    description: str
    services: tuple[Service, ...] = ()
    events: tuple[Event, ...] = ()
    session_events: tuple[SessionEvent, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the package offers nothing that the catalog lists."""
        return not (self.services or self.events or self.session_events)


@dataclass(frozen=True)
class EventUse:
    """Who dispatches an event and who listens to it, by the name of the enclosing public part."""

    event: str
    producers: tuple[str, ...]
    consumers: tuple[str, ...]


@dataclass(frozen=True)
class Catalog:
    """The whole catalog with what is wrong with it."""

    packages: tuple[PackageEntry, ...]
    uses: tuple[EventUse, ...]
    problems: tuple[str, ...] = field(default=())
