"""Tasks that a service owns: started from anywhere, ended together with the service."""

from collections.abc import Callable, Coroutine
from contextvars import Context as Variables
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup

from dsh_cordis import Context


class TaskHost:
    """A task group that lives in one background task of a plugin.

    Undoing that task cancels everything in it at once and waits for it, so that the grace periods
    of many processes run side by side.
    """

    def __init__(self, ctx: Context, name: str) -> None:
        self._ctx = ctx
        self._name = name
        self._group: TaskGroup | None = None

    @property
    def open(self) -> bool:
        """True while tasks are admitted."""
        return self._group is not None

    async def start(self) -> None:
        """Admit tasks from now on."""
        ready = anyio.Event()
        self._ctx.spawn(self._run, ready, name=self._name)
        await ready.wait()

    async def _run(self, ready: anyio.Event) -> None:
        async with anyio.create_task_group() as group:
            self._group = group
            ready.set()
            try:
                await anyio.sleep_forever()
            finally:
                self._group = None

    def spawn(
        self,
        work: Callable[[], Coroutine[Any, Any, object]],  # what anyio's task groups take
        name: str,
    ) -> bool:
        """Start a task with context variables of its own; false when none are admitted any more.

        It belongs to the service, not to the call that asked for it: neither the census nor the
        initiator of that call follow it.
        """
        group = self._group
        if group is None:
            return False
        Variables().run(partial(group.start_soon, work, name=name))
        return True
