"""Payloads of a chat-completions stream: a typed fast reading and a tolerant exact one.

Upstream: packages/llm/llm-openai/src/types.ts.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from dsh_brand import decode_json, encode_json
from dsh_llm import LlmError
from dsh_llm.codes import MALFORMED_RESPONSE
from dsh_llm_http.sse import excerpt


class Function(msgspec.Struct, frozen=True, gc=False):
    """Name and a piece of the arguments of a call."""

    name: str | None = None
    arguments: str | None = None


class ToolFragment(msgspec.Struct, frozen=True, gc=False):
    """One entry of `tool_calls`."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Delta(msgspec.Struct, frozen=True):
    """What one payload adds; a whole message of a document has the same fields."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolFragment] | None = None
    function_call: Function | None = None


class TokenDetails(msgspec.Struct, frozen=True, gc=False):
    """Shares of a token count."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class Usage(msgspec.Struct, frozen=True):
    """Token counts as the provider reports them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_cache_hit_tokens: int | None = None
    prompt_tokens_details: TokenDetails | None = None
    completion_tokens_details: TokenDetails | None = None


class Choice(msgspec.Struct, frozen=True):
    """One alternative; only index 0 counts."""

    index: int | None = None
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    usage: Usage | None = None


class Payload(msgspec.Struct, frozen=True):
    """One event of the stream."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: None = None
    """Anything else than null goes the tolerant way."""
    object: Literal["chat.completion.chunk", "chat.completion"] | None = None
    """Another word goes the tolerant way, for it may be `error`."""


class ProviderFault(msgspec.Struct, frozen=True):
    """A payload that reports an error instead of content."""

    body: Mapping[str, object]
    usage: Usage | None = None


decode_fast = msgspec.json.Decoder(Payload).decode
"""Decodes a payload of the usual shape; raises for any other, which `read_payload` may still take.
"""


def read_payload(
    data: bytes, *, event: str = "", document: bool = False
) -> Payload | ProviderFault:
    """Read one event's data, or a document in its place.

    Raises:
        LlmError: `MALFORMED_RESPONSE`: not JSON, no object, or a list or object is missing where
            one is needed. A wrong scalar counts as absent.
    """
    if event != "error" and not document:
        try:
            payload = decode_fast(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # the tolerant way below decides
        else:
            return payload
    return _tolerant(data, event=event, document=document)


def _tolerant(data: bytes, *, event: str, document: bool) -> Payload | ProviderFault:
    try:
        parsed: object = decode_json(data.decode("utf-8", "replace"))
    except ValueError as error:
        raise _malformed("is not JSON", data) from error
    if document and isinstance(parsed, list) and len(parsed) == 1:
        parsed = parsed[0]
    if not isinstance(parsed, Mapping):
        raise _malformed("is not a JSON object", data)
    usage = _usage(parsed.get("usage"))
    reported = parsed.get("error")
    named = isinstance(reported, Mapping | str) and bool(reported)
    if named or parsed.get("object") == "error" or event == "error":
        return ProviderFault(parsed, usage)
    choices = [_choice(entry, data) for entry in _list(parsed.get("choices"), "choices", data)]
    return Payload(choices=choices, usage=usage)


def _choice(value: object, data: bytes) -> Choice:
    choice = _object(value, "a choice", data)
    return Choice(
        index=_count(choice.get("index")),
        delta=_delta(choice.get("delta"), "delta", data),
        message=_delta(choice.get("message"), "message", data),
        finish_reason=_string(choice.get("finish_reason")),
        usage=_usage(choice.get("usage")),
    )


def _delta(value: object, name: str, data: bytes) -> Delta | None:
    if value is None:
        return None
    delta = _object(value, name, data)
    calls = _list(delta.get("tool_calls"), "tool_calls", data)
    return Delta(
        content=_content(delta.get("content")),
        reasoning_content=_string(delta.get("reasoning_content")),
        reasoning=_string(delta.get("reasoning")),
        refusal=_string(delta.get("refusal")),
        tool_calls=[_fragment(call, data) for call in calls],
        function_call=_function(delta.get("function_call"), data),
    )


def _fragment(value: object, data: bytes) -> ToolFragment:
    call = _object(value, "a tool call", data)
    return ToolFragment(
        index=_count(call.get("index")),
        id=_string(call.get("id")),
        function=_function(call.get("function"), data),
    )


def _function(value: object, data: bytes) -> Function | None:
    if value is None:
        return None
    function = _object(value, "a function", data)
    arguments = function.get("arguments")
    if isinstance(arguments, Mapping | list):
        arguments = encode_json(arguments).decode()
    return Function(name=_string(function.get("name")), arguments=_string(arguments))


def _usage(value: object) -> Usage | None:
    if not isinstance(value, Mapping):
        return None
    return Usage(
        prompt_tokens=_count(value.get("prompt_tokens")),
        completion_tokens=_count(value.get("completion_tokens")),
        total_tokens=_count(value.get("total_tokens")),
        prompt_cache_hit_tokens=_count(value.get("prompt_cache_hit_tokens")),
        prompt_tokens_details=_details(value.get("prompt_tokens_details")),
        completion_tokens_details=_details(value.get("completion_tokens_details")),
    )


def _details(value: object) -> TokenDetails | None:
    if not isinstance(value, Mapping):
        return None
    return TokenDetails(
        cached_tokens=_count(value.get("cached_tokens")),
        cache_write_tokens=_count(value.get("cache_write_tokens")),
        reasoning_tokens=_count(value.get("reasoning_tokens")),
    )


def _content(value: object) -> str | None:
    """Text; some services stream a list of parts, whose texts are joined."""
    if not isinstance(value, list):
        return _string(value)
    texts = [part.get("text") for part in value if isinstance(part, Mapping)]
    return "".join(text for text in texts if isinstance(text, str))


def _object(value: object, name: str, data: bytes) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise _malformed(f"holds {name} that is not an object", data)
    return value


def _list(value: object, name: str, data: bytes) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _malformed(f"holds {name} that is not a list", data)
    return value


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _malformed(problem: str, data: bytes) -> LlmError:
    return LlmError(f"a payload of the stream {problem}: {excerpt(data)}", MALFORMED_RESPONSE)
