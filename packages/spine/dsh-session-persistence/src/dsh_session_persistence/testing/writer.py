"""A writer in another process, for tests of what excludes two of them."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pkgutil import resolve_name
from types import ModuleType

import anyio
import anyio.to_thread

from dsh_cordis import Context, Plugin
from dsh_session import SessionStore
from dsh_session_persistence.service import SessionPersistence
from dsh_session_persistence.testing.samples import sample_events, sample_header

_READY = "ready"

StorePlugin = tuple[Plugin, object]
"""A store plugin and its config; mounted twice, both instances see the same sessions."""


@contextmanager
def writer_process(
    store_plugin: StorePlugin, *, ready: int = 1, count: int = 1
) -> Iterator[subprocess.Popen[str]]:
    """Another process that owns the session `sample`, and ends when this context does.

    Args:
        store_plugin: The store; its config has to be JSON, and the plugin to have a name.
        ready: How many events are stored before the context is entered.
        count: How many it stores in all, one by one.

    Raises:
        TypeError: The store cannot be mounted in another process.
    """
    plugin, config = store_plugin
    name = plugin.__name__ if isinstance(plugin, ModuleType) else _name_of(plugin)
    code = f"import sys; from {__name__} import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, name, json.dumps(config), str(ready), str(count)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == _READY
        yield process


def _name_of(plugin: object) -> str:
    name = getattr(plugin, "__qualname__", None)
    if name is None:
        raise TypeError(f"the plugin {plugin!r} has no name to find it by in another process")
    return f"{plugin.__module__}:{name}"


async def _write(plugin: Plugin, config: object, ready: int, count: int) -> None:
    async with Context() as ctx:
        _ = ctx.plugin(SessionStore)
        _ = ctx.plugin(plugin, config)
        await ctx.settled()
        store = ctx.get(SessionPersistence)
        assert store is not None
        writer = await store.create(sample_header())
        for seq in range(count):
            await writer.append(sample_events(1, start=seq))
            if seq + 1 == ready:
                sys.stdout.write(f"{_READY}\n")
                sys.stdout.flush()
        await anyio.to_thread.run_sync(sys.stdin.read)


def main(arguments: Sequence[str]) -> None:
    """Write until somebody ends this process, or closes its input."""
    name, config, ready, count = arguments
    anyio.run(_write, resolve_name(name), json.loads(config), int(ready), int(count))
