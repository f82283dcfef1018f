"""Branded ids: plain strings at run time, told apart by the type checker only."""

import os
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


def fresh_message_id() -> MessageId:
    """A random UUID; written here because `uuid` takes as long for one as making the message."""
    text = os.urandom(16).hex()
    variant = "89ab"[int(text[16], 16) & 3]
    return MessageId(f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}")
