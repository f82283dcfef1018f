"""What approval leaves in the log, and the question itself.

Upstream: packages/approval/user-approval/src/events.ts.
"""

from typing import ClassVar, Final, Literal, TypeAlias, get_args

from dsh_agent import Agent
from dsh_cordis import Waterfall
from dsh_llm import AbortSignal, CallId, ProducerSource, register_source
from dsh_session import SessionEventData, register_session_event

from .rules import ApprovalRule

ApprovalOutcome: TypeAlias = Literal["allowed-once", "rejected", "cancelled", "unavailable"]
"""How a request ended; only the first lets the call run, and this call only."""

ApprovalPolicy: TypeAlias = Literal["ask", "never"]
"""Ask somebody, or reject every request at once."""

OUTCOMES: Final[frozenset[str]] = frozenset(get_args(ApprovalOutcome))
POLICIES: Final[frozenset[str]] = frozenset(get_args(ApprovalPolicy))


@register_session_event
class ApprovalAsked(SessionEventData, frozen=True, kw_only=True):
    """A call waits for approval; `approval/decided` with the same id follows."""

    type: ClassVar[str] = "approval/asked"
    id: str
    """Of the request."""
    tool_name: str
    """The tool that is to run."""
    call_id: CallId | None = None
    """Of the call, where the request serves one."""
    reason: str | None = None
    """Why approval is needed, for the person."""


@register_session_event
class ApprovalDecided(SessionEventData, frozen=True, kw_only=True):
    """A request is settled; there is exactly one for each `approval/asked`."""

    type: ClassVar[str] = "approval/decided"
    id: str
    """Of the request."""
    outcome: str
    """`allowed-once`, `rejected`, `cancelled` or `unavailable`."""


@register_session_event
class ApprovalPolicyEvent(SessionEventData, frozen=True, kw_only=True):
    """The policy of the session from here on; the last one counts."""

    type: ClassVar[str] = "approval/policy"
    policy: str
    """`ask` or `never`."""
    source: str | None = None
    """What set it, if not a person, such as `delegation`."""
    rules: tuple[ApprovalRule, ...] | None = None
    """The rules of the session; absent: as before."""


@register_source
class ApprovalSource(ProducerSource, frozen=True, tag="user-approval"):
    """The policy was changed."""


class ApprovalRequest(Waterfall[ApprovalOutcome], frozen=True, kw_only=True):
    """A call needs approval: answer, or pass the question on by `next()`.

    The default is `unavailable`, or the answer of `ctx.approval.answer()` while somebody attends.
    Raising and unknown answers count as `unavailable`. Nobody is cancelled when the question is
    settled otherwise: watch `signal`.
    """

    name: ClassVar[str] = "approval/request"
    subject: ClassVar[str | None] = "agent"
    agent: Agent
    """Whose call it is."""
    id: str
    """Of the request, as in `approval/asked`."""
    tool_name: str
    """The tool that is to run."""
    call_id: CallId | None = None
    """Of the call, where the request serves one."""
    reason: str | None = None
    """Why approval is needed, for the person."""
    signal: AbortSignal
    """Aborts when an answer is no longer wanted."""
