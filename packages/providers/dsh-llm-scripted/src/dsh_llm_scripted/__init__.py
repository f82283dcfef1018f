"""Scripted model and mock provider over HTTP for tests, in both streaming protocols.

The package itself is the plugin: `ctx.plugin(dsh_llm_scripted, ScriptedAdapter([...]))`.
"""

from .adapter import Answer, Entry, Hang, ScriptedAdapter, ScriptedRoute
from .behaviours import BEHAVIOURS
from .chunks import call_chunks, text_chunks
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
from .dialects import Speech
from .errors import ScriptExhaustedError
from .messages import (
    block_delta,
    block_start,
    block_stop,
    message_closing,
    message_error_reply,
    message_event,
    message_opening,
    message_text_events,
    message_text_reply,
    message_tool_reply,
    thinking_events,
    tool_use_events,
)
from .plugin import apply, name
from .replay import script_from_log
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
from .script import chunk_script, load_script
from .server import MockServer, RecordedRequest, Step

__all__ = [
    "BEHAVIOURS",
    "Answer",
    "Call",
    "Entry",
    "Hang",
    "MockServer",
    "Part",
    "RecordedRequest",
    "Reply",
    "ScriptExhaustedError",
    "ScriptedAdapter",
    "ScriptedRoute",
    "Speech",
    "Step",
    "apply",
    "block_delta",
    "block_start",
    "block_stop",
    "bytewise",
    "call_chunks",
    "call_events",
    "chunk_script",
    "closing",
    "delta_event",
    "error_reply",
    "event",
    "json_reply",
    "load_script",
    "message_closing",
    "message_error_reply",
    "message_event",
    "message_opening",
    "message_text_events",
    "message_text_reply",
    "message_tool_reply",
    "name",
    "opening",
    "rate_limit",
    "raw_reply",
    "reset",
    "script_from_log",
    "slowly",
    "split_at",
    "stall",
    "stream_reply",
    "text_chunks",
    "text_events",
    "text_reply",
    "thinking_events",
    "tool_call_reply",
    "tool_use_events",
    "usage_event",
]
