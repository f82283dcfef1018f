"""The stages of a tool call, in order. Upstream: packages/tools/tools/src/pipeline.ts.

(1) build the record, (2) aborted already? (3) `tools/pre-execute`, (4) approval, (5) guards,
(6) `tools/execute` around the body, (7) normalise and attach contexts, (8) project content and
`tools/post-execute`, (9) materialise and finalize content, (10) `tools/result`.
"""

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from types import CoroutineType
from typing import Any, Literal, TypeVar

import anyio
import msgspec

from dsh_brand import NotJsonError
from dsh_cordis import Context

from . import texts
from ._body import BodyRunner
from ._frames import Frame, FrameCancelledError, stray
from ._gate import Gate
from ._json import snapshot
from ._post import apply_decision, projected
from ._results import aborted, failure, failure_of, materialised, rebuilt
from ._visibility import ToolViews
from .errors import ToolDecisionError, ToolNotFoundError
from .events import ToolsExecute, ToolsPostExecute, ToolsResult
from .execution import Execution, ToolRunContext, under_abandoned
from .types import (
    Accept,
    PostToolDecision,
    PreToolDecision,
    ToolExecutionInput,
    ToolExecutionResult,
    ToolFailure,
    ToolSuccess,
)

T = TypeVar("T")


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done with a call after its gate."""

    kind: Literal["dispatch", "post-result", "final-result"]
    """`dispatch`: run it. `post-result`: `finalize` the result. `final-result`: `finish` it."""
    exec: ToolRunContext
    result: ToolExecutionResult | None = None
    """`None` for `dispatch` only."""


class ToolScheduler:
    """The stages, one by one, for whoever overlaps the bodies of a batch.

    Each method is called at most once for one record, from any task. `prepare` and `finalize` of
    one batch do not overlap, `dispatch` may.
    """

    def __init__(self, ctx: Context, views: ToolViews) -> None:
        self._ctx = ctx
        self._views = views
        self._gate = Gate(ctx, views)
        self._bodies = BodyRunner(views)

    async def execute(self, call: ToolExecutionInput) -> ToolExecutionResult:
        """All stages, one behind the other."""
        execution, prepared = self._begin(call)
        if prepared is None:
            prepared, asked = self._ask(execution)
            if asked is not None:
                prepared = await self._gated(execution, asked)
            elif prepared is None:
                # Nobody else has run since the tool was looked up.
                execution.found_at = self._views.version
        if prepared is None or prepared.result is None:
            return await self.finalize(execution, await self._dispatch(execution))
        if prepared.kind == "final-result":
            return self._finished(execution, prepared.result)
        return await self.finalize(execution, prepared.result)

    async def prepare(self, call: ToolExecutionInput) -> Prepared:
        """Stages 1 to 5: decide whether the call may run."""
        execution, prepared = self._begin(call)
        if prepared is None:
            prepared, asked = self._ask(execution)
            if asked is not None:
                return await self._gated(execution, asked)
        return prepared or Prepared(kind="dispatch", exec=execution)

    async def dispatch(self, record: ToolRunContext) -> ToolExecutionResult:
        """Stages 6 and 7: run the body within its wrappers and attach what it deferred."""
        return await self._dispatch(_own(record))

    async def finalize(
        self,
        record: ToolRunContext,
        result: ToolExecutionResult,
    ) -> ToolExecutionResult:
        """Stages 8 to 10: let policies judge the result, then publish it."""
        execution = _own(record)
        if not execution.final and not execution.gone:
            try:
                result = await self._judged(execution, result)
            except FrameCancelledError:
                execution.silent = True
                result = aborted(started=execution.body_started)
            except Exception as error:  # noqa: BLE001  # a broken policy fails this call only
                result = failure_of(error)
            result = _after_abort(execution, result)
        return self._finished(execution, result)

    async def finish(
        self,
        record: ToolRunContext,
        result: ToolExecutionResult,
    ) -> ToolExecutionResult:
        """Stages 9 and 10, without a checkpoint: settle the content and tell observers."""
        return self._finished(_own(record), result)

    def abandon(self, record: ToolRunContext) -> None:
        """Give up one execution and all that were called with its signal.

        From now on it publishes nothing and contributes nothing; what it gives late is dropped.
        """
        _own(record).abandon()

    # ---- stages -----------------------------------------------------------------------------

    def _begin(self, call: ToolExecutionInput) -> tuple[Execution, Prepared | None]:
        # Each field is read once: an input whose fields answer differently must not fool a policy.
        # The definition first: a re-registration while arguments are copied must not change it.
        name, agent, signal = call.name, call.agent, call.signal
        view = self._views.current(agent)
        definition = view.visible.get(name)
        arguments, problem = None, None
        try:
            arguments = snapshot(call.arguments)
        except NotJsonError as error:
            problem = texts.ARGUMENTS_NOT_JSON.format(cause=error.message)
        execution = Execution(
            name=name,
            arguments=arguments,
            call_id=call.call_id,
            signal=signal,
            root_call_id=call.root_call_id,
            agent=agent,
            parent=call.parent,
        )
        execution.definition = definition
        execution.guarded = view.guarded
        if under_abandoned(signal):
            execution.silent = True
            return execution, _final(execution, aborted(started=False))
        if problem is not None:
            return execution, _final(execution, failure(problem))
        if execution.caller_aborted:
            return execution, _final(execution, aborted(started=False))
        return execution, None

    def _ask(
        self, execution: Execution
    ) -> tuple[Prepared | None, Awaitable[PreToolDecision] | None]:
        try:
            return None, self._gate.start(execution, guarded=execution.guarded)
        except anyio.get_cancelled_exc_class() as error:
            return _final(execution, failure_of(stray(error))), None
        except Exception as error:  # noqa: BLE001  # a broken policy fails this call only
            return _final(execution, failure_of(error)), None

    async def _gated(self, execution: Execution, asked: Awaitable[PreToolDecision]) -> Prepared:
        try:
            refusal = await _run(
                "tool-gate", execution, lambda: self._gate.pass_(execution, asked), asked
            )
        except FrameCancelledError:
            execution.silent = True
            return _final(execution, aborted(started=False))
        except Exception as error:  # noqa: BLE001  # a broken policy fails this call only
            return _final(execution, failure_of(error))
        if execution.gone:
            return _final(execution, aborted(started=False))
        if refusal is not None:
            return Prepared(kind="post-result", exec=execution, result=refusal)
        return Prepared(kind="dispatch", exec=execution)

    async def _dispatch(self, execution: Execution) -> ToolExecutionResult:
        if execution.gone:
            return aborted(started=False)
        try:
            asked = self._wrapped(execution)
            if type(asked) is _BodyCall:
                result: object = await self._bodies.run(execution)
            else:
                execution.found_at = None
                result = await _run("tool-wrapper", execution, lambda: asked, asked)
            return self._normalised(execution, result)
        except FrameCancelledError:
            execution.silent = True
            return aborted(started=execution.body_started)
        except Exception as error:  # noqa: BLE001  # a broken wrapper fails this call only
            execution.final = True
            return failure_of(error)
        finally:
            execution.reset_signal()

    def _wrapped(self, execution: Execution) -> Awaitable[ToolExecutionResult]:
        event = ToolsExecute(exec=execution)
        body = partial(_BodyCall, self._bodies, execution)
        try:
            return self._ctx.waterfall(event, body, target=execution.target)
        except anyio.get_cancelled_exc_class() as error:
            raise stray(error) from error

    def _normalised(self, execution: Execution, result: object) -> ToolExecutionResult:
        if not isinstance(result, (ToolSuccess, ToolFailure)):  # a union costs more
            raise ToolDecisionError(
                f"a 'tools/execute' wrapper of {execution.name!r} answered {result!r:.80}; "
                "answer what next() gives, or a ToolSuccess or ToolFailure"
            )
        if execution.gone:
            return result
        if isinstance(result, ToolSuccess) and not execution.made_here(result):
            try:
                definition = self._views.lookup(execution.name, execution.agent)
            except ToolNotFoundError as error:
                execution.final = True
                return failure_of(error)
            result = rebuilt(definition, execution, result, result.value)
        deferred = execution.take_contexts()
        if deferred:
            contexts = (*deferred, *result.additional_contexts)
            result = msgspec.structs.replace(result, additional_contexts=contexts)
        return _after_abort(execution, result)

    async def _judged(
        self, execution: Execution, result: ToolExecutionResult
    ) -> ToolExecutionResult:
        definition = execution.definition
        hook = None if definition is None else definition.project_content
        judged = result if hook is None else projected(hook, execution, result)
        asked = self._put_to_judges(execution, judged)
        if type(asked) is _Accepting and not execution.has_contexts:
            return judged

        async def decide() -> ToolExecutionResult:
            return apply_decision(self._views, execution, judged, await asked)

        return await _run("tool-post", execution, decide, asked)

    def _put_to_judges(
        self, execution: Execution, result: ToolExecutionResult
    ) -> Awaitable[PostToolDecision]:
        event = ToolsPostExecute(exec=execution, result=result)
        try:
            return self._ctx.waterfall(event, _Accepting, target=execution.target)
        except anyio.get_cancelled_exc_class() as error:
            raise stray(error) from error

    def _finished(self, execution: Execution, result: ToolExecutionResult) -> ToolExecutionResult:
        if execution.gone:
            execution.close()
            return result
        final = self._settled(execution, result)
        execution.close()
        self._ctx.emit(ToolsResult(exec=execution, result=final), target=execution.target)
        return final

    def _settled(self, execution: Execution, result: ToolExecutionResult) -> ToolExecutionResult:
        try:
            settled = materialised(result, execution)
            definition = execution.definition
            if definition is None or definition.finalize_content is None:
                return settled
            content = definition.finalize_content(execution, settled)
            if content is not None:
                settled = msgspec.structs.replace(settled, content=content)
            return materialised(settled, execution)
        except Exception as error:  # noqa: BLE001  # a broken finalizer fails this call only
            return failure_of(error)


class _BodyCall:
    """The inside of all wrappers; each await of a fresh one runs the body once."""

    __slots__ = ("_bodies", "_execution")

    def __init__(self, bodies: BodyRunner, execution: Execution) -> None:
        self._bodies = bodies
        self._execution = execution

    def __await__(self) -> Generator[Any, None, ToolExecutionResult]:  # as any coroutine
        return self._bodies.run(self._execution).__await__()


class _Accepting:
    """The default decision of the post stage."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, PostToolDecision]:
        return Accept()
        yield


def _own(record: ToolRunContext) -> Execution:
    if not isinstance(record, Execution):
        raise TypeError(f"{record!r} was not made by prepare()")
    return record


def _final(execution: Execution, result: ToolExecutionResult) -> Prepared:
    execution.final = True
    return Prepared(kind="final-result", exec=execution, result=result)


def _after_abort(execution: Execution, result: ToolExecutionResult) -> ToolExecutionResult:
    """A success that nobody wants any more is an abort, with its contexts; failures stay."""
    if isinstance(result, ToolSuccess) and execution.caller_aborted:
        answer = aborted(started=execution.body_started)
        return msgspec.structs.replace(answer, additional_contexts=result.additional_contexts)
    return result


async def _run(
    kind: str, execution: Execution, body: Callable[[], Awaitable[T]], asked: object
) -> T:
    """Run foreign code in a frame; `asked` is the coroutine that it awaits."""
    try:
        return await Frame[T](kind, execution.name, execution.call_id).run(body)
    finally:
        if isinstance(asked, CoroutineType):
            asked.close()  # a frame that was cancelled before it began has not awaited it
