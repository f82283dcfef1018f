"""Stage 8: prepared content, and the decision of the post-execute policies."""

from collections.abc import Sequence

import msgspec

from dsh_llm import ContentBlock, Message, TextBlock

from . import texts
from ._results import blocks, failure, rebuilt
from ._visibility import ToolViews
from .errors import ToolDecisionError
from .execution import Execution
from .types import Accept, Block, ResultHook, ToolExecutionResult, ToolSuccess


def projected(
    hook: ResultHook,
    execution: Execution,
    result: ToolExecutionResult,
) -> ToolExecutionResult:
    """`result` with the content that its definition prepared during the execution, if any."""
    content = hook(execution, result)
    return result if content is None else msgspec.structs.replace(result, content=blocks(content))


def apply_decision(
    views: ToolViews, execution: Execution, result: ToolExecutionResult, decision: object
) -> ToolExecutionResult:
    """What a decision makes of a result.

    Raises:
        ToolDecisionError: It is no decision, or contradicts itself or the result.
        ToolNotFoundError: A value was replaced, and the tool is gone.
        ToolOutputError: The value it gives does not fit the tool.
    """
    if isinstance(decision, Block):
        content = blocks(decision.feedback)
        blocked = failure(_plain_text(content), content=content)
        return _with_contexts(blocked, decision.additional_contexts)
    if not isinstance(decision, Accept):
        raise ToolDecisionError(
            f"a 'tools/post-execute' listener answered {decision!r:.80} for {execution.name!r}; "
            "answer Accept(), Block(feedback) or what next() gives"
        )
    accepted = _accepted(views, execution, result, decision)
    contexts = (
        *accepted.additional_contexts,
        *execution.take_contexts(),
        *decision.additional_contexts,
    )
    return _with_contexts(accepted, contexts)


def _accepted(
    views: ToolViews, execution: Execution, result: ToolExecutionResult, decision: Accept
) -> ToolExecutionResult:
    if decision.content is not msgspec.UNSET and decision.value is not msgspec.UNSET:
        raise ToolDecisionError(
            f"a policy replaced both content and value of {execution.name!r}; replace one of them"
        )
    if decision.content is not msgspec.UNSET:
        return msgspec.structs.replace(result, content=blocks(decision.content))
    if decision.value is msgspec.UNSET:
        return result
    if not isinstance(result, ToolSuccess):
        raise ToolDecisionError(
            f"a policy gave a value to the failed call of {execution.name!r}; a failure has none"
        )
    definition = views.lookup(execution.name, execution.agent)
    return rebuilt(definition, execution, result, decision.value)


def _with_contexts(result: ToolExecutionResult, contexts: Sequence[Message]) -> ToolExecutionResult:
    changed: ToolExecutionResult = msgspec.structs.replace(
        result, additional_contexts=tuple(contexts)
    )
    return changed


def _plain_text(content: Sequence[ContentBlock]) -> str:
    lines = [block.text if isinstance(block, TextBlock) else f"[{block.type}]" for block in content]
    return "\n".join(line for line in lines if line) or texts.BLOCKED
