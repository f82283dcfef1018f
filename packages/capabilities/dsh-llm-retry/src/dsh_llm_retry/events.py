"""What a retry leaves in the log; no model ever sees it.

Upstream: packages/llm/llm-retry/src/events.ts.
"""

from typing import ClassVar, Literal

from dsh_llm import LlmFailure, RetryId
from dsh_session import SessionEventData, register_session_event


@register_session_event
class LlmRetry(SessionEventData, frozen=True, kw_only=True):
    """A request failed and will be repeated; written before the wait."""

    type: ClassVar[str] = "llm/retry"
    retry_id: RetryId
    """The same for all retries of a chain: of one turn, step, provider and policy."""
    turn: int
    """Turn of the failed request."""
    step: int
    """Step of the failed request; its repetition has the same one."""
    provider: str
    """Route of the failed request."""
    mode: Literal["normal", "always"]
    """Of the policy."""
    policy_key: str
    """The policy as text; equal for equal policies."""
    retry: int
    """Number of the retry in its chain, from 1."""
    max_retries: int | None = None
    """Of the policy; absent in mode `always`."""
    delay_ms: int | float
    """How long the executor waits."""
    failure: LlmFailure
    """Why the request is repeated."""


@register_session_event
class LlmRetryStarted(SessionEventData, frozen=True, kw_only=True):
    """The wait is over and the request is repeated; missing if the wait was broken off."""

    type: ClassVar[str] = "llm/retry-started"
    retry_id: RetryId
    """Chain of the retry."""
    turn: int
    """As in its `llm/retry`."""
    step: int
    """As in its `llm/retry`."""
    retry: int
    """Number of the retry, as in its `llm/retry`."""
