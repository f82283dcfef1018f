"""Payloads of a chat-completions stream: a typed fast reading and a tolerant exact one.

Upstream: packages/llm/llm-openai/src/types.ts.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from dsh_llm_http.fields import Fields


class Function(msgspec.Struct, frozen=True, gc=False):
    """Name and a piece of the arguments of a call."""

    name: str | None = None
    arguments: str | None = None


class ToolFragment(msgspec.Struct, frozen=True, gc=False):
    """One entry of `tool_calls`."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Delta(msgspec.Struct, frozen=True, gc=False):
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


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token counts as the provider reports them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_cache_hit_tokens: int | None = None
    prompt_tokens_details: TokenDetails | None = None
    completion_tokens_details: TokenDetails | None = None


class Choice(msgspec.Struct, frozen=True, gc=False):
    """One alternative; only index 0 counts."""

    index: int | None = None
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    usage: Usage | None = None


class Payload(msgspec.Struct, frozen=True, gc=False):
    """One event of the stream."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: None = None
    """Anything else than null goes the tolerant way."""
    object: Literal["chat.completion.chunk", "chat.completion"] | None = None
    """Another word goes the tolerant way, for it may be `error`."""


def read_payload(fields: Fields) -> Payload:
    """Read a payload field by field.

    Raises:
        LlmError: `MALFORMED_RESPONSE`: a list or an object is missing where one is needed.
    """
    choices = [
        Choice(
            index=choice.count("index"),
            delta=_delta(choice.part("delta")),
            message=_delta(choice.part("message")),
            finish_reason=choice.string("finish_reason"),
            usage=read_usage(choice.optional("usage")),
        )
        for choice in fields.parts("choices", "a choice")
    ]
    return Payload(choices=choices, usage=read_usage(fields.optional("usage")))


def read_usage(usage: Fields) -> Usage:
    """Read a report of token counts."""
    return Usage(
        prompt_tokens=usage.count("prompt_tokens"),
        completion_tokens=usage.count("completion_tokens"),
        total_tokens=usage.count("total_tokens"),
        prompt_cache_hit_tokens=usage.count("prompt_cache_hit_tokens"),
        prompt_tokens_details=_details(usage.optional("prompt_tokens_details")),
        completion_tokens_details=_details(usage.optional("completion_tokens_details")),
    )


def _details(details: Fields) -> TokenDetails:
    return TokenDetails(
        cached_tokens=details.count("cached_tokens"),
        cache_write_tokens=details.count("cache_write_tokens"),
        reasoning_tokens=details.count("reasoning_tokens"),
    )


def _delta(delta: Fields | None) -> Delta | None:
    if delta is None:
        return None
    return Delta(
        content=_content(delta),
        reasoning_content=delta.string("reasoning_content"),
        reasoning=delta.string("reasoning"),
        refusal=delta.string("refusal"),
        tool_calls=[
            ToolFragment(
                index=call.count("index"),
                id=call.string("id"),
                function=_function(call.part("function")),
            )
            for call in delta.parts("tool_calls", "a tool call")
        ],
        function_call=_function(delta.part("function_call")),
    )


def _content(delta: Fields) -> str | None:
    """Text; some services stream a list of parts, whose texts are joined."""
    value = delta.values.get("content")
    if not isinstance(value, list):
        return delta.string("content")
    texts = [part.get("text") for part in value if isinstance(part, Mapping)]
    return "".join(text for text in texts if isinstance(text, str))


def _function(function: Fields | None) -> Function | None:
    if function is None:
        return None
    arguments = function.string("arguments")
    if isinstance(function.values.get("arguments"), Mapping | list):
        text = function.text_of("arguments")
        arguments = None if text is None else text.decode()
    return Function(name=function.string("name"), arguments=arguments)
