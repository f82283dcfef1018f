"""Read services, events and session events from the sources, without importing them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import griffe
from workspace import Package

from catalog.docstrings import described, first_docstring, one_line, raised, returned, text_of
from catalog.model import Event, Method, PackageEntry, Parameter, Service, SessionEvent, Symbol

SUBJECT = "The subject: the event reaches the listeners in its scope."
MODES = ("Emit", "Parallel", "Serial", "Bail", "Waterfall", "SyncWaterfall")


def load(packages: list[Package]) -> griffe.GriffeLoader:
    """Load all packages statically into one collection, so that bases resolve across them."""
    loader = griffe.GriffeLoader(
        search_paths=[package.folder / "src" for package in packages],
        docstring_parser="google",
        docstring_options={"warnings": False},
        allow_inspection=False,
    )
    for package in packages:
        loader.load(package.import_name, try_relative_path=False)
    loader.resolve_aliases(implicit=True, external=False)
    return loader


def public_classes(module: griffe.Module) -> Iterator[griffe.Class]:
    """Classes defined in a package, except private ones and those of its testing modules."""
    for member in module.members.values():
        if member.is_alias:
            continue
        if isinstance(member, griffe.Module) and member.name != "testing":
            yield from public_classes(member)
        elif isinstance(member, griffe.Class) and not member.name.startswith("_"):
            yield member


def lineage(cls: griffe.Class) -> list[griffe.Class]:
    """The class and its bases in resolution order, as far as they are ours."""
    return [cls, *cls.mro()]


def is_kernel(cls: griffe.Class, name: str) -> bool:
    """Whether this is the kernel's class of that name."""
    return cls.name == name and cls.path.split(".")[0] == "dsh_cordis"


def literal(cls: griffe.Class, name: str) -> object:
    """The literal value of a class attribute, or `None`."""
    member = cls.members.get(name)
    if not isinstance(member, griffe.Attribute) or member.value is None:
        return None
    try:
        value: object = ast.literal_eval(str(member.value))
    except (ValueError, SyntaxError):
        return None
    return value


def inherited_literal(cls: griffe.Class, name: str) -> object:
    """The literal value of a class attribute, own or inherited."""
    values = (literal(base, name) for base in lineage(cls))
    return next((value for value in values if value is not None), None)


