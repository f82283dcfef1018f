"""Catalog entries as Markdown and JSON. No line numbers: an edit elsewhere makes nothing stale."""

import json
from dataclasses import asdict

from catalog.docstrings import summary
from catalog.model import (
    Catalog,
    Event,
    EventUse,
    Method,
    PackageEntry,
    Parameter,
    Service,
    SessionEvent,
    Symbol,
)

WIDTH = 100

Row = tuple[str, ...]


def link(symbol: Symbol, up: str) -> str:
    """A link to the file of a symbol, named after the symbol."""
    return f"[`{symbol.path}`]({up}{symbol.file})"


def cell(text: str) -> str:
    """Text that does not break a table."""
    return text.replace("|", "\\|")


def summary_cell(text: str) -> str:
    """The first sentence for a table."""
    return cell(summary(text))


def table(head: Row, rows: list[Row]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def wrapped(signature: str) -> str:
    """A signature on one line, or with one parameter a line when it is too long."""
    if len(signature) <= WIDTH or "(" not in signature:
        return signature
    start = signature.index("(") + 1
    depth, parts, begin, end = 1, [], start, len(signature)
    for index in range(start, len(signature)):
        character = signature[index]
        depth += (character in "([{") - (character in ")]}")
        if depth == 0:
            end = index
            break
        if character == "," and depth == 1:
            parts.append(signature[begin:index].strip())
            begin = index + 1
    parts.append(signature[begin:end].strip())
    inner = "".join(f"    {part},\n" for part in parts if part)
    return f"{signature[:start]}\n{inner}{signature[end:]}"


def field_list(fields: tuple[Parameter, ...]) -> str:
    """Payload fields as a list."""
    lines = []
    for field in fields:
        default = "" if field.default is None else f", default `{field.default}`"
        lines.append(f"- `{field.name}` (`{field.type}`{default}): {field.description}")
    return "\n".join(lines)


def method(key: str, entry: Method) -> str:
    """One method with its signature, text, parameters, result and errors."""
    code = "\n".join(wrapped(signature) for signature in entry.signatures)
    parts = [f"#### `ctx.{key}.{entry.name}`", f"```py\n{code}\n```", entry.text]
    if entry.parameters:
        parts.append("\n".join(f"- `{item.name}`: {item.description}" for item in entry.parameters))
    if entry.returns:
        parts.append(f"Returns: {entry.returns}")
    if entry.errors:
        lines = [f"- `{item.name}`: {item.description}" for item in entry.errors]
        parts.append("Raises:\n\n" + "\n".join(lines))
    return "\n\n".join(part for part in parts if part)


def service(entry: Service, up: str) -> str:
    """One service with its methods."""
    role = link(entry.symbol, up)
    if entry.implements:
        role += f", an implementation of `{entry.implements}`; its methods are described there"
    parts = [f"### `ctx.{entry.key}`: `{entry.name}`", role, entry.text]
    return "\n\n".join([*parts, *(method(entry.key, item) for item in entry.methods)])


def mode_of(entry: Event) -> str:
    """The dispatch mode with its result type."""
    return f"{entry.mode}[{entry.result}]" if entry.result else entry.mode


def mode_cell(entry: Event) -> str:
    """The dispatch mode for a table."""
    return cell(f"`{mode_of(entry)}`")


def page_link(package: PackageEntry) -> str:
    """A link from the overview to the page of a package."""
    return f"[{package.dist}](subsystems/{package.dist}.md)"


def event(entry: Event, up: str) -> str:
    """One event with its payload."""
    facts = [f"`{mode_of(entry)}`", link(entry.symbol, up)]
    if entry.subject:
        facts.append(f"scoped to `{entry.subject}`")
    if entry.vetoing:
        facts.append("a listener that raises vetoes")
    parts = [f"### `{entry.event}`: `{entry.name}`", ", ".join(facts), entry.text]
    return "\n\n".join(part for part in [*parts, field_list(entry.fields)] if part)


def session_event(entry: SessionEvent, up: str) -> str:
    """One session event with its payload as in JSON."""
    facts = link(entry.symbol, up) + (", on the surface" if entry.surface else "")
    parts = [f"### `{entry.type}`: `{entry.name}`", facts, entry.text, field_list(entry.fields)]
    return "\n\n".join(part for part in parts if part)


def page_regions(package: PackageEntry, up: str) -> dict[str, str]:
    """The generated regions of a subsystem page."""
    return {
        "services": "\n\n".join(service(entry, up) for entry in package.services),
        "events": "\n\n".join(event(entry, up) for entry in package.events),
        "session-events": "\n\n".join(session_event(item, up) for item in package.session_events),
    }


def readme_region(package: PackageEntry) -> str:
    """The generated region of a package README: tables without links, as PyPI shows them."""
    services: list[Row] = [
        (f"`ctx.{entry.key}`", f"`{entry.name}`", summary_cell(entry.text))
        for entry in package.services
    ]
    events: list[Row] = [
        (f"`{entry.event}`", f"`{entry.name}`", mode_cell(entry), summary_cell(entry.text))
        for entry in package.events
    ]
    logged: list[Row] = [
        (f"`{entry.type}`", f"`{entry.name}`", summary_cell(entry.text))
        for entry in package.session_events
    ]
    tables = [
        services and table(("service", "class", "what it is"), services),
        events and table(("event", "class", "mode", "when"), events),
        logged and table(("session event", "class", "what it records"), logged),
    ]
    filled = "\n\n".join(text for text in tables if isinstance(text, str))
    return filled or "This package offers no service and declares no event."


def index_regions(catalog: Catalog) -> dict[str, str]:
    """The regions of the overview page: all services, the event map, all session events."""
    services: list[Row] = [
        (f"`ctx.{entry.key}`", f"`{entry.name}`", page_link(package), summary_cell(entry.text))
        for package in catalog.packages
        for entry in package.services
    ]
    logged: list[Row] = [
        (f"`{entry.type}`", page_link(package), summary_cell(entry.text))
        for package in catalog.packages
        for entry in package.session_events
    ]
    return {
        "services": table(("service", "class", "package", "what it is"), sorted(services)),
        "events": event_map(catalog),
        "session-events": table(("session event", "package", "what it records"), sorted(logged)),
    }


def place_cell(places: tuple[str, ...]) -> str:
    """Functions for a table."""
    return ", ".join(f"`{place}`" for place in places) or "none here"


def event_map(catalog: Catalog) -> str:
    """Who dispatches and who hears each event."""
    uses = {use.event: use for use in catalog.uses}
    rows: list[Row] = []
    for package in catalog.packages:
        for entry in package.events:
            use = uses.get(entry.event, EventUse(entry.event, (), ()))
            places = (place_cell(use.producers), place_cell(use.consumers))
            rows.append((f"`{entry.event}`", mode_cell(entry), page_link(package), *places))
    return table(("event", "mode", "package", "dispatched in", "heard in"), sorted(rows))


def as_json(catalog: Catalog) -> str:
    """The catalog for programs."""
    content = {
        "packages": [asdict(package) for package in catalog.packages],
        "event_map": [asdict(use) for use in catalog.uses],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
