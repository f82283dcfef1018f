"""Asking an endpoint for its models (L154)."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from dsh_brand import decode_json
from dsh_llm import AbortSignal, LlmDiscoveredModel, LlmError, codes, refuse_real_request

from .classify import http_failure
from .engine import Guard, HttpRequest, Reply, refuse_if_aborted, shown_endpoint
from .shared import SharedEngine

BODY_LIMIT_BYTES = 4 * 1024 * 1024
IDLE_S = 30.0
"""Longest silence; a person waits for the list."""

T = TypeVar("T")

_NAMES = ("name", "display_name")
_WINDOWS = ("context_window", "context_length", "max_model_len", "max_input_tokens")
_OUTPUTS = ("max_output_tokens", "max_tokens")


async def ask_for_models(
    request: HttpRequest,
    engine: SharedEngine,
    *,
    signal: AbortSignal | None,
    redact: Callable[[str], str],
) -> Sequence[LlmDiscoveredModel]:
    """The models that an endpoint lists.

    Raises:
        LlmError: `DISCOVERY_FAILED`, or `ABORTED`.
    """
    refuse_if_aborted(signal)
    refuse_real_request(request.url)
    user = object()
    guard = Guard(signal)
    try:
        reply = await engine.acquire(user).open(request, guard)
        try:
            status, body = reply.status, await _body(reply)
        finally:
            await reply.aclose(drain=False)
        if not 200 <= status < 300:
            raise _refused(status, reply.headers, body, redact)
    except LlmError as error:
        if error.code == codes.ABORTED:
            raise
        raise _failed(request.url, error.message) from error
    finally:
        await guard.stop()
        await engine.release(user)
    return _models(request.url, body)


async def _body(reply: Reply) -> bytes:
    body = bytearray()
    while data := await reply.read():
        body += data
        if len(body) > BODY_LIMIT_BYTES:
            raise LlmError(
                f"the list is larger than {BODY_LIMIT_BYTES} bytes", codes.DISCOVERY_FAILED
            )
    return bytes(body)


def _refused(
    status: int, headers: Mapping[str, str], body: bytes, redact: Callable[[str], str]
) -> LlmError:
    failure = http_failure("the endpoint's", status, headers, body, redact=redact)
    hint = "; check the key" if status in (401, 403) else ""
    return LlmError(f"{failure.message} (HTTP {status}){hint}", codes.DISCOVERY_FAILED)


def _failed(url: str, reason: str) -> LlmError:
    message = f"{shown_endpoint(url)} does not list its models: {reason}"
    return LlmError(message, codes.DISCOVERY_FAILED)


def _models(url: str, body: bytes) -> list[LlmDiscoveredModel]:
    try:
        parsed: object = decode_json(body.decode("utf-8", "replace"))
    except ValueError:
        raise _failed(url, "the answer is not JSON") from None
    entries = parsed.get("data") if isinstance(parsed, Mapping) else None
    if not isinstance(entries, list):
        raise _failed(url, "the answer has no list `data`")
    return [
        LlmDiscoveredModel(
            entry["id"],
            _first(entry, _NAMES, _text),
            _first(entry, _WINDOWS, _count),
            _first(entry, _OUTPUTS, _count),
        )
        for entry in entries
        if isinstance(entry, Mapping) and isinstance(entry.get("id"), str)
    ]


def _first(
    entry: Mapping[str, object], names: Sequence[str], read: Callable[[object], T | None]
) -> T | None:
    return next((found for name in names if (found := read(entry.get(name))) is not None), None)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    return None
