"""How a turn ends: the recorded reason for an abort or an error."""

from dsh_brand import error_chain
from dsh_llm import LlmError, LlmFailure
from dsh_session import (
    Aborted,
    CancelCause,
    DisposedCancel,
    ErrorEnd,
    HookCancel,
    ParentCancel,
    TurnEndReason,
    UserCancel,
)


class ClosingRefusedError(Exception):
    """The log refused an event that closes a step or turn; the turn stays open in it."""

    def __init__(self, what: str, reason: BaseException) -> None:
        super().__init__(f"the session refused {what}: {reason}")
        self.reason = reason


def aborted(cause: object) -> TurnEndReason:
    """The ending of an aborted turn: a fresh cause, without what a transport hung onto it."""
    recorded: CancelCause
    match cause:
        case HookCancel(reason=reason):
            recorded = HookCancel(reason=reason)
        case ParentCancel():
            recorded = ParentCancel()
        case DisposedCancel():
            recorded = DisposedCancel()
        case _:
            recorded = UserCancel()
    return Aborted(reason=recorded)


def failed(error: BaseException) -> TurnEndReason:
    """The ending of a failed turn: the facts of a model failure, else the rendered error."""
    speaker = _speaker(error)
    if isinstance(speaker, LlmError):
        return ErrorEnd(error=speaker.failure)
    return ErrorEnd(
        error=LlmFailure(message=error_chain(speaker) or type(speaker).__name__, code="UNKNOWN")
    )


def _speaker(error: BaseException) -> BaseException:
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = list(_leaves(error))
    first = next((leaf for leaf in leaves if isinstance(leaf, LlmError)), None)
    if first is not None:
        return first
    return leaves[0] if len(leaves) == 1 else error


def _leaves(group: BaseExceptionGroup[BaseException]) -> "list[BaseException]":
    leaves: list[BaseException] = []
    for member in group.exceptions:
        leaves.extend(_leaves(member) if isinstance(member, BaseExceptionGroup) else [member])
    return leaves
