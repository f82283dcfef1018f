"""What becomes of a result between the stages: aborted, joined by contexts, settled."""

import msgspec

from ._results import aborted, failure, failure_of, materialised
from .execution import Execution
from .types import ResultHook, ToolExecutionResult, ToolFailure, ToolSuccess


def final(execution: Execution, result: ToolFailure) -> ToolFailure:
    """`result`, with which the post stage is skipped."""
    execution.final = True
    return result


def refused_early(execution: Execution, problem: str | None) -> ToolExecutionResult | None:
    """The outcome of a call that is over before anybody hears of it."""
    if execution.gone:
        execution.silent = True
        return final(execution, aborted(started=False))
    if problem is not None:
        return final(execution, failure(problem))
    aborted_before = execution._caller_signal.aborted
    return final(execution, aborted(started=False)) if aborted_before else None


def with_deferred(execution: Execution, result: ToolExecutionResult) -> ToolExecutionResult:
    """`result` behind the contexts that were deferred during the execution."""
    contexts = (*execution.take_contexts(), *result.additional_contexts)
    return msgspec.structs.replace(result, additional_contexts=contexts)


def with_late(execution: Execution, result: ToolExecutionResult) -> ToolExecutionResult:
    """`result` before the contexts that were deferred after its body."""
    if execution.final or execution.gone:
        return result
    contexts = (*result.additional_contexts, *execution.take_contexts())
    return msgspec.structs.replace(result, additional_contexts=contexts)


def after_abort(execution: Execution, result: ToolExecutionResult) -> ToolExecutionResult:
    """A success that nobody wants any more is an abort, with its contexts; failures stay."""
    if execution._caller_signal.aborted and isinstance(result, ToolSuccess):
        answer = aborted(started=execution.body_started)
        return msgspec.structs.replace(answer, additional_contexts=result.additional_contexts)
    return result


def settled(
    execution: Execution, result: ToolExecutionResult, hook: ResultHook | None
) -> ToolExecutionResult:
    """The result with its last content; it holds for good."""
    try:
        settled = materialised(result, execution)
        if hook is None:
            return settled
        content = hook(execution, settled)
        if content is not None:
            settled = msgspec.structs.replace(settled, content=content)
        return materialised(settled, execution)
    except Exception as error:  # noqa: BLE001  # a broken finalizer fails this call only
        return failure_of(error)
