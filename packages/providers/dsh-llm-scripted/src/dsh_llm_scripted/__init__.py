"""Scripted model and mock chat-completions HTTP server for tests.

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
from .errors import ScriptExhaustedError
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
    "Step",
    "apply",
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
    "tool_call_reply",
    "usage_event",
]
