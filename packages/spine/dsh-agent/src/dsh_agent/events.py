"""The live events of an agent, each scoped to the agent it is about."""

from typing import ClassVar

from dsh_cordis import Emit, Serial, Waterfall
from dsh_llm import AbortSignal, LlmCallConfig, LlmFailure, Message, RetryPolicy
from dsh_session import SessionId

from .handle import Agent
from .types import (
    AbandonedWork,
    AgentStatus,
    AssistantFrame,
    CreationSource,
    ModelSelection,
    PreStepDecision,
    Retry,
)


class AgentCreated(Serial[None], frozen=True, kw_only=True):
    """An agent exists and is listed. Raising undoes the creation; input given now runs after it."""

    name: ClassVar[str] = "agent/created"
    subject: ClassVar[str | None] = "agent"
    agent: Agent
    source: CreationSource
    """`startup` for new agents, `resume` for those read from a log."""
    signal: AbortSignal | None = None
    """Of the creation; aborted when it is being undone."""


class AgentSessionStart(Emit, frozen=True, kw_only=True):
    """All `agent/created` listeners are done and the first turn has not begun. Vetoes nothing."""

    name: ClassVar[str] = "agent/session-start"
    subject: ClassVar[str | None] = "agent"
    agent: Agent
    source: CreationSource
    """As in `agent/created`."""


class AgentDisposed(Emit, frozen=True, kw_only=True):
    """The agent left the registry. Only agents that were announced are reported."""

    name: ClassVar[str] = "agent/disposed"
    subject: ClassVar[str | None] = "agent"
    agent: Agent


class AgentStatusChanged(Emit, frozen=True, kw_only=True):
    """An agent began to run or went idle. `agent.status` may already be further on."""

    name: ClassVar[str] = "agent/status"
    subject: ClassVar[str | None] = "agent"
    agent: Agent
    status: AgentStatus
    """Of this transition."""


class InboxInserted(Emit, frozen=True, kw_only=True):
    """A message waits in the inbox."""

    name: ClassVar[str] = "agent/inbox/inserted"
    subject: ClassVar[str | None] = "agent"
    agent: Agent
    message: Message
    """As stored in the log."""


class InboxDiscarded(Emit, frozen=True, kw_only=True):
    """A pending message was taken out without being run."""

    name: ClassVar[str] = "agent/inbox/discarded"
    subject: ClassVar[str | None] = "agent"
    agent: Agent
    message: Message
    """As stored in the log."""


class InboxClaimed(Emit, frozen=True, kw_only=True):
    """A pending message was taken by a turn."""

    name: ClassVar[str] = "agent/inbox/claimed"
    subject: ClassVar[str | None] = "agent"
    agent: Agent
    message: Message
    """As stored in the log."""
    turn: int
    """Counts from 1."""


class AgentAssistantStream(Emit, frozen=True, kw_only=True):
    """A frame of a model attempt, live. What is durable stands in the session."""

    name: ClassVar[str] = "agent/assistant-stream"
    subject: ClassVar[str | None] = "agent"
    agent: Agent
    frame: AssistantFrame
    """Start, chunk or end of one attempt."""


class AgentError(Emit, frozen=True, kw_only=True):
    """A turn failed, or could not be opened or closed. Comes before its `turn/end`."""

    name: ClassVar[str] = "agent/error"
    subject: ClassVar[str | None] = "agent"
    agent: Agent
    turn: int
    """Counts from 1."""
    step: int
    """0 outside a step."""
    error: BaseException
    """As raised."""


class AgentAbandoned(Emit, frozen=True, kw_only=True):
    """Work outlived every grace period; its outcome is dropped."""

    name: ClassVar[str] = "agent/abandoned"
    subject: ClassVar[str | None] = "agent"
    agent: Agent
    work: AbandonedWork
    """What still runs."""


class PreStep(Waterfall[PreStepDecision], frozen=True, kw_only=True):
    """A step is proposed. Reject it, rewrite its messages, or add some around `next()`."""

    name: ClassVar[str] = "agent/pre-step"
    subject: ClassVar[str | None] = "agent"
    agent: Agent
    messages: tuple[Message, ...]
    """The claimed batch, the runtime context last."""
    turn: int
    """Counts from 1."""
    step: int
    """The number the step will have."""
    signal: AbortSignal
    """Of the turn; aborts when the turn is cancelled."""
    selection: ModelSelection | None
    """The model captured for this step."""
    request_owed: bool
    """A request follows even for an empty batch."""


class AgentRequest(Waterfall[LlmCallConfig], frozen=True, kw_only=True):
    """The call configuration of an attempt; sampling may change, the route may not. Deprecated."""

    name: ClassVar[str] = "agent/request"
    subject: ClassVar[str | None] = "agent"
    agent: Agent
    turn: int
    """Counts from 1."""
    step: int
    """Counts from 1 in each turn."""
    signal: AbortSignal
    """Of the turn; aborts when the turn is cancelled."""


class AgentRequestError(Waterfall[Retry | None], frozen=True, kw_only=True):
    """An attempt ended in a failure. Answer `Retry()` to make another one in the same step."""

    name: ClassVar[str] = "agent/request-error"
    subject: ClassVar[str | None] = "agent"
    agent: Agent
    turn: int
    """Counts from 1."""
    step: int
    """Counts from 1 in each turn."""
    provider: str
    """The route that failed."""
    failure: LlmFailure
    """Facts of the failure; policies look at its `code`."""
    retry_policy: RetryPolicy | None
    """Of the prepared call; `None` for a route without adapter."""
    signal: AbortSignal
    """Of the turn; aborts when the turn is cancelled."""


class TurnStopping(Serial[None], frozen=True, kw_only=True):
    """A turn has an ending and nothing more to do. Steering or injecting here keeps it open."""

    name: ClassVar[str] = "agent/turn-stopping"
    subject: ClassVar[str | None] = "agent"
    agent: Agent
    turn: int
    """Counts from 1."""
    signal: AbortSignal
    """Of the turn; aborts when the turn is cancelled."""


class ConfigStartFailed(Emit, frozen=True, kw_only=True):
    """An agent that the configuration names could not be started; the others go on."""

    name: ClassVar[str] = "agent-loop/config-start-failed"
    session_id: SessionId
    """Of the session that was to be created or resumed."""
    error: BaseException
    """As raised."""
