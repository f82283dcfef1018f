"""The policy: a deadline signal around the body, and the failure that stands for its passing.

Upstream: packages/tools/tool-timeout/src/index.ts.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from dsh_cordis import Context, Next
from dsh_llm import AbortController, fuse_signals
from dsh_tools import (
    ToolExecutionResult,
    ToolRegistry,
    ToolRunContext,
    ToolsExecute,
    tool_failure_of,
)

from .errors import ToolTimeoutError

MAX_TIMEOUT_MS: Final = 2_147_483_647
"""The longest limit that is kept; longer ones count as this one."""

Sleep = Callable[[float], Awaitable[object]]
"""Waits that many seconds."""


class Needs(Context):
    """What the policy works with."""

    tools: ToolRegistry


def mount(ctx: Needs, *, sleep: Sleep = anyio.sleep) -> None:
    """Hold calls to their limits until `ctx` unloads; for plugins with a clock of their own.

    Args:
        ctx: Whose listener the policy becomes.
        sleep: Waits a number of seconds.
    """

    def limit(
        event: ToolsExecute, next_: Next[ToolExecutionResult]
    ) -> Awaitable[ToolExecutionResult]:
        definition = ctx.tools.get(event.exec.name, event.exec.agent)
        if definition is None or definition.timeout_ms is None:
            return next_()  # handed on as it is, so that a call without a limit costs no task
        limit_ms = min(definition.timeout_ms, MAX_TIMEOUT_MS)
        return _Deadline(event.exec, limit_ms, sleep).around(next_)

    ctx.on(ToolsExecute, limit)


class _Deadline:
    """The limit of one call."""

    def __init__(self, run: ToolRunContext, limit_ms: float, sleep: Sleep) -> None:
        self._run = run
        self._limit_ms = limit_ms
        self._sleep = sleep
        self._timer = anyio.CancelScope()
        self._passed_first = False

    async def around(self, next_: Next[ToolExecutionResult]) -> ToolExecutionResult:
        """Run the inside under the limit, and wait for its end in any case."""
        upstream = self._run.signal
        deadline, detach = fuse_signals(upstream)
        # A call that its caller has given up needs no limit any more.
        forget = upstream.observe_abandoned(self._timer.cancel)
        self._run.signal = deadline.signal
        try:
            result = await self._timed(next_, deadline)
        finally:
            self._run.signal = upstream
            forget()
            detach()
        if self._passed_first:
            return tool_failure_of(ToolTimeoutError(self._run.name, self._limit_ms))
        return result

    async def _timed(
        self, next_: Next[ToolExecutionResult], deadline: AbortController
    ) -> ToolExecutionResult:
        outcome: ToolExecutionResult | Exception
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._expire, deadline, name=f"timeout:{self._run.name}")
            try:
                outcome = await next_()
            except Exception as error:  # noqa: BLE001  # raised below, not as a group of one
                outcome = error
            self._timer.cancel()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _expire(self, deadline: AbortController) -> None:
        with self._timer:
            await self._sleep(self._limit_ms / 1000)
            if not deadline.signal.aborted:
                self._passed_first = True
                deadline.abort(ToolTimeoutError(self._run.name, self._limit_ms))
