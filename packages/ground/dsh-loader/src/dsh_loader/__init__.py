"""Composes plugins from configuration rows, profiles and entry points."""

from importlib import import_module
from typing import TYPE_CHECKING

from dsh_loader.boot import mount_rows
from dsh_loader.errors import (
    BootError,
    ExpressionError,
    LoaderError,
    PluginNotFound,
    PluginRefused,
    ReloadError,
    RowError,
    RowsError,
)
from dsh_loader.events import (
    ConfigUpdateFailed,
    ModulesChanged,
    ModulesReloaded,
    ReloadFailed,
    RestartRequired,
)
from dsh_loader.plugins import GROUP, InstalledPlugin, installed_plugins, resolve_plugin

if TYPE_CHECKING:
    from dsh_loader.layers import Profile, compose, dump_rows
    from dsh_loader.patches import Patch, Patched, apply_patches, load_layer
    from dsh_loader.rows import Row, load_rows
    from dsh_loader.tree import MountedRow, RowTree

__all__ = [
    "GROUP",
    "BootError",
    "ConfigUpdateFailed",
    "ExpressionError",
    "InstalledPlugin",
    "LoaderError",
    "ModulesChanged",
    "ModulesReloaded",
    "MountedRow",
    "Patch",
    "Patched",
    "PluginNotFound",
    "PluginRefused",
    "Profile",
    "ReloadError",
    "ReloadFailed",
    "RestartRequired",
    "Row",
    "RowError",
    "RowTree",
    "RowsError",
    "apply_patches",
    "compose",
    "dump_rows",
    "installed_plugins",
    "load_layer",
    "load_rows",
    "mount_rows",
    "resolve_plugin",
]

# These bring pydantic, which costs more than all the rest; they come when they are asked for.
_LATE = {
    "Row": "rows",
    "load_rows": "rows",
    "Patch": "patches",
    "Patched": "patches",
    "apply_patches": "patches",
    "load_layer": "patches",
    "Profile": "layers",
    "compose": "layers",
    "dump_rows": "layers",
    "MountedRow": "tree",
    "RowTree": "tree",
}


def __getattr__(name: str) -> object:
    module = _LATE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"dsh_loader.{module}"), name)
