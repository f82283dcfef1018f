"""What a session says about approval: policy, rules, and questions that are open."""

from typing import Final

import msgspec

from dsh_session import SessionEvent, SessionHeader
from dsh_session_projection import ProjectionDefinition

from .events import ApprovalAsked, ApprovalDecided, ApprovalPolicyEvent
from .rules import ApprovalRule

APPROVAL_KEY: Final = "approval"


class OpenQuestion(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A request without a decision yet."""

    id: str
    tool_name: str
    call_id: str | None = None
    reason: str | None = None


class ApprovalState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The state after a log."""

    policy: str | None = None
    """As last set in the session."""
    rules: tuple[ApprovalRule, ...] = ()
    """Of the session."""
    pending: tuple[OpenQuestion, ...] = ()
    """Oldest first."""


def approval_unit() -> ProjectionDefinition[ApprovalState]:
    """The projection; its view is the state as JSON."""
    return ProjectionDefinition(
        key=APPROVAL_KEY,
        state_version=1,
        init=_init,
        apply=_apply,
        view=lambda state: state,
        state_type=ApprovalState,
    )


def _init(header: SessionHeader, inherited_event_count: int) -> ApprovalState:
    return ApprovalState()


def _apply(state: ApprovalState, event: SessionEvent) -> ApprovalState:
    replace = msgspec.structs.replace
    match event.data:
        case ApprovalPolicyEvent(policy=policy, rules=None):
            return replace(state, policy=policy)
        case ApprovalPolicyEvent(policy=policy, rules=rules):
            return replace(state, policy=policy, rules=rules)
        case ApprovalAsked() as asked:
            question = OpenQuestion(asked.id, asked.tool_name, asked.call_id, asked.reason)
            return replace(state, pending=(*state.pending, question))
        case ApprovalDecided(id=decided):
            left = tuple(each for each in state.pending if each.id != decided)
            return replace(state, pending=left)
        case _:
            return state
