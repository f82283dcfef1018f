"""The stages of a tool call, in order. Upstream: packages/tools/tools/src/pipeline.ts.

(1) build the record, (2) aborted already? (3) `tools/pre-execute`, (4) approval, (5) guards,
(6) `tools/execute` around the body, (7) normalise and attach contexts, (8) project content and
`tools/post-execute`, (9) materialise and finalize content, (10) `tools/result`.

Each stage begins with a synchronous part that finds out whether anybody takes part in it. Only who
takes part is awaited, in a frame of its own; where nobody does, a stage is a look-up.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Literal, TypeVar

import anyio
import msgspec

from dsh_brand import NotJsonError
from dsh_cordis import Context, Waterfall

from . import texts
from ._body import BodyCall, BodyRunner
from ._frames import Frame, FrameCancelledError, entered, stray
from ._gate import Gate
from ._json import snapshot
from ._outcomes import after_abort, final, refused_early, settled, with_deferred, with_late
from ._post import apply_decision, projected
from ._results import aborted, failure_of, rebuilt
from ._stages import Failing, Given, Stage, close_unused
from ._visibility import ToolViews
from .errors import ToolDecisionError, ToolNotFoundError
from .events import ToolsExecute, ToolsPostExecute, ToolsPreExecute, ToolsResult
from .execution import Execution, ToolRunContext
from .types import (
    Accept,
    Allow,
    PostToolDecision,
    PreToolDecision,
    ToolExecutionInput,
    ToolExecutionResult,
    ToolFailure,
    ToolSuccess,
)

T = TypeVar("T")

_ALLOWED: Final[Given[PreToolDecision]] = Given(Allow())
_ACCEPTED: Final[Given[PostToolDecision]] = Given(Accept())


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done with a call after its gate."""

    kind: Literal["dispatch", "post-result", "final-result"]
    """`dispatch`: run it. `post-result`: `finalize` the result. `final-result`: `finish` it."""
    exec: ToolRunContext
    result: ToolExecutionResult | None = None
    """`None` for `dispatch` only."""


