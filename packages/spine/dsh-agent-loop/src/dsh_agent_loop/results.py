"""Results of calls: what the registry gave, and what the loop answers in its place."""

from typing import Literal

import msgspec

from dsh_llm import CallId, TextBlock, create_tool_result_message
from dsh_session import ToolErrorInfo, ToolResultEvent
from dsh_tools import ToolFailure, ToolFault, ToolSuccess

from . import texts

Synthesized = Literal[
    "ABORTED", "ABORTED_BEFORE_DISPATCH", "TOOL_NOT_STARTED", "TOOL_OUTCOME_UNKNOWN"
]

_FACTS: dict[Synthesized, tuple[str, str]] = {
    "ABORTED": ("AbortError", texts.ABORTED),
    "ABORTED_BEFORE_DISPATCH": ("AbortError", texts.ABORTED_BEFORE_DISPATCH),
    "TOOL_NOT_STARTED": ("ToolNotStartedError", texts.NOT_STARTED),
    "TOOL_OUTCOME_UNKNOWN": ("ToolOutcomeUnknownError", texts.OUTCOME_UNKNOWN),
}


def synthesized(code: Synthesized) -> ToolFailure:
    """The failure that answers a call without an outcome of its own."""
    name, text = _FACTS[code]
    return ToolFailure(
        error=ToolFault(
            message=text.removeprefix("Error: "), info=ToolErrorInfo(name=name, code=code)
        ),
        content=(TextBlock(text),),
    )


def aborted_success(result: ToolSuccess) -> ToolFailure:
    """A success that nobody wants any more; its contexts stay."""
    return msgspec.structs.replace(
        synthesized("ABORTED"), additional_contexts=result.additional_contexts
    )


def result_event(
    turn: int, step: int, call_id: CallId, result: ToolSuccess | ToolFailure
) -> ToolResultEvent:
    """The durable form of a result."""
    message = create_tool_result_message(call_id, result.content, result.is_error)
    error = result.error.info if isinstance(result, ToolFailure) else None
    return ToolResultEvent(turn=turn, step=step, message=message, error=error, meta=result.meta)
