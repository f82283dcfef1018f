"""Why a turn ended, and who cancelled it. Both sums are open: unknown kinds are kept."""

from typing import TYPE_CHECKING, TypeAlias, TypeVar

from dsh_brand import OpenUnion, Wire
from dsh_llm import LlmFailure

R = TypeVar("R", bound="TurnEndReason")


class CancelCause(Wire, frozen=True, kw_only=True, tag_field="kind", gc=False):
    """Base of the causes of a cancellation."""


class UserCancel(CancelCause, frozen=True, kw_only=True, tag="user"):
    """A person asked for it."""


class ParentCancel(CancelCause, frozen=True, kw_only=True, tag="parent"):
    """The agent that started this one was cancelled."""


class HookCancel(CancelCause, frozen=True, kw_only=True, tag="hook"):
    """A plugin asked for it."""

    reason: str


class DisposedCancel(CancelCause, frozen=True, kw_only=True, tag="disposed"):
    """The agent was disposed."""


class LegacyCancel(CancelCause, frozen=True, kw_only=True, tag="legacy"):
    """An old log that recorded no cause."""


class OpaqueCancel(CancelCause, frozen=True, kw_only=True, tag=False):
    """A cause that nobody registered, whole in `extra`."""


cancel_causes = OpenUnion(CancelCause, OpaqueCancel)
for _cause in (UserCancel, ParentCancel, HookCancel, DisposedCancel, LegacyCancel):
    cancel_causes.register(_cause)

if TYPE_CHECKING:  # the decoder reads the members, a type checker their base
    AnyCancelCause: TypeAlias = CancelCause
else:
    AnyCancelCause = UserCancel | ParentCancel | HookCancel | DisposedCancel | LegacyCancel


class TurnEndReason(Wire, frozen=True, kw_only=True, tag_field="kind", gc=False):
    """Base of the reasons why a turn ended."""


class Completed(TurnEndReason, frozen=True, kw_only=True, tag="completed"):
    """The model had no more to do."""


class Aborted(TurnEndReason, frozen=True, kw_only=True, tag="aborted"):
    """The turn was cancelled."""

    reason: AnyCancelCause


class Blocked(TurnEndReason, frozen=True, kw_only=True, tag="blocked"):
    """A plugin rejected the input before a step."""


class ErrorEnd(TurnEndReason, frozen=True, kw_only=True, tag="error"):
    """The turn failed."""

    error: LlmFailure


class MaxTokens(TurnEndReason, frozen=True, kw_only=True, tag="max-tokens"):
    """The model hit its output limit."""


class Interrupted(TurnEndReason, frozen=True, kw_only=True, tag="interrupted"):
    """The process died in the turn; written by recovery only."""


class Forked(TurnEndReason, frozen=True, kw_only=True, tag="forked"):
    """A fork cut the turn; written into the child only."""


class OpaqueEnd(TurnEndReason, frozen=True, kw_only=True, tag=False):
    """A reason that nobody registered, whole in `extra`."""


turn_end_reasons = OpenUnion(TurnEndReason, OpaqueEnd)
for _reason in (Completed, Aborted, Blocked, ErrorEnd, MaxTokens, Interrupted, Forked):
    turn_end_reasons.register(_reason)

if TYPE_CHECKING:  # as above
    EndReason: TypeAlias = TurnEndReason
else:
    EndReason = Completed | Aborted | Blocked | ErrorEnd | MaxTokens | Interrupted | Forked


def register_turn_end_reason(cls: type[R]) -> type[R]:
    """Teach the log a kind of turn end, by its tag; usable as a decorator."""
    return turn_end_reasons.register(cls)
