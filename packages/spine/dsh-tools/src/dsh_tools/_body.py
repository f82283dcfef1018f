"""The innermost part of stage 6: the body itself, once for each attempt of a wrapper."""

from weakref import WeakKeyDictionary

from dsh_llm import fuse_signals

from ._frames import Frame, FrameCancelledError
from ._results import aborted, failure_of, success
from ._threads import ThreadGivenUpError
from ._visibility import ToolViews
from .execution import Execution, ToolToken
from .types import ToolDefinition, ToolExecutionResult, ToolSuccess


class BodyRunner:
    """Runs bodies, and remembers which results are its own."""

    def __init__(self, views: ToolViews) -> None:
        self._views = views
        self._made: WeakKeyDictionary[ToolToken, list[ToolSuccess]] = WeakKeyDictionary()

    def made(self, execution: Execution, result: ToolSuccess) -> bool:
        """True if this very object is the outcome of a body of this execution."""
        return any(each is result for each in self._made.get(execution.token, ()))

    async def run(self, execution: Execution) -> ToolExecutionResult:
        """Run the body under the signals of caller and wrapper; failures are results."""
        outer = execution.signal
        controller, detach = fuse_signals(
            execution.own_signal, None if outer is execution.own_signal else outer
        )
        fused = controller.signal
        if fused.aborted or execution.gone:
            detach()
            return aborted(started=False)
        execution.enter_signal(fused)
        try:
            definition = self._views.lookup(execution.name, execution.agent)
            value = await self._attempt(definition, execution)
            result = success(definition, execution, value)
        except (FrameCancelledError, ThreadGivenUpError):
            if not fused.aborted:
                # Cancelled through the census: whoever did that answers the call.
                execution.silent = True
            return aborted(started=True)
        except Exception as error:  # noqa: BLE001  # a failing body is an outcome
            return failure_of(error)
        finally:
            execution.signal = outer
            detach()
        if fused.aborted:
            return aborted(started=True)
        self._made.setdefault(execution.token, []).append(result)
        return result

    async def _attempt(self, definition: ToolDefinition, execution: Execution) -> object:
        frame = Frame[object]("tool-body", execution.name, execution.call_id)
        stop_watching = (
            execution.signal.observe(frame.cancel) if definition.cancel == "scope" else None
        )
        execution.body_started = True
        try:
            return await frame.run(lambda: definition.execute(execution.arguments, execution))
        finally:
            if stop_watching is not None:
                stop_watching()
