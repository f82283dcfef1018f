"""What flows through an agent: options, causes, decisions, frames.

Upstream: packages/agent/agent/src/types.ts.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from dsh_brand import Wire
from dsh_llm import Message, StreamChunk

from .errors import AgentOptionsError

AgentStatus = Literal["idle", "running"]
InboxTarget = Literal["next-turn", "next-step"]
CreationSource = Literal["startup", "resume", "clear", "compact"]

_MAX_SAFE_INTEGER = 2**53 - 1


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent calls its model until its log or a selection says otherwise."""

    provider: str | None = None
    model: str | None = None
    reasoning_effort: str | None = None
    max_tokens: int | None = None
    """Output cap in tokens of each request; `None` keeps the provider's default."""

    def __post_init__(self) -> None:
        cap: object = self.max_tokens
        if cap is None:
            return
        if isinstance(cap, bool) or not isinstance(cap, int) or not 1 <= cap <= _MAX_SAFE_INTEGER:
            raise AgentOptionsError(
                f"max_tokens must be an integer from 1 to 2**53-1, not {cap!r}",
                "INVALID_MAX_TOKENS",
            )


class ModelSelection(Wire, frozen=True, kw_only=True):
    """A whole choice of model: route and effort."""

    provider: str
    model: str
    reasoning_effort: str | None = None


# ---- decisions ----------------------------------------------------------------------------


class Enter(msgspec.Struct, frozen=True):
    """Enter the step with exactly these messages.

    A listener that wraps another decision keeps its `starts_request_series`.
    """

    messages: Sequence[Message]
    starts_request_series: bool = False
    """Declares that a new message series begins with this request."""


class Reject(msgspec.Struct, frozen=True):
    """Close the turn as blocked; the claimed messages are lost."""


class Retry(msgspec.Struct, frozen=True):
    """Make another attempt in the same step."""


PreStepDecision = Enter | Reject


# ---- frames of the live stream -------------------------------------------------------------


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt was recorded."""

    event_type: Literal["assistant/message", "assistant/attempt"]
    seq: int
    """Of the durable event."""


class Abandoned(msgspec.Struct, frozen=True):
    """The append of the durable event was refused."""


FrameOutcome = Committed | Abandoned


class StreamStart(msgspec.Struct, frozen=True, kw_only=True):
    """A model attempt was dispatched."""

    attempt_id: str
    revision: int
    """Counts all frames of the agent instance from 1, without gaps."""
    turn: int
    step: int


class StreamChunkFrame(msgspec.Struct, frozen=True, kw_only=True):
    """One chunk of the attempt, as its durable stream holds it."""

    attempt_id: str
    revision: int
    index: int
    """Dense, from 0."""
    time: int
    """Epoch milliseconds."""
    chunk: StreamChunk


class StreamEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt is settled."""

    attempt_id: str
    revision: int
    index: int
    """Number of chunks."""
    outcome: FrameOutcome


AssistantFrame = StreamStart | StreamChunkFrame | StreamEnd


class AbandonedWork(msgspec.Struct, frozen=True, kw_only=True):
    """Work that outlived every grace period and was given up."""

    kind: str
    label: str
    call_id: str | None
    age_s: float
    """Since it began."""
