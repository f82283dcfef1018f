"""Finds plugins by what a row writes in `use`.

An installed distribution offers plugins through entry points of the group `dsh.plugins`: the name
is what rows use, the value is `module` or `module:attribute`.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from inspect import isroutine
from typing import cast

import msgspec

from dsh_cordis import Plugin
from dsh_loader.errors import PluginNotFound, PluginRefused

GROUP = "dsh.plugins"


class InstalledPlugin(msgspec.Struct, frozen=True):
    """A plugin that an installed distribution offers."""

    name: str
    """What rows write in `use`."""

    dist: str
    """The distribution that offers it."""

    version: str
    """The version of the distribution."""

    value: str
    """Where it is: `module` or `module:attribute`."""


def installed_plugins() -> list[InstalledPlugin]:
    """All plugins of the group `dsh.plugins`, by name; nothing is imported."""
    found = {_installed(point) for point in entry_points(group=GROUP)}
    return sorted(found, key=lambda plugin: (plugin.name, plugin.dist))


def _installed(point: EntryPoint) -> InstalledPlugin:
    dist = point.dist
    return InstalledPlugin(
        name=point.name,
        dist=dist.name if dist is not None else "",
        version=dist.version if dist is not None else "",
        value=point.value,
    )


def module_of(use: str) -> str:
    """The name of the module that a row's `use` is imported from.

    Raises:
        PluginNotFound: Nothing of that name is installed.
    """
    return (use if ":" in use else _value_of(use)).partition(":")[0]


def resolve_plugin(use: str) -> Plugin:
    """Import the plugin that a row uses.

    Args:
        use: An installed plugin's name, or `module:attribute`.

    Raises:
        PluginNotFound: Nothing of that name is installed, or its import fails.
        PluginRefused: The attribute is a bare callable whose module declares `inject` or
            `Config` beside it, which would be lost.
    """
    return _load(use, use if ":" in use else _value_of(use))


def _value_of(use: str) -> str:
    installed = installed_plugins()
    matching = [plugin for plugin in installed if plugin.name == use]
    if len({plugin.value for plugin in matching}) == 1:
        return matching[0].value
    if matching:
        offers = ", ".join(f"{plugin.dist} ({plugin.value})" for plugin in matching)
        raise PluginNotFound(use, f"plugin {use!r} is offered by several packages: {offers}")
    names = [plugin.name for plugin in installed]
    near = get_close_matches(use, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"installed are: {', '.join(names) or 'none'}"
    raise PluginNotFound(
        use,
        f"no installed plugin is named {use!r}; {hint} (install the package that offers it, "
        "or write module:attribute)",
    )


def _load(use: str, value: str) -> Plugin:
    module_name, _, attribute = value.partition(":")
    try:
        module = import_module(module_name)
    except Exception as error:  # importing runs foreign code, whatever it raises is the cause
        message = f"plugin {use!r}: importing {module_name!r} failed: {error}"
        raise PluginNotFound(use, message, error) from error
    target: object = module
    for part in attribute.split(".") if attribute else ():
        target = getattr(target, part, None)
        if target is None:
            raise PluginNotFound(use, f"plugin {use!r}: {module_name!r} has no {attribute!r}")
    if target is not module:
        _refuse_losing_declarations(use, target, vars(module))
    return cast("Plugin", target)


def _refuse_losing_declarations(use: str, target: object, beside: Mapping[str, object]) -> None:
    if not isroutine(target):
        return
    annotations = getattr(target, "__annotations__", {}).values()
    lost = [
        name
        for name in ("inject", "Config")
        if name in beside
        and not hasattr(target, name)
        and not any(hint is beside[name] or hint == name for hint in annotations)
    ]
    if lost:
        names = " and ".join(f"`{name}`" for name in lost)
        module = use.partition(":")[0]
        raise PluginRefused(
            use,
            f"plugin {use!r} is a bare function, so the {names} of its module would be lost; "
            f"use the module as a whole (an entry point, or an object with `apply`), or put "
            f"{names} on the function in {module!r}",
        )
