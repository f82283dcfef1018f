"""`dsh sessions` and `dsh plugins`: what is stored and what is installed."""

from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from inspect import isclass
from pathlib import Path
from typing import TypeVar

import click

from dsh_cli import paths
from dsh_cli.errors import ExitCode
from dsh_cli.output import visible
from dsh_cli.stack import mounted_stack
from dsh_cordis import Event, Service
from dsh_loader import InstalledPlugin, installed_plugins

T = TypeVar("T")


async def list_sessions(folder: Path | None) -> ExitCode:
    """Print one line per stored session, newest first, then what could not be read."""
    async with mounted_stack(paths.ensure_writable(paths.sessions_root())) as ctx:
        listing = await ctx.session_persistence.list()
    own = [entry for entry in listing.sessions if folder is None or entry.header.cwd == str(folder)]
    for entry in sorted(own, key=lambda each: -each.header.created_at):
        when = datetime.fromtimestamp(entry.header.created_at / 1000, UTC)
        click.echo(f"{entry.header.id}  {when:%Y-%m-%d %H:%M}Z  {visible(entry.header.cwd or '-')}")
    for problem in listing.problems:
        told = visible(f"unreadable: {problem.location}: {problem.error}")
        click.secho(told, fg="red", err=True)
    if not own and not listing.problems:
        click.echo("no sessions yet", err=True)
    return ExitCode.DONE


def print_plugins() -> None:
    """Print each installed plugin with its version, services and events."""
    for plugin in installed_plugins():
        click.echo(f"{plugin.name}  {plugin.dist} {plugin.version}")
        for label, names in _offers(plugin):
            if names:
                click.echo(f"    {label}: {', '.join(sorted(names))}")


def _offers(plugin: InstalledPlugin) -> Iterator[tuple[str, set[str]]]:
    try:
        module = import_module(plugin.value.partition(":")[0])
    except ImportError as error:
        yield "cannot be imported", {str(error)}
        return
    yield "services", {cls.key for cls in _classes(module, Service) if getattr(cls, "key", "")}
    yield "events", {cls.name for cls in _classes(module, Event) if getattr(cls, "name", "")}


def _classes(module: object, base: type[T]) -> Iterator[type[T]]:
    for value in vars(module).values():
        if isclass(value) and issubclass(value, base) and value is not base:
            yield value
