"""Errors that a stream reports, as the finish that ends it (L130, L133, L134, L175)."""

from collections.abc import Callable, Mapping

from dsh_brand import scrub_surrogates
from dsh_llm import (
    ErrorFinish,
    FinishReason,
    LlmError,
    LlmFailure,
    MaxTokensFinish,
    StopFinish,
    ToolCallsFinish,
    codes,
)

from .classify import ErrorFacts, error_facts, payload_code

_STOP_WORDS = frozenset({"stop", "eos", "eos_token", "stop_sequence", "end_turn"})
_CALL_WORDS = frozenset({"tool_calls", "function_call", "tool_use"})
_LENGTH_WORDS = frozenset({"length", "max_tokens", "model_length"})
_FAULT_WORDS: Mapping[str, str] = {
    "network_error": codes.TRANSPORT,
    "connection_error": codes.TRANSPORT,
    "timeout": codes.TIMEOUT,
    "server_error": codes.SERVER,
    "internal_error": codes.SERVER,
    "overloaded": codes.SERVER,
    "rate_limit": codes.RATE_LIMIT,
}
"""Finish words that name a fault of the way rather than of the request."""


class StreamFinishes:
    """Makes the finish of one response.

    Args:
        label: How the route is named to people.
        redact: Takes the credential out of provider text.
        request_id: The provider's id of the request, from the response headers.
    """

    def __init__(
        self, label: str, redact: Callable[[str], str], request_id: str | None = None
    ) -> None:
        self.label = label
        self._redact = redact
        self._request_id = request_id

    def completed(self, word: str, *, content: bool) -> FinishReason:
        """The response completed.

        Args:
            word: The provider's finish word, empty without one.
            content: Whether the response opened a block.
        """
        if word in _CALL_WORDS:
            return ToolCallsFinish()
        if word in _LENGTH_WORDS:
            return MaxTokensFinish()
        if word and word not in _STOP_WORDS:
            return self.refused(word)
        if not content:
            message = f"{self.label} completed the response without any content"
            return self.error(message, codes.EMPTY_RESPONSE)
        return StopFinish()

    def refused(self, word: str, explanation: str = "") -> ErrorFinish:
        """The response ended with a word that says neither stop, calls nor length."""
        shown = self._redact(scrub_surrogates(word))
        code = _FAULT_WORDS.get(word, shown.upper())
        said = f": {self._redact(explanation)}" if explanation else ""
        message = f"{self.label} ended the stream with finish reason {shown!r}{said}"
        return self.error(message, code)

    def reported(self, body: Mapping[str, object], kinds: Mapping[str, str] = {}) -> ErrorFinish:
        """A payload reports an error.

        Args:
            body: The payload.
            kinds: Error types of the protocol that have a code of their own.
        """
        facts = (error_facts(body) or ErrorFacts()).redacted(self._redact)
        code, status = payload_code(facts)
        code = kinds.get(facts.kind, code)
        message = facts.message or f"{self.label} reported an error inside the stream"
        return self.error(message, code, status, body.get("request_id"))

    def error(
        self, message: str, code: str, status: int | None = None, request_id: object = None
    ) -> ErrorFinish:
        """Any other error; `request_id` is the last resort when no header named one."""
        last_resort = request_id if isinstance(request_id, str) and request_id else None
        return ErrorFinish(
            LlmFailure(
                message=scrub_surrogates(message),
                code=code,
                status=status,
                request_id=self._request_id or last_resort,
            )
        )

    def closed(self) -> LlmError:
        """The body ended before the response did."""
        return LlmError(
            f"{self.label} closed the stream without a finish reason or the end mark",
            codes.STREAM_CLOSED,
            request_id=self._request_id,
        )
