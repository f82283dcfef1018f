"""The innermost part of stage 6: the body itself, once for each attempt of a wrapper."""

from collections.abc import Generator
from typing import Any

import anyio

from dsh_cordis import task_census
from dsh_llm import AbortSignal, fuse_signals

from ._frames import Frame, FrameCancelledError, entered, stray
from ._results import aborted, failure_of, success
from ._threads import ThreadGivenUpError
from ._visibility import ToolViews
from .execution import Execution
from .types import ToolDefinition, ToolExecutionResult


class BodyRunner:
    """Runs bodies, and notes which results are of its own making."""

    def __init__(self, views: ToolViews) -> None:
        self._views = views

    async def run(
        self, execution: Execution, signal: AbortSignal | None = None
    ) -> ToolExecutionResult:
        """Run the body under the signals of caller and wrapper; failures are results."""
        if signal is None:
            if execution._signal is not None:
                return await self._run_under(execution, execution._signal)
            signal = execution._caller_signal
        definition: ToolDefinition | None = execution.found
        if definition is None and (signal.aborted or execution.gone):
            return aborted(started=False)
        immediate = False
        try:
            if definition is None:
                definition = self._views.lookup(execution._name, execution._agent)
            immediate = definition._immediate
            execution.body_started = True
            if not immediate:
                value = await _framed(definition, execution)
            elif task_census.get() is None:
                value = await definition.execute(execution._arguments, execution)
            else:
                value = await _counted(definition, execution)
            result = success(definition, execution, value)
        except (FrameCancelledError, ThreadGivenUpError):
            if not signal.aborted:
                # Cancelled through the census: whoever did that answers the call.
                execution.silent = True
            return aborted(started=True)
        except Exception as error:  # noqa: BLE001  # a failing body is an outcome
            return failure_of(error)
        except anyio.get_cancelled_exc_class() as error:
            if immediate:
                return failure_of(stray(error))  # nothing waited, so nobody can have cancelled it
            raise
        if signal.aborted:
            return aborted(started=True)
        execution._made = (result, *(execution._made or ()))
        return result

    async def _run_under(self, execution: Execution, replaced: AbortSignal) -> ToolExecutionResult:
        controller, detach = fuse_signals(execution.own_signal, replaced)
        try:
            execution.enter_signal(controller.signal)
            return await self.run(execution, controller.signal)
        finally:
            execution.enter_signal(replaced)
            detach()


class BodyCall:
    """The inside of all wrappers; each await of a fresh one runs the body once."""

    __slots__ = ("_bodies", "_execution")

    def __init__(self, bodies: BodyRunner, execution: Execution) -> None:
        self._bodies = bodies
        self._execution = execution

    def __await__(self) -> Generator[Any, None, ToolExecutionResult]:  # as any coroutine
        return self._bodies.run(self._execution).__await__()


async def _counted(definition: ToolDefinition, execution: Execution) -> object:
    with entered("tool-body", execution._name, execution._call_id, None):
        return await definition.execute(execution._arguments, execution)


async def _framed(definition: ToolDefinition, execution: Execution) -> object:
    frame = Frame[object](
        "tool-body", execution._name, execution._call_id, alone=execution.take_alone()
    )
    stop_watching = execution.signal.observe(frame.cancel) if definition.cancel == "scope" else None
    try:
        return await frame.run(lambda: definition.execute(execution._arguments, execution))
    finally:
        if stop_watching is not None:
            stop_watching()
