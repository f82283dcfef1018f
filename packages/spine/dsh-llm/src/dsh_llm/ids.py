"""Branded ids: plain strings at run time, told apart by the type checker only."""

from typing import NewType

MessageId = NewType("MessageId", str)
"""Identifies a message; a rewrite of a message keeps it."""

CallId = NewType("CallId", str)
"""Correlates a tool call with its result (`ToolCallId` upstream)."""

ProviderRequestId = NewType("ProviderRequestId", str)
"""What a provider calls one request, for its support desk."""

ReasoningEffortId = NewType("ReasoningEffortId", str)
"""One of the reasoning efforts that a model offers."""

RetryId = NewType("RetryId", str)
"""Names one chain of retries."""