class PackageReader:
    """Reads one package and collects what its sources leave unsaid."""

    def __init__(self, package: Package, root: Path, loader: griffe.GriffeLoader) -> None:
        self.package = package
        self.root = root
        self.module = loader.modules_collection.get_member(package.import_name)
        self.problems: list[str] = []

    def read(self) -> PackageEntry:
        """Everything the package adds to the catalog."""
        services: list[Service] = []
        events: list[Event] = []
        session_events: list[SessionEvent] = []
        for cls in public_classes(self.module):
            bases = lineage(cls)[1:]
            if any(is_kernel(base, "Service") for base in bases):
                services.extend(self.service(cls))
            elif any(is_kernel(base, "Event") for base in bases):
                events.extend(self.event(cls))
            elif any(base.name == "SessionEventData" for base in bases):
                session_events.extend(self.session_event(cls))
        return PackageEntry(
            self.package.dist,
            self.package.import_name,
            self.package.description,
            tuple(sorted(services, key=lambda service: (service.key, service.name))),
            tuple(sorted(events, key=lambda event: event.event)),
            tuple(sorted(session_events, key=lambda event: event.type)),
        )

    def symbol(self, cls: griffe.Class) -> Symbol:
        """Name and file of a class."""
        file = Path(str(cls.filepath)).resolve().relative_to(self.root)
        return Symbol(cls.path, file.as_posix())

    def require_text(self, cls: griffe.Class, what: str) -> str:
        """The class's own docstring; a missing one is a problem."""
        text = text_of(cls.docstring)
        if not text:
            self.problems.append(f"{cls.path}: {what} has no docstring")
        return text

    def service(self, cls: griffe.Class) -> list[Service]:
        """The service of a class, unless it is a base without a key."""
        key = inherited_literal(cls, "key")
        if not isinstance(key, str):
            return []
        seam = next((base for base in lineage(cls)[1:] if literal(base, "key") == key), None)
        return [
            Service(
                key,
                cls.name,
                self.symbol(cls),
                self.require_text(cls, f"service {key!r}"),
                tuple(self.methods(cls, seam)),
                implements=seam.path if seam else None,
            )
        ]

    def methods(self, cls: griffe.Class, seam: griffe.Class | None) -> Iterator[Method]:
        """Public methods and properties; of an implementation only what its seam lacks."""
        bases = lineage(cls)
        kernel = next(index for index, base in enumerate(bases) if is_kernel(base, "Service"))
        known = {name for base in bases[kernel:] for name in base.members}
        if seam is not None:
            known |= {name for base in lineage(seam) for name in base.members}
        for base in bases[:kernel]:
            for name, member in base.members.items():
                if name.startswith("_") or name in known or member.is_alias:
                    continue
                known.add(name)
                yield from self.method(cls, name, member)

    def method(
        self, cls: griffe.Class, name: str, member: griffe.Object | griffe.Alias
    ) -> Iterator[Method]:
        """One member of a service, when it is a method or a property."""
        is_property = isinstance(member, griffe.Attribute) and "property" in member.labels
        if not is_property and not isinstance(member, griffe.Function):
            return
        overridden = (base.members[name] for base in lineage(cls) if name in base.members)
        docstring = first_docstring(overridden)
        if docstring is None:
            self.problems.append(f"{cls.path}.{name}: public method of a service, no docstring")
        descriptions = described(docstring)
        yield Method(
            name,
            signatures(member),
            text_of(docstring),
            tuple(Parameter(item, "", text) for item, text in descriptions.items()),
            returned(docstring),
            raised(docstring),
            is_property=is_property,
        )

    def event(self, cls: griffe.Class) -> list[Event]:
        """The event of a class, unless it is a base without a name."""
        name = literal(cls, "name")
        if not isinstance(name, str):
            return []
        bases = lineage(cls)
        mode = next((mode for mode in MODES for base in bases if is_kernel(base, mode)), None)
        if mode is None:
            self.problems.append(f"{cls.path}: event {name!r} has no mode; derive it from one")
        subject = inherited_literal(cls, "subject")
        return [
            Event(
                name,
                cls.name,
                mode or "?",
                result_of(bases, mode) if mode else None,
                subject if isinstance(subject, str) else None,
                inherited_literal(cls, "vetoing") is True,
                self.symbol(cls),
                self.require_text(cls, f"event {name!r}"),
                tuple(self.fields(cls, f"event {name!r}")),
            )
        ]

    def session_event(self, cls: griffe.Class) -> list[SessionEvent]:
        """The session event of a class, unless it is a base without a type."""
        kind = literal(cls, "type")
        if not isinstance(kind, str):
            return []
        what = f"session event {kind!r}"
        fields = [
            Parameter(camel(field.name), field.type, field.description, field.default)
            for field in self.fields(cls, what)
        ]
        surface = inherited_literal(cls, "surface") is True
        text = self.require_text(cls, what)
        return [SessionEvent(kind, cls.name, surface, self.symbol(cls), text, tuple(fields))]

    def fields(self, cls: griffe.Class, what: str) -> Iterator[Parameter]:
        """Payload fields, those of the bases first; each needs a description."""
        bases = lineage(cls)
        sections = [described(base.docstring) for base in bases]
        found: dict[str, griffe.Attribute] = {}
        for base in reversed(bases):
            if not is_foundation(base):
                found.update(own_fields(base))
        if subject := inherited_literal(cls, "subject"):
            sections.append({str(subject): SUBJECT})
        for name, attribute in found.items():
            description = text_of(attribute.docstring) or next(
                (section[name] for section in sections if name in section), ""
            )
            if not description:
                self.problems.append(f"{cls.path}.{name}: field of {what} has no description")
            default = None if attribute.value is None else str(attribute.value)
            yield Parameter(name, str(attribute.annotation), one_line(description), default)


def signatures(member: griffe.Object | griffe.Alias) -> tuple[str, ...]:
    """How a method is called: one line, or one for each overload."""
    if not isinstance(member, griffe.Function):
        annotation = member.annotation if isinstance(member, griffe.Attribute) else None
        return (f"{member.name}: {annotation}",)
    prefix = "async def " if "async" in member.labels else "def "
    forms = member.overloads or [member]
    return tuple(prefix + form.signature() for form in forms)


def result_of(bases: list[griffe.Class], mode: str) -> str | None:
    """The type argument of the mode, such as `Retry | None` of `Waterfall[Retry | None]`."""
    for cls in bases:
        for base in cls.bases:
            if isinstance(base, griffe.ExprSubscript) and str(base.left).endswith(mode):
                return str(base.slice)
    return None


def is_foundation(cls: griffe.Class) -> bool:
    """Whether a base belongs to the kernel or the wire types, whose fields are not payload."""
    ours = ("Event", "SessionEventData", *MODES)
    return cls.name in ours or cls.path.split(".")[0] == "dsh_brand"


def own_fields(cls: griffe.Class) -> Iterator[tuple[str, griffe.Attribute]]:
    """Annotated attributes that are no class variables."""
    for name, member in cls.members.items():
        if not isinstance(member, griffe.Attribute) or name.startswith("_"):
            continue
        if member.annotation is not None and "instance-attribute" in member.labels:
            yield name, member


def camel(name: str) -> str:
    """The JSON name of a field."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
