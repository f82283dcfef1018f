"""Which loaded modules import which, read from their source."""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path


def loaded_modules(roots: Sequence[Path]) -> dict[str, Path]:
    """The imported modules whose source lies below one of some folders."""
    found: dict[str, Path] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py"):
            path = Path(file).resolve()
            if any(path.is_relative_to(root) for root in roots):
                found[name] = path
    return found


def reaching(loaded: Mapping[str, Path], targets: Iterable[str]) -> set[str]:
    """The modules whose imports reach one of the targets, these included."""
    importers: dict[str, set[str]] = {}
    for name in loaded:
        for imported in imports_of(name, loaded):
            importers.setdefault(imported, set()).add(name)
    return _closure(targets, importers)


def reached_from(loaded: Mapping[str, Path], sources: Iterable[str]) -> set[str]:
    """The modules that the imports of some reach, these included."""
    return _closure(sources, {name: imports_of(name, loaded) for name in loaded})


def _closure(start: Iterable[str], edges: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    todo = list(start)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += edges.get(name, ())
    return found


def imports_of(name: str, loaded: Mapping[str, Path]) -> set[str]:
    """The loaded modules that a module imports, the packages on the way included.

    Of a file that cannot be parsed just now nothing is known.
    """
    path = loaded[name]
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return set()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    named = {part for node in ast.walk(tree) for part in _named(node, package)}
    found = {above for part in (*named, name) for above in _with_packages(part)}
    return {each for each in found if each in loaded and each != name}


def _named(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parts = package.split(".")
            parts = parts[: len(parts) - node.level + 1]
            base = ".".join([*parts, base] if base else parts)
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)


def _with_packages(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]
