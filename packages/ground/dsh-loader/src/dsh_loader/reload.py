"""Hot reload: changed modules are imported anew, and the rows that use them get the new plugin.

Upstream: packages/hmr of Cordis.
"""

import importlib
import importlib.util
import linecache
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from dsh_cordis import Context, Handle, Plugin
from dsh_loader._imports import loaded_modules, reached_from, reaching
from dsh_loader.errors import ReloadError
from dsh_loader.events import ModulesChanged, ModulesReloaded, ReloadFailed, RestartRequired
from dsh_loader.plugins import module_of, resolve_plugin
from dsh_loader.tree import MountedRow, RowTree
from dsh_loader.watch import Changes, in_bursts, source_changes

FIXED = frozenset({"dsh_brand", "dsh_cordis", "dsh_loader", "__main__"})
"""Packages that a running process cannot exchange."""


class HotReload:
    """Exchanges the plugins of rows when their source changes.

    A row is concerned if the imports of its module reach a changed one. All new code is imported
    before any plugin is touched; where a new plugin fails, the old one is mounted again. Rows stay
    as they are.
    """

    def __init__(
        self,
        ctx: Context,
        tree: RowTree,
        roots: Sequence[Path],
        *,
        changes: Changes | None = None,
    ) -> None:
        """Make a reloader that does not run yet.

        Args:
            ctx: Who watches; the watch ends with it.
            tree: The rows.
            roots: Folders of source; modules elsewhere are taken as fixed.
            changes: Another source of changes.
        """
        self._ctx = ctx
        self._tree = tree
        self._roots = [root.resolve() for root in roots]
        self._changes = source_changes(self._roots) if changes is None else changes

    def start(self) -> Handle:
        """Begin; the handle ends the watch and waits for a reload that runs."""
        return self._ctx.spawn(self._run, name="watch sources")

    async def _run(self) -> None:
        await in_bursts(self._changes, self.reload)

    async def reload(self, paths: Collection[Path]) -> None:
        """Take over changed files; what cannot be taken is told as `ReloadFailed`."""
        self._ctx.emit(ModulesChanged(paths=tuple(sorted(map(str, paths)))))
        loaded = loaded_modules(self._roots)
        files = {path.resolve() for path in paths}
        changed = {name for name, path in loaded.items() if path in files}
        fixed = {name for name in changed if name.partition(".")[0] in FIXED}
        if fixed:
            self._ctx.emit(RestartRequired(modules=tuple(sorted(fixed))))
        try:
            await self._take(loaded, changed - fixed)
        except ReloadError as error:
            self._ctx.emit(ReloadFailed(error=error))

    async def _take(self, loaded: Mapping[str, Path], changed: set[str]) -> None:
        affected = reaching(loaded, changed)
        rows = [row for row in self._tree.mounted() if module_of(row.use) in affected]
        if not rows:
            return
        needed = reached_from(loaded, {module_of(row.use) for row in rows})
        modules = sorted(affected & needed)
        plugins = _import_anew({name: loaded[name] for name in modules}, rows)
        errors = await self._tree.replace(plugins)
        self._ctx.emit(ModulesReloaded(modules=tuple(modules), rows=tuple(plugins)))
        for error in errors:
            self._ctx.emit(ReloadFailed(error=error))


def _import_anew(modules: Mapping[str, Path], rows: Sequence[MountedRow]) -> dict[str, Plugin]:
    """The new plugins; if anything fails the old modules are in place again."""
    _forget_compiled(modules.values())
    old = {name: sys.modules.pop(name) for name in modules if name in sys.modules}
    for name, module in old.items():
        # Else `from package import module` would find the old one as an attribute.
        parent, _, child = name.rpartition(".")
        package = sys.modules.get(parent)
        if package is not None and vars(package).get(child) is module:
            delattr(package, child)
    try:
        for name in modules:
            importlib.import_module(name)
        return {row.id: resolve_plugin(row.use) for row in rows}
    except Exception as error:
        _put_back(old, modules)
        raise ReloadError(f"new code cannot be imported: {error}", error) from error
    except BaseException:
        _put_back(old, modules)
        raise


def _forget_compiled(paths: Iterable[Path]) -> None:
    # The cache is taken for valid after an edit within one second that keeps the length.
    for path in paths:
        linecache.checkcache(str(path))
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
    importlib.invalidate_caches()


def _put_back(old: Mapping[str, ModuleType], names: Iterable[str]) -> None:
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(old)
    for name, module in old.items():
        parent, _, child = name.rpartition(".")
        if parent in sys.modules:
            setattr(sys.modules[parent], child, module)