class ToolScheduler:
    """The stages, one by one, for whoever overlaps the bodies of a batch.

    Each is run at most once for one record, from any task. `prepare` and `finalize` of one batch do
    not overlap, `dispatch` may. `preparing`, `dispatching` and `finalizing` are the same stages for
    callers that start a task only where something may wait: see `Stage`.
    """

    def __init__(self, ctx: Context, views: ToolViews) -> None:
        self._ctx = ctx
        self._heard: Final = ctx.has_listeners
        self._views = views
        self._gate = Gate(ctx, views)
        self._bodies = BodyRunner(views)

    async def execute(self, call: ToolExecutionInput) -> ToolExecutionResult:
        """All stages, one behind the other."""
        execution, result = self._begin(call)
        if result is None:
            result, decision = self._put_to_gate(execution)
            if decision is not None:
                result = await self._gated(execution, decision)
        if result is None:
            result = await self._run(execution, self._put_to_wrappers(execution))
        result, judgement = self._put_to_judges(execution, result)
        if judgement is not None:
            result = await self._judged(execution, result, judgement)
        return self._finished(execution, result)

    async def prepare(self, call: ToolExecutionInput) -> Prepared:
        """Stages 1 to 5: decide whether the call may run."""
        return await self.preparing(call)

    async def dispatch(self, record: ToolRunContext) -> ToolExecutionResult:
        """Stages 6 and 7: run the body within its wrappers and attach what it deferred."""
        return await self.dispatching(record)

    async def finalize(
        self, record: ToolRunContext, result: ToolExecutionResult
    ) -> ToolExecutionResult:
        """Stages 8 to 10: let policies judge the result, then publish it."""
        return await self.finalizing(record, result)

    async def finish(
        self, record: ToolRunContext, result: ToolExecutionResult
    ) -> ToolExecutionResult:
        """Stages 9 and 10, without a checkpoint: settle the content and tell observers."""
        return self._finished(_own(record), result)

    def preparing(self, call: ToolExecutionInput) -> Stage[Prepared]:
        """Begin `prepare`."""
        execution, result = self._begin(call)
        decision = None
        if result is None:
            result, decision = self._put_to_gate(execution)
        execution.found = None  # time passes until the next stage
        if decision is None:
            return Stage(execution, partial(Given, _prepared(execution, result)), immediate=True)
        return Stage(execution, partial(self._pass_gate, execution, decision), decision)

    def dispatching(self, record: ToolRunContext) -> Stage[ToolExecutionResult]:
        """Begin `dispatch`."""
        execution = _own(record)
        answer = self._put_to_wrappers(execution)
        rest = partial(self._run, execution, answer)
        if answer is not None:
            return Stage(execution, rest, answer)
        found = self._views.visible(execution._agent).get(execution._name)
        return Stage(execution, rest, immediate=found is None or found._immediate)

    def finalizing(
        self, record: ToolRunContext, result: ToolExecutionResult
    ) -> Stage[ToolExecutionResult]:
        """Begin `finalize`."""
        execution = _own(record)
        result, judgement = self._put_to_judges(execution, result)
        if judgement is None:
            return Stage(execution, partial(self.finish, execution, result), immediate=True)
        rest = partial(self._judge_and_finish, execution, result, judgement)
        return Stage(execution, rest, judgement)

    def abandon(self, record: ToolRunContext) -> None:
        """Give up one execution and all that were called with its signal.

        From now on it publishes nothing and contributes nothing; what it gives late is dropped.
        """
        _own(record).abandon()

    # ---- stages 1 and 2 ---------------------------------------------------------------------

    def _begin(self, call: ToolExecutionInput) -> tuple[Execution, ToolExecutionResult | None]:
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
            name, arguments, call.call_id, signal, call.root_call_id, agent, call.parent
        )
        execution.definition = execution.found = definition
        execution.guarded = view.guarded
        if problem is None and not signal.aborted and not signal.abandoned:
            return execution, None
        return execution, refused_early(execution, problem)

    # ---- stages 3 to 5 ----------------------------------------------------------------------

    def _put_to_gate(
        self, execution: Execution
    ) -> tuple[ToolExecutionResult | None, Awaitable[PreToolDecision] | None]:
        """The outcome of a call that is refused at once, or the decision that is to come."""
        guarded = execution.guarded
        if self._heard(ToolsPreExecute, execution._agent):
            decision = self._ask(ToolsPreExecute(exec=execution), _allow, execution)
            if decision is not _ALLOWED:
                return None, decision
            # Who gave the default may have registered a guard.
            guarded = self._views.current(execution._agent).guarded
        if not guarded:
            return None, None
        execution.found = None
        try:
            with entered("tool-gate", execution._name, execution._call_id, None):
                return self._gate.guarded(execution), None
        except anyio.get_cancelled_exc_class() as error:
            return final(execution, failure_of(stray(error))), None
        except Exception as error:  # noqa: BLE001  # a broken guard fails this call only
            return final(execution, failure_of(error)), None

    async def _gated(
        self, execution: Execution, decision: Awaitable[PreToolDecision]
    ) -> ToolExecutionResult | None:
        """The outcome of a call that does not run; `None` lets it run."""
        execution.found = None  # guards may run, and approval takes its time
        try:
            refusal = await _framed(
                "tool-gate", execution, partial(self._gate.pass_, execution, decision), decision
            )
        except FrameCancelledError:
            execution.silent = True
            return final(execution, aborted(started=False))
        except Exception as error:  # noqa: BLE001  # a broken policy fails this call only
            return final(execution, failure_of(error))
        return final(execution, aborted(started=False)) if execution.gone else refusal

    async def _pass_gate(
        self, execution: Execution, decision: Awaitable[PreToolDecision]
    ) -> Prepared:
        return _prepared(execution, await self._gated(execution, decision))

    # ---- stages 6 and 7 ---------------------------------------------------------------------

    def _put_to_wrappers(self, execution: Execution) -> Awaitable[ToolExecutionResult] | None:
        """What the wrappers make of a call; `None` if there are none, or they leave it alone."""
        if not self._heard(ToolsExecute, execution._agent) or execution.gone:
            return None
        body = partial(BodyCall, self._bodies, execution)
        answer = self._ask(ToolsExecute(exec=execution), body, execution)
        return None if type(answer) is BodyCall else answer

    async def _run(
        self, execution: Execution, answer: Awaitable[ToolExecutionResult] | None
    ) -> ToolExecutionResult:
        try:
            if answer is None:
                result = await self._bodies.run(execution)
                return with_deferred(execution, result) if execution._contexts else result
            given = await _framed("tool-wrapper", execution, lambda: answer, answer)
            return self._normalised(execution, given)
        except FrameCancelledError:
            execution.silent = True
            return aborted(started=execution.body_started)
        except Exception as error:  # noqa: BLE001  # a broken wrapper fails this call only
            return final(execution, failure_of(error))
        finally:
            execution._signal = None  # judges see the caller's again

    def _normalised(self, execution: Execution, result: object) -> ToolExecutionResult:
        if not isinstance(result, ToolSuccess | ToolFailure):
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
                return final(execution, failure_of(error))
            result = rebuilt(definition, execution, result, result.value)
        return after_abort(execution, with_deferred(execution, result))

    # ---- stages 8 to 10 ---------------------------------------------------------------------

    def _put_to_judges(
        self, execution: Execution, result: ToolExecutionResult
    ) -> tuple[ToolExecutionResult, Awaitable[PostToolDecision] | None]:
        """The result with the content that was prepared for it, and what is decided about it."""
        definition = execution.definition
        hook = None if definition is None else definition.project_content
        if hook is not None and not execution.final and not execution.gone:
            try:
                result = projected(hook, execution, result)
            except Exception as error:  # noqa: BLE001  # a broken projection fails this call only
                return failure_of(error), None
        if not self._heard(ToolsPostExecute, execution._agent):
            return (with_late(execution, result) if execution._contexts else result), None
        if execution.final or execution.gone:
            return result, None
        judgement = self._ask(ToolsPostExecute(exec=execution, result=result), _accept, execution)
        if judgement is _ACCEPTED:
            return (with_late(execution, result) if execution._contexts else result), None
        return result, judgement

    async def _judged(
        self,
        execution: Execution,
        result: ToolExecutionResult,
        judgement: Awaitable[PostToolDecision],
    ) -> ToolExecutionResult:
        async def decide() -> ToolExecutionResult:
            return apply_decision(self._views, execution, result, await judgement)

        try:
            return await _framed("tool-post", execution, decide, judgement)
        except FrameCancelledError:
            execution.silent = True
            return aborted(started=execution.body_started)
        except Exception as error:  # noqa: BLE001  # a broken policy fails this call only
            return failure_of(error)

    async def _judge_and_finish(
        self,
        execution: Execution,
        result: ToolExecutionResult,
        judgement: Awaitable[PostToolDecision],
    ) -> ToolExecutionResult:
        return self._finished(execution, await self._judged(execution, result, judgement))

    def _finished(self, execution: Execution, result: ToolExecutionResult) -> ToolExecutionResult:
        signal = execution._caller_signal
        if signal.aborted or signal.abandoned or execution.silent or execution._given_up:
            if execution.gone:
                execution.close()
                return result
            result = after_abort(execution, result)
        definition = execution.definition
        hook = None if definition is None else definition.finalize_content
        if hook is not None or not execution.settles(result):
            result = settled(execution, result, hook)
        execution.close()
        if self._heard(ToolsResult, execution._agent):
            self._ctx.emit(ToolsResult(exec=execution, result=result), target=execution.target)
        return result

    # ---- asking -----------------------------------------------------------------------------

    def _ask(
        self, event: Waterfall[T], default: Callable[[], Awaitable[T]], execution: Execution
    ) -> Awaitable[T]:
        """Put an event to the listeners. One that answers `default()` itself takes no part."""
        execution.found = None
        try:
            return self._ctx.waterfall(event, default, target=execution.target)
        except anyio.get_cancelled_exc_class() as error:
            return Failing(stray(error))
        except Exception as error:  # noqa: BLE001  # fails the stage in which it is awaited
            return Failing(error)


def _allow() -> Awaitable[PreToolDecision]:
    return _ALLOWED


def _accept() -> Awaitable[PostToolDecision]:
    return _ACCEPTED


def _own(record: ToolRunContext) -> Execution:
    if not isinstance(record, Execution):
        raise TypeError(f"{record!r} was not made by prepare()")
    return record


def _prepared(execution: Execution, result: ToolExecutionResult | None) -> Prepared:
    if result is None:
        return Prepared(kind="dispatch", exec=execution)
    kind: Literal["final-result", "post-result"] = (
        "final-result" if execution.final else "post-result"
    )
    return Prepared(kind=kind, exec=execution, result=result)


async def _framed(
    kind: str, execution: Execution, code: Callable[[], Awaitable[T]], asked: object
) -> T:
    """Run foreign code in a frame; `asked` is the answer that it awaits."""
    try:
        alone = execution.take_alone()
        return await Frame[T](kind, execution._name, execution._call_id, alone=alone).run(code)
    finally:
        close_unused(asked)  # a frame that was cancelled before it began has not awaited it
