"""Composes plugins from configuration rows, profiles and entry points."""

from importlib import import_module
from typing import TYPE_CHECKING

from dsh_loader.boot import mount_rows
from dsh_loader.errors import BootError, LoaderError, PluginNotFound, PluginRefused, RowsError
from dsh_loader.plugins import GROUP, InstalledPlugin, installed_plugins, resolve_plugin

if TYPE_CHECKING:
    from dsh_loader.rows import Row, load_rows

__all__ = [
    "GROUP",
    "BootError",
    "InstalledPlugin",
    "LoaderError",
    "PluginNotFound",
    "PluginRefused",
    "Row",
    "RowsError",
    "installed_plugins",
    "load_rows",
    "mount_rows",
    "resolve_plugin",
]


def __getattr__(name: str) -> object:
    # Rows bring pydantic, which costs more than all the rest; they come when they are asked for.
    if name in ("Row", "load_rows"):
        return getattr(import_module("dsh_loader.rows"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
