"""The two dialects of the mock server, and speech that is put into the one a client speaks."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import msgspec
from typing_extensions import override

from . import completions, messages
from ._strict import broken_messages_rule, broken_rule
from .completions import Call, FinishWord
from .replies import Reply, error_reply

_STOP_REASONS: Mapping[FinishWord, messages.StopReason] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


class Speech(msgspec.Struct, frozen=True, kw_only=True):
    """What the model says, whatever protocol it is asked in."""

    text: str | Sequence[str] = ""
    """Cut after each space; a sequence gives the deltas themselves."""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    finish: FinishWord | None = None
    """Left out: `tool_calls` with calls, else `stop`."""
    name: str = ""
    """Shown as the behaviour; by default the one that fits."""

    @property
    def finish_word(self) -> FinishWord:
        """The finish word that is sent."""
        return self.finish or ("tool_calls" if self.calls else "stop")


class Dialect(ABC):
    """How one protocol says things."""

    path_end: str
    """Requests to a path with this end are in this dialect."""
    malformed_event: bytes
    """An event that is JSON of a wrong shape."""

    @abstractmethod
    def speak(self, speech: Speech) -> Reply:
        """The whole answer."""

    @abstractmethod
    def opening(self) -> bytes:
        """The first event, without content."""

    @abstractmethod
    def partial(self, text: str) -> list[bytes]:
        """An answer that breaks off after some words."""

    @abstractmethod
    def empty(self) -> list[bytes]:
        """An answer that stops without content."""

    @abstractmethod
    def error(
        self, name: str, status: int, message: str, *, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """An HTTP error that is known by its status."""

    @abstractmethod
    def context_overflow(self) -> Reply:
        """The request does not fit the model's context window."""

    @abstractmethod
    def quota_exceeded(self) -> Reply:
        """The account is empty."""

    @abstractmethod
    def broken_rule(self, body: Mapping[str, object]) -> str | None:
        """What a strict provider would refuse in a request, `None` if nothing."""


class Completions(Dialect):
    """Chat completions."""

    path_end = "/chat/completions"
    malformed_event = completions.event({"choices": "none"})
    _KINDS: Mapping[int, tuple[str, str]] = {
        400: ("invalid_value", "invalid_request_error"),
        401: ("invalid_api_key", "auth_error"),
        429: ("rate_limit_exceeded", "requests"),
        500: ("internal_error", "server_error"),
        503: ("overloaded", "overloaded"),
    }

    @override
    def speak(self, speech: Speech) -> Reply:
        if speech.calls:
            reply = completions.tool_call_reply(
                *speech.calls,
                text=speech.text,
                reasoning=speech.reasoning,
                finish=speech.finish_word,
            )
        else:
            reply = completions.text_reply(
                speech.text, reasoning=speech.reasoning, finish=speech.finish_word
            )
        return _named(reply, speech)

    @override
    def opening(self) -> bytes:
        return completions.opening()

    @override
    def partial(self, text: str) -> list[bytes]:
        return [completions.opening(), *completions.text_events(text)]

    @override
    def empty(self) -> list[bytes]:
        return [completions.opening(), *completions.closing("stop")]

    @override
    def error(
        self, name: str, status: int, message: str, *, headers: Mapping[str, str] | None = None
    ) -> Reply:
        code, kind = self._KINDS.get(status, ("mock", "invalid_request_error"))
        return error_reply(name, status, message, code=code, kind=kind, headers=headers)

    @override
    def context_overflow(self) -> Reply:
        message = (
            "This model's maximum context length is 8192 tokens. However, you requested 9000 "
            "tokens. Please reduce the length of the messages."
        )
        code = "context_length_exceeded"
        kind = "invalid_request_error"
        return error_reply("context_overflow", 400, message, code=code, kind=kind)

    @override
    def quota_exceeded(self) -> Reply:
        message = "You exceeded your current quota, please check your plan"
        code = "insufficient_quota"
        return error_reply("quota_exceeded", 429, message, code=code, kind=code)

    @override
    def broken_rule(self, body: Mapping[str, object]) -> str | None:
        return broken_rule(body)


class Messages(Dialect):
    """The Messages protocol."""

    path_end = "/messages"
    malformed_event = messages.message_event("content_block_delta", index=0, delta="none")
    _KINDS: Mapping[int, str] = {
        401: "authentication_error",
        404: "not_found_error",
        429: "rate_limit_error",
        500: "api_error",
        503: "overloaded_error",
    }

    @override
    def speak(self, speech: Speech) -> Reply:
        stop = _STOP_REASONS[speech.finish_word]
        if speech.calls:
            reply = messages.message_tool_reply(
                *speech.calls, text=speech.text, reasoning=speech.reasoning, stop_reason=stop
            )
        else:
            reply = messages.message_text_reply(
                speech.text, reasoning=speech.reasoning, stop_reason=stop
            )
        return _named(reply, speech)

    @override
    def opening(self) -> bytes:
        return messages.message_opening()

    @override
    def partial(self, text: str) -> list[bytes]:
        return [messages.message_opening(), *messages.message_text_events(text)[:-1]]

    @override
    def empty(self) -> list[bytes]:
        return [messages.message_opening(), *messages.message_closing("end_turn")]

    @override
    def error(
        self, name: str, status: int, message: str, *, headers: Mapping[str, str] | None = None
    ) -> Reply:
        kind = self._KINDS.get(status, "invalid_request_error")
        return messages.message_error_reply(name, status, message, kind=kind, headers=headers)

    @override
    def context_overflow(self) -> Reply:
        message = "prompt is too long: 9000 tokens > 8192 maximum"
        return self.error("context_overflow", 400, message)

    @override
    def quota_exceeded(self) -> Reply:
        message = "Your credit balance is too low to access the API"
        return self.error("quota_exceeded", 400, message)

    @override
    def broken_rule(self, body: Mapping[str, object]) -> str | None:
        return broken_messages_rule(body)


COMPLETIONS = Completions()
MESSAGES = Messages()
_DIALECTS: Sequence[Dialect] = (COMPLETIONS, MESSAGES)


def dialect_of(path: str) -> Dialect | None:
    """The dialect of a request's path, query left aside; `None` where there is no endpoint."""
    endpoint = path.partition("?")[0]
    return next((each for each in _DIALECTS if endpoint.endswith(each.path_end)), None)


def _named(reply: Reply, speech: Speech) -> Reply:
    return msgspec.structs.replace(reply, name=speech.name) if speech.name else reply
