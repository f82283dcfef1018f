"""The named behaviours: what providers really do, one word each, in the dialect of the request."""

import random
from collections.abc import Callable, Mapping

from .completions import Call, stream_reply
from .dialects import COMPLETIONS, Dialect, Speech
from .replies import Part, Reply, raw_reply, reset, slowly, stall, whole_seconds

RANDOM = "random"
"""Draws one of the others from the server's seeded generator."""

_PARTIAL = "Half of a sen"


def _html(_: Dialect) -> Reply:
    page = b"<!doctype html><html><body>Sign in to the network</body></html>"
    headers = {"content-type": "text/html; charset=utf-8"}
    return raw_reply([page], headers=headers, name="wrong_content_type")


def _malformed(name: str, opening: bytes, data: bytes) -> Reply:
    return stream_reply([opening, data], name=name)


def _empty_body(_: Dialect) -> Reply:
    return Reply(name="empty_body", parts=(Part(b""),), chunked=False)


def _rate_limit(dialect: Dialect) -> Reply:
    headers = {"retry-after": whole_seconds(1.0)}
    message = "Rate limit reached for requests"
    return dialect.error("rate_limit", 429, message, headers=headers)


BEHAVIOURS: Mapping[str, Callable[[Dialect], Reply]] = {
    "connection_reset": lambda _: reset(),
    "stream_disconnect": lambda d: stream_reply(
        [d.opening()], name="stream_disconnect", ending="disconnect"
    ),
    "partial_disconnect": lambda d: stream_reply(
        d.partial(_PARTIAL), name="partial_disconnect", ending="disconnect"
    ),
    "stall": lambda d: stall([d.opening()]),
    "empty": lambda d: stream_reply(d.empty(), name="empty"),
    "empty_body": _empty_body,
    "stream_eof": lambda d: stream_reply([d.opening()], name="stream_eof"),
    "partial_eof": lambda d: stream_reply(d.partial(_PARTIAL), name="partial_eof"),
    "malformed_json": lambda d: _malformed("malformed_json", d.opening(), b'data: {"a": [\n\n'),
    "malformed_event": lambda d: _malformed("malformed_event", d.opening(), d.malformed_event),
    "wrong_content_type": _html,
    "rate_limit": _rate_limit,
    "server_error": lambda d: d.error("server_error", 500, "The server had an error"),
    "service_unavailable": lambda d: d.error(
        "service_unavailable", 503, "The engine is overloaded"
    ),
    "auth_error": lambda d: d.error("auth_error", 401, "Incorrect API key provided"),
    "invalid_request": lambda d: d.error("invalid_request", 400, "Invalid value for 'temperature'"),
    "context_overflow": lambda d: d.context_overflow(),
    "quota_exceeded": lambda d: d.quota_exceeded(),
    "success": lambda d: d.speak(Speech(text="All is well.")),
    "slow_success": lambda d: slowly(
        d.speak(Speech(text="Slow and steady.", name="slow_success")), 0.02
    ),
    "reasoning_success": lambda d: d.speak(
        Speech(text="Forty-two.", reasoning="Count twice. Fine.", name="reasoning_success")
    ),
    "tool_call_success": lambda d: d.speak(Speech(calls=(Call("echo", {"text": "hello"}),))),
    "max_tokens": lambda d: d.speak(Speech(text="Cut here", finish="length", name="max_tokens")),
}

_WEIGHTS = {"success": 10, "reasoning_success": 4, "tool_call_success": 4, "stall": 0}


def named(name: str, chance: random.Random, dialect: Dialect = COMPLETIONS) -> Reply:
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
    return build(dialect)
