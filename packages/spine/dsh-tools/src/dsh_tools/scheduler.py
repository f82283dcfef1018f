"""The stages of a tool call, in order. Upstream: packages/tools/tools/src/pipeline.ts.

(1) build the record, (2) aborted already? (3) `tools/pre-execute`, (4) approval, (5) guards,
(6) `tools/execute` around the body, (7) normalise and attach contexts, (8) project content and
`tools/post-execute`, (9) materialise and finalize content, (10) `tools/result`.
"""

from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

import msgspec

from dsh_brand import NotJsonError, freeze_json
from dsh_cordis import Context, Target

from . import texts
from ._body import BodyRunner
from ._frames import Frame, FrameCancelledError
from ._gate import Gate
from ._post import apply_decision, projected
from ._results import aborted, failure, failure_of, materialised, rebuilt
from ._visibility import ToolViews
from .errors import ToolDecisionError, ToolNotFoundError
from .events import ToolsExecute, ToolsPostExecute, ToolsResult
from .execution import Execution, ToolRunContext, under_abandoned
from .types import (
    Accept,
    Content,
    PostToolDecision,
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


class _Call(Execution):
    """A record together with what was captured of the definition before anything ran."""

    project: Callable[[ToolRunContext, ToolExecutionResult], Content | None] | None = None
    finalize: Callable[[ToolRunContext, ToolExecutionResult], Content | None] | None = None


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

    async def prepare(self, call: ToolExecutionInput) -> Prepared:
        """Stages 1 to 5: decide whether the call may run."""
        execution, problem = self._begin(call)
        if under_abandoned(call.signal):
            execution.silent = True
            return _final(execution, aborted(started=False))
        if problem is not None:
            return _final(execution, failure(problem))
        if execution.caller_aborted:
            return _final(execution, aborted(started=False))
        try:
            refusal = await _run("tool-gate", execution, lambda: self._gate.pass_(execution))
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

    async def dispatch(self, record: ToolRunContext) -> ToolExecutionResult:
        """Stages 6 and 7: run the body within its wrappers and attach what it deferred."""
        execution = _own(record)
        if execution.gone:
            return aborted(started=False)
        try:
            result = await _run("tool-wrapper", execution, lambda: self._around(execution))
            return self._normalised(execution, result)
        except FrameCancelledError:
            execution.silent = True
            return aborted(started=execution.body_started)
        except Exception as error:  # noqa: BLE001  # a broken wrapper fails this call only
            execution.final = True
            return failure_of(error)
        finally:
            execution.reset_signal()

    async def finalize(
        self,
        record: ToolRunContext,
        result: ToolExecutionResult,
    ) -> ToolExecutionResult:
        """Stages 8 to 10: let policies judge the result, then publish it."""
        execution = _own(record)
        if not execution.final and not execution.gone:
            try:
                result = await _run("tool-post", execution, lambda: self._post(execution, result))
            except FrameCancelledError:
                execution.silent = True
                result = aborted(started=execution.body_started)
            except Exception as error:  # noqa: BLE001  # a broken policy fails this call only
                result = failure_of(error)
            result = _after_abort(execution, result)
        return await self.finish(execution, result)

    async def finish(
        self,
        record: ToolRunContext,
        result: ToolExecutionResult,
    ) -> ToolExecutionResult:
        """Stages 9 and 10, without a checkpoint: settle the content and tell observers."""
        execution = _own(record)
        if execution.gone:
            execution.close()
            return result
        final = self._settled(execution, result)
        execution.close()
        self._ctx.emit(ToolsResult(exec=execution, result=final), target=_target(execution))
        return final

    def abandon(self, record: ToolRunContext) -> None:
        """Give up one execution and all that were called with its signal.

        From now on it publishes nothing and contributes nothing; what it gives late is dropped.
        """
        _own(record).abandon()

    # ---- stages -----------------------------------------------------------------------------

    def _begin(self, call: ToolExecutionInput) -> tuple["_Call", str | None]:
        # The hooks first: a re-registration while arguments are copied must not change them.
        definition = self._views.visible(call.agent).get(call.name)
        arguments, problem = None, None
        try:
            arguments = freeze_json(call.arguments, tuples=False, surrogates=False)
        except NotJsonError as error:
            problem = texts.ARGUMENTS_NOT_JSON.format(cause=error.message)
        execution = _Call(
            name=call.name,
            arguments=arguments,
            call_id=call.call_id,
            signal=call.signal,
            root_call_id=call.root_call_id,
            agent=call.agent,
            parent=call.parent,
        )
        if definition is not None:
            execution.project = definition.project_content
            execution.finalize = definition.finalize_content
        return execution, problem

    async def _around(self, execution: Execution) -> ToolExecutionResult:
        event = ToolsExecute(exec=execution)
        return await self._ctx.waterfall(
            event, lambda: self._bodies.run(execution), target=_target(execution)
        )

    def _normalised(self, execution: Execution, result: object) -> ToolExecutionResult:
        if not isinstance(result, ToolSuccess | ToolFailure):
            raise ToolDecisionError(
                f"a 'tools/execute' wrapper of {execution.name!r} answered {result!r:.80}; "
                "answer what next() gives, or a ToolSuccess or ToolFailure"
            )
        if execution.gone:
            return result
        if isinstance(result, ToolSuccess) and not self._bodies.made(execution, result):
            try:
                definition = self._views.lookup(execution.name, execution.agent)
            except ToolNotFoundError as error:
                execution.final = True
                return failure_of(error)
            result = rebuilt(definition, execution, result, result.value)
        contexts = (*execution.take_contexts(), *result.additional_contexts)
        return _after_abort(
            execution, msgspec.structs.replace(result, additional_contexts=contexts)
        )

    async def _post(self, execution: "_Call", result: ToolExecutionResult) -> ToolExecutionResult:
        result = projected(execution.project, execution, result)

        async def accept() -> PostToolDecision:
            return Accept()

        event = ToolsPostExecute(exec=execution, result=result)
        decision = await self._ctx.waterfall(event, accept, target=_target(execution))
        return apply_decision(self._views, execution, result, decision)

    def _settled(self, execution: "_Call", result: ToolExecutionResult) -> ToolExecutionResult:
        try:
            settled = materialised(result, execution)
            if execution.finalize is not None:
                content = execution.finalize(execution, settled)
                if content is not None:
                    settled = msgspec.structs.replace(settled, content=content)
            return materialised(settled, execution)
        except Exception as error:  # noqa: BLE001  # a broken finalizer fails this call only
            return failure_of(error)


def _own(record: ToolRunContext) -> _Call:
    if not isinstance(record, _Call):
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


def _target(execution: Execution) -> Target:
    return Target(execution.agent)


async def _run(kind: str, execution: Execution, body: Callable[[], Awaitable[T]]) -> T:
    return await Frame[T](kind, execution.name, execution.call_id).run(body)
