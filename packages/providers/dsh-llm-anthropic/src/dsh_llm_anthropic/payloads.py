"""Payloads of a Messages stream: a typed fast reading and a tolerant exact one.

Upstream: packages/llm/llm-anthropic/src/types.ts.
"""

from typing import Literal, cast, get_args

import msgspec

from dsh_llm_http.fields import Fields

Kind = Literal[
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "message",
    "ping",
]
"""What is read here; `ping` stands for all that says nothing."""
_KINDS: frozenset[str] = frozenset(get_args(Kind))


class OutputDetails(msgspec.Struct, frozen=True, gc=False):
    """Shares of the output count."""

    thinking_tokens: int | None = None


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token counts as the provider reports them."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: OutputDetails | None = None


class StopDetails(msgspec.Struct, frozen=True, gc=False):
    """Why the provider refused."""

    explanation: str | None = None


class Delta(msgspec.Struct, frozen=True, gc=False):
    """What one payload adds: to a block, or to the message."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    stop_reason: str | None = None
    stop_details: StopDetails | None = None


class Block(msgspec.Struct, frozen=True, gc=False):
    """A block as it starts; in a whole message, as it is."""

    type: str | None = None
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    input: msgspec.Raw = msgspec.Raw()  # a union with None would take nothing but null


class Message(msgspec.Struct, frozen=True, gc=False):
    """The message that the stream builds."""

    id: str | None = None
    model: str | None = None
    usage: Usage | None = None


class Payload(msgspec.Struct, frozen=True, gc=False):
    """One event of the stream, or a whole message in its place."""

    type: Kind
    """Without it, or with another one, a payload goes the tolerant way."""
    index: int | None = None
    delta: Delta | None = None
    content_block: Block | None = None
    message: Message | None = None
    usage: Usage | None = None
    error: None = None
    """Anything else than null goes the tolerant way."""
    content: list[Block] | None = None
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None


def read_payload(fields: Fields, kind: str) -> Payload:
    """Read a payload of this kind field by field.

    Raises:
        LlmError: `MALFORMED_RESPONSE`: a list or an object is missing where one is needed.
    """
    if kind not in _KINDS:
        return Payload(type="ping")  # whatever its fields are
    delta, block = fields.part("delta"), fields.part("content_block")
    message = fields.part("message")
    return Payload(
        type=cast("Kind", kind),
        index=fields.count("index"),
        delta=None if delta is None else _delta(delta),
        content_block=None if block is None else _block(block),
        message=None if message is None else _message(message),
        usage=_usage(fields.optional("usage")),
        content=[_block(each) for each in fields.parts("content", "a content block")],
        id=fields.string("id"),
        model=fields.string("model"),
        stop_reason=fields.string("stop_reason"),
    )


def _delta(delta: Fields) -> Delta:
    return Delta(
        type=delta.string("type"),
        text=delta.string("text"),
        thinking=delta.string("thinking"),
        partial_json=delta.string("partial_json"),
        signature=delta.string("signature"),
        stop_reason=delta.string("stop_reason"),
        stop_details=StopDetails(delta.optional("stop_details").string("explanation")),
    )


def _block(block: Fields) -> Block:
    given = block.text_of("input")
    return Block(
        type=block.string("type"),
        id=block.string("id"),
        name=block.string("name"),
        text=block.string("text"),
        thinking=block.string("thinking"),
        signature=block.string("signature"),
        data=block.string("data"),
        input=msgspec.Raw(given or b""),
    )


def _message(message: Fields) -> Message:
    return Message(
        id=message.string("id"),
        model=message.string("model"),
        usage=_usage(message.optional("usage")),
    )


def _usage(usage: Fields) -> Usage:
    details = usage.optional("output_tokens_details")
    return Usage(
        input_tokens=usage.count("input_tokens"),
        output_tokens=usage.count("output_tokens"),
        cache_read_input_tokens=usage.count("cache_read_input_tokens"),
        cache_creation_input_tokens=usage.count("cache_creation_input_tokens"),
        output_tokens_details=OutputDetails(details.count("thinking_tokens")),
    )
