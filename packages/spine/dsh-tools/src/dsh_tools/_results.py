"""How results are made: from exceptions, from values, from what policies give."""

from collections.abc import Sequence
from typing import Final

import msgspec

from dsh_brand import HarnessError, NotJsonError
from dsh_llm import Block as ContentBase
from dsh_llm import ContentBlock, TextBlock
from dsh_session import ToolErrorInfo

from . import texts
from ._json import snapshot
from .errors import ToolOutputError
from .execution import Execution
from .types import Content, ToolDefinition, ToolExecutionResult, ToolFailure, ToolFault, ToolSuccess

ABORT_ERROR: Final = "AbortError"


def blocks(content: Content) -> tuple[ContentBlock, ...]:
    """Content as blocks; never without one.

    Raises:
        TypeError: Something else than text or blocks.
    """
    if isinstance(content, str):
        return (TextBlock(content or texts.NO_OUTPUT),)
    given: Sequence[ContentBlock] = content
    if not isinstance(given, Sequence) or not all(isinstance(b, ContentBase) for b in given):
        raise TypeError(f"content must be text or a sequence of blocks, not {content!r:.80}")
    return tuple(given) or (TextBlock(texts.NO_OUTPUT),)


def failure(
    message: str, info: ToolErrorInfo | None = None, *, content: Content | None = None
) -> ToolFailure:
    """A failed result; its content is the message behind the prefix unless given."""
    shown = f"{texts.ERROR_PREFIX}{message}" if content is None else content
    return ToolFailure(error=ToolFault(message=message, info=info), content=blocks(shown))


def failure_of(error: Exception) -> ToolFailure:
    """What becomes of an exception; only errors with a code tell programs what they are."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    info = None
    if isinstance(error, HarnessError):
        info = ToolErrorInfo(name=type(error).__name__, code=error.code)
    return failure(_message(error), info)


def aborted(*, started: bool) -> ToolFailure:
    """The result of a call that its caller no longer wanted."""
    if started:
        return failure(texts.ABORTED, ToolErrorInfo(name=ABORT_ERROR, code="ABORTED"))
    info = ToolErrorInfo(name=ABORT_ERROR, code="ABORTED_BEFORE_DISPATCH")
    return failure(texts.ABORTED_BEFORE_DISPATCH, info)


def success(definition: ToolDefinition, execution: Execution, value: object) -> ToolSuccess:
    """Check a value, freeze it, and render it.

    Raises:
        ToolOutputError: The value, its content or its meta is not what the definition promises.
    """
    name, output = definition.name, definition.output
    try:
        frozen = snapshot(value)
    except NotJsonError as error:
        raise _invalid(name, f"the value is {error.message}") from error
    violations = output._checked.violations(frozen, "value")
    if violations:
        raise _invalid(name, "; ".join(violation.text for violation in violations))
    try:
        content = blocks(output.render(execution._arguments, frozen))
        meta: object = msgspec.UNSET
        if output.presentation_meta is not None and execution._parent is None:
            meta = output.presentation_meta(execution._arguments, frozen)
    except Exception as error:
        raise _invalid(name, f"it could not be rendered: {_message(error)}") from error
    if meta is msgspec.UNSET:
        return ToolSuccess(value=frozen, content=content)
    try:
        return ToolSuccess(value=frozen, content=content, meta=snapshot(meta))
    except NotJsonError as error:
        raise _invalid(name, f"its meta is {error.message}") from error


def rebuilt(
    definition: ToolDefinition, execution: Execution, result: ToolSuccess, value: object
) -> ToolSuccess:
    """`result` with everything but its contexts made anew from `value`."""
    fresh = success(definition, execution, value)
    return msgspec.structs.replace(fresh, additional_contexts=result.additional_contexts)


def materialised(result: ToolExecutionResult, execution: Execution) -> ToolExecutionResult:
    """`result` with content that holds, and the flag of its execution."""
    if execution.settles(result):
        return result
    content = blocks(result.content)
    if isinstance(result, ToolSuccess):
        return msgspec.structs.replace(result, content=content, concludes_turn=execution._concluded)
    return msgspec.structs.replace(result, content=content)


def _invalid(name: str, cause: str) -> ToolOutputError:
    return ToolOutputError(texts.INVALID_OUTPUT.format(name=name, cause=cause))


def _message(error: Exception) -> str:
    try:
        text = error.message if isinstance(error, ExceptionGroup) else str(error)
    except Exception:  # noqa: BLE001  # foreign code renders itself here
        return texts.UNRENDERABLE
    return text or type(error).__name__
