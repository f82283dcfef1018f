"""Who dispatches and who hears an event, found in the sources.

A function that builds a payload dispatches it: that also finds dispatches through helpers. So does
one that hands the class on by keyword, to be built elsewhere. A function that passes a payload
class to a method named `on` listens.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from typing_extensions import override
from workspace import Package

from catalog.model import Event, EventUse

Classes = Mapping[tuple[str, str], str]
"""Event names by package and class name."""


class UseVisitor(ast.NodeVisitor):
    """Collects the uses of one module."""

    def __init__(self, module: str, classes: Classes) -> None:
        self.module = module
        self.package = module.split(".")[0]
        self.classes = classes
        self.scope: list[str] = []
        self.imported: dict[str, tuple[str, str]] = {}
        self.modules: dict[str, str] = {}
        self.producers: set[tuple[str, str]] = set()
        self.consumers: set[tuple[str, str]] = set()

    def event_of(self, node: ast.expr) -> str | None:
        """The event that an expression names, if it names one."""
        if isinstance(node, ast.Name):
            return self.classes.get(self.imported.get(node.id, (self.package, node.id)))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            package = self.modules.get(node.value.id, "")
            return self.classes.get((package, node.attr))
        return None

    def note(self, into: set[tuple[str, str]], node: ast.expr) -> None:
        """Record the place that uses the event; private names are left out, they change often."""
        event = self.event_of(node)
        if event is not None:
            private = (index for index, name in enumerate(self.scope) if name.startswith("_"))
            shown = self.scope[: next(private, None)]
            into.add((event, ".".join([self.module, *shown])))

    @override
    def visit_Call(self, node: ast.Call) -> None:
        self.note(self.producers, node.func)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "on" and node.args:
            self.note(self.consumers, node.args[0])
        for keyword in node.keywords:
            self.note(self.producers, keyword.value)
        self.generic_visit(node)

    @override
    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        source = self.package if node.level else (node.module or "").split(".")[0]
        for name in node.names:
            self.imported[name.asname or name.name] = (source, name.name)
            self.modules[name.asname or name.name] = source

    @override
    def visit_Import(self, node: ast.Import) -> None:
        for name in node.names:
            self.modules[name.asname or name.name] = name.name.split(".")[0]

    @override
    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            self.scope.append(node.name)
            super().visit(node)
            self.scope.pop()
        else:
            super().visit(node)


def module_name(path: Path, source: Path) -> str:
    """Dotted name of a module file."""
    parts = path.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def find_uses(packages: Iterable[Package], events: Mapping[str, list[Event]]) -> list[EventUse]:
    """Producers and consumers of each event; `events` are the events by import name."""
    classes = {
        (package, event.name): event.event for package, found in events.items() for event in found
    }
    producers: defaultdict[str, set[str]] = defaultdict(set)
    consumers: defaultdict[str, set[str]] = defaultdict(set)
    for package in packages:
        for path in sorted(package.source.rglob("*.py")):
            visitor = UseVisitor(module_name(path, package.source), classes)
            if "testing" in visitor.module.split("."):
                continue
            visitor.visit(ast.parse(path.read_text(encoding="utf-8")))
            for event, place in visitor.producers:
                producers[event].add(place)
            for event, place in visitor.consumers:
                consumers[event].add(place)
    return [
        EventUse(event, tuple(sorted(producers[event])), tuple(sorted(consumers[event])))
        for event in sorted(classes.values())
    ]
