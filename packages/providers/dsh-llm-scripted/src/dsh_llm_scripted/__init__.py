"""Scripted model and mock chat-completions HTTP server for tests."""

from .behaviours import BEHAVIOURS
from .completions import (
    Call,
    call_events,
    closing,
    delta_event,
    event,
    opening,
    stream_reply,
    text_events,
    text_reply,
    tool_call_reply,
    usage_event,
)
from .replies import (
    Part,
    Reply,
    bytewise,
    error_reply,
    json_reply,
    rate_limit,
    raw_reply,
    reset,
    slowly,
    split_at,
    stall,
)
from .server import MockServer, RecordedRequest, Step

__all__ = [
    "BEHAVIOURS",
    "Call",
    "MockServer",
    "Part",
    "RecordedRequest",
    "Reply",
    "Step",
    "bytewise",
    "call_events",
    "closing",
    "delta_event",
    "error_reply",
    "event",
    "json_reply",
    "opening",
    "rate_limit",
    "raw_reply",
    "reset",
    "slowly",
    "split_at",
    "stall",
    "stream_reply",
    "text_events",
    "text_reply",
    "tool_call_reply",
    "usage_event",
]
