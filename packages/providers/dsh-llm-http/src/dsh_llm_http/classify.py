"""Provider errors to stable failure codes.

Upstream: packages/llm/llm-openai/src/errors.ts; both adapters classify alike.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from dsh_llm import LlmError, codes, is_context_window_exceeded_error, is_quota_exceeded_error

REQUEST_ID_HEADERS = ("x-request-id", "request-id", "x-deepseek-request-id")
_MAX_DELAY_DIGITS = 15
_HTTP_DATE = re.compile(
    r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d(?: GMT| UTC)?"
    r"|[A-Z][a-z]{5,8}, \d\d-[A-Z][a-z]{2}-\d\d \d\d:\d\d:\d\d(?: GMT| UTC)?"
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"
)
"""The three forms of HTTP: fixed length, the old one with the day spelled out, asctime."""

_WORDS: Sequence[tuple[Sequence[str], str]] = (
    (("authentication", "permission", "api_key", "api key", "apikey", "unauthorized"), codes.AUTH),
    (("rate_limit", "rate limit", "ratelimit", "too_many_requests"), codes.RATE_LIMIT),
    (("timeout", "timed_out", "timed out"), codes.TIMEOUT),
    (
        (
            "overloaded",
            "server_error",
            "server error",
            "servererror",
            "api_error",
            "api error",
            "internal_error",
            "internal error",
            "internalerror",
            "unavailable",
        ),
        codes.SERVER,
    ),
    (
        (
            "invalid_request",
            "invalid request",
            "bad_request",
            "bad request",
            "too_large",
            "too large",
        ),
        codes.INVALID_REQUEST,
    ),
)
"""Words in an error's type and code, asked in this order."""


class ErrorFacts(msgspec.Struct, frozen=True):
    """What a provider says about its error, as text."""

    message: str = ""
    kind: str = ""
    code: str = ""
    status: str = ""

    @property
    def wording(self) -> str:
        """Code, type and message, for the wording rules."""
        return " ".join(part for part in (self.code, self.kind, self.message) if part)

    def redacted(self, redact: Callable[[str], str]) -> "ErrorFacts":
        """The same facts without the credential in their text."""
        return ErrorFacts(redact(self.message), redact(self.kind), redact(self.code), self.status)


def error_facts(body: object) -> ErrorFacts | None:
    """Read an error body in any of the forms that services use; `None` if it is none of them."""
    if isinstance(body, list) and len(body) == 1:
        body = body[0]
    if not isinstance(body, Mapping):
        return None
    error = body.get("error")
    if isinstance(error, Mapping):
        return _facts(error)
    if isinstance(error, str) and error:
        return ErrorFacts(message=error)
    if any(_text(body.get(name)) for name in ("message", "type", "code")):
        return _facts(body)
    return _detail_facts(body.get("detail"))


def _detail_facts(detail: object) -> ErrorFacts | None:
    if isinstance(detail, str) and detail:
        return ErrorFacts(message=detail)
    if isinstance(detail, list) and detail and isinstance(detail[0], Mapping):
        return ErrorFacts(message=_text(detail[0].get("msg")))
    return None


def _facts(error: Mapping[str, object]) -> ErrorFacts:
    return ErrorFacts(
        message=_text(error.get("message")),
        kind=_text(error.get("type")),
        code=_text(error.get("code")),
        status=_text(error.get("status")),
    )


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return ""


def status_code(status: int, wording: str) -> str:
    """The failure code of an HTTP status with the error's wording (L96)."""
    if status in (401, 403):
        return codes.AUTH
    if status == 413:
        return codes.INVALID_REQUEST
    if is_quota_exceeded_error(wording):
        return codes.QUOTA
    if status == 429:
        return codes.RATE_LIMIT
    if status == 400:
        overflow = is_context_window_exceeded_error(wording)
        return codes.CONTEXT_WINDOW_EXCEEDED if overflow else codes.INVALID_REQUEST
    if status >= 500:
        return codes.SERVER
    if status in (204, 205):
        return codes.EMPTY_RESPONSE
    return codes.http_code(status)


def payload_code(facts: ErrorFacts) -> tuple[str, int | None]:
    """Code and status of an error inside a 200 stream (L134)."""
    for text in (facts.status, facts.code):
        if text.isascii() and text.isdigit() and len(text) == 3 and 400 <= int(text) <= 599:
            return status_code(int(text), facts.wording), int(text)
    if is_quota_exceeded_error(facts.wording):
        return codes.QUOTA, None
    if is_context_window_exceeded_error(facts.wording):
        return codes.CONTEXT_WINDOW_EXCEEDED, None
    label = f"{facts.kind} {facts.code}".lower()
    for words, code in _WORDS:
        if any(word in label for word in words):
            return code, None
    return codes.PROVIDER_ERROR, None


def http_failure(
    label: str,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    redact: Callable[[str], str],
    now: datetime | None = None,
) -> LlmError:
    """The error of a response that is not a success.

    Args:
        label: How the route is named to people.
        status: The HTTP status.
        headers: Response headers, names in any letter case if the mapping ignores it.
        body: What could be read of the body, possibly nothing.
        redact: Takes the credential out of provider text.
        now: The time that a `Retry-After` date is compared with.
    """
    text = redact(body.decode("utf-8", "replace"))
    facts = (error_facts(_parsed(body)) or ErrorFacts()).redacted(redact)
    message = facts.message or f"{label} API error (HTTP {status})"
    return LlmError(
        message,
        status_code(status, facts.wording),
        status=status,
        provider_retry_after_ms=retry_after_ms(headers, now),
        request_id=request_id(headers),
        cause=ProviderBodyError(text) if text else None,
    )


class ProviderBodyError(Exception):
    """The text of an error response, kept as the cause of the failure; the key is taken out."""


def _parsed(body: bytes) -> object:
    try:
        parsed: object = msgspec.json.decode(body.decode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return None
    return parsed


def request_id(headers: Mapping[str, str]) -> str | None:
    """The provider's id of the request."""
    for name in REQUEST_ID_HEADERS:
        value = headers.get(name, "").strip()
        if value:
            return value
    return None


def retry_after_ms(headers: Mapping[str, str], now: datetime | None = None) -> int | None:
    """How long the provider asks to wait, in whole milliseconds above zero (L98)."""
    exact = headers.get("retry-after-ms", "").strip()
    whole, dot, fraction = exact.partition(".")
    digits = whole + fraction
    if digits.isascii() and digits.isdigit() and (fraction or not dot) and whole:
        delay = int(float(exact)) if len(digits) <= _MAX_DELAY_DIGITS else 0
        if delay > 0:
            return delay
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return int(text) * 1000 or None if len(text) <= _MAX_DELAY_DIGITS else None
    return _date_delay_ms(text, now or datetime.now(UTC))


def _date_delay_ms(text: str, now: datetime) -> int | None:
    moment = _http_date(text)
    if moment is None:
        return None
    delay = int((moment - now).total_seconds() * 1000)
    return delay if delay > 0 else None


def _http_date(text: str) -> datetime | None:
    if _HTTP_DATE.fullmatch(text) is None:
        return None
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:  # a day or hour that does not exist
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
