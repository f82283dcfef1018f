"""Branded ids: plain strings at run time, told apart by the type checker only."""

import os
from typing import Final, NewType

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


_VARIANTS: Final = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
"""The digit of an id that tells its form, by two random bits of the one in its place."""


def fresh_uuid() -> str:
    """A random UUID; written here because `uuid` takes as long for one as making a message."""
    text = os.urandom(16).hex()
    variant = _VARIANTS[text[16]]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"
