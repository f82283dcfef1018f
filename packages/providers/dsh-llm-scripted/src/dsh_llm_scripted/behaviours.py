"""The named behaviours: what providers really do, one word each."""

import random
from collections.abc import Callable, Mapping

from .completions import (
    Call,
    closing,
    event,
    opening,
    stream_reply,
    text_events,
    text_reply,
    tool_call_reply,
)
from .replies import Part, Reply, error_reply, rate_limit, raw_reply, reset, slowly, stall

RANDOM = "random"
"""Draws one of the others from the server's seeded generator."""

_PARTIAL = "Half of a sen"


def _partial() -> list[bytes]:
    return [opening(), *text_events(_PARTIAL)]


def _html() -> Reply:
    page = b"<!doctype html><html><body>Sign in to the network</body></html>"
    headers = {"content-type": "text/html; charset=utf-8"}
    return raw_reply([page], headers=headers, name="wrong_content_type")


def _malformed(name: str, data: bytes) -> Reply:
    return stream_reply([opening(), data], name=name)


def _empty_body() -> Reply:
    return Reply(name="empty_body", parts=(Part(b""),), chunked=False)


def _context_overflow() -> Reply:
    message = (
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens. "
        "Please reduce the length of the messages."
    )
    code = "context_length_exceeded"
    return error_reply("context_overflow", 400, message, code=code, kind="invalid_request_error")


BEHAVIOURS: Mapping[str, Callable[[], Reply]] = {
    "connection_reset": reset,
    "stream_disconnect": lambda: stream_reply(
        [opening()], name="stream_disconnect", ending="disconnect"
    ),
    "partial_disconnect": lambda: stream_reply(
        _partial(), name="partial_disconnect", ending="disconnect"
    ),
    "stall": lambda: stall([opening()]),
    "empty": lambda: stream_reply([opening(), *closing("stop")], name="empty"),
    "empty_body": _empty_body,
    "stream_eof": lambda: stream_reply([opening()], name="stream_eof"),
    "partial_eof": lambda: stream_reply(_partial(), name="partial_eof"),
    "malformed_json": lambda: _malformed("malformed_json", b'data: {"choices": [\n\n'),
    "malformed_event": lambda: _malformed("malformed_event", event({"choices": "none"})),
    "wrong_content_type": _html,
    "rate_limit": rate_limit,
    "server_error": lambda: error_reply(
        "server_error", 500, "The server had an error", code="internal_error", kind="server_error"
    ),
    "service_unavailable": lambda: error_reply(
        "service_unavailable", 503, "The engine is overloaded", code="overloaded", kind="overloaded"
    ),
    "auth_error": lambda: error_reply(
        "auth_error", 401, "Incorrect API key provided", code="invalid_api_key", kind="auth_error"
    ),
    "invalid_request": lambda: error_reply(
        "invalid_request",
        400,
        "Invalid value for 'temperature'",
        code="invalid_value",
        kind="invalid_request_error",
    ),
    "context_overflow": _context_overflow,
    "quota_exceeded": lambda: error_reply(
        "quota_exceeded",
        429,
        "You exceeded your current quota, please check your plan",
        code="insufficient_quota",
        kind="insufficient_quota",
    ),
    "success": lambda: text_reply("All is well."),
    "slow_success": lambda: slowly(text_reply("Slow and steady.", name="slow_success"), 0.02),
    "reasoning_success": lambda: text_reply(
        "Forty-two.", reasoning="Count twice. Fine.", name="reasoning_success"
    ),
    "tool_call_success": lambda: tool_call_reply(Call("echo", {"text": "hello"})),
    "max_tokens": lambda: text_reply("Cut here", finish="length", name="max_tokens"),
}

_WEIGHTS = {"success": 10, "reasoning_success": 4, "tool_call_success": 4, "stall": 0}


def named(name: str, chance: random.Random) -> Reply:
    """The reply of a behaviour; `random` draws one, weighted towards success, never a stall.

    Raises:
        ValueError: No behaviour has this name.
    """
    if name == RANDOM:
        names = list(BEHAVIOURS)
        name = chance.choices(names, [_WEIGHTS.get(each, 1) for each in names])[0]
    build = BEHAVIOURS.get(name)
    if build is None:
        known = ", ".join([*BEHAVIOURS, RANDOM])
        raise ValueError(f"no behaviour is called {name!r}; there are: {known}")
    return build()
