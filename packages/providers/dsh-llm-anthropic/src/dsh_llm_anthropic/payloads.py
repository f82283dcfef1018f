"""Payloads of a Messages stream: a typed fast reading and a tolerant exact one.

Upstream: packages/llm/llm-anthropic/src/types.ts.
"""

from collections.abc import Mapping

import msgspec

from dsh_brand import decode_json, encode_json, freeze_json
from dsh_llm import LlmError
from dsh_llm.codes import MALFORMED_RESPONSE
from dsh_llm_http.sse import excerpt


class OutputDetails(msgspec.Struct, frozen=True, gc=False):
    """Shares of the output count."""

    thinking_tokens: int | None = None


class Usage(msgspec.Struct, frozen=True):
    """Token counts as the provider reports them."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: OutputDetails | None = None


class StopDetails(msgspec.Struct, frozen=True, gc=False):
    """Why the provider refused."""

    explanation: str | None = None


class Delta(msgspec.Struct, frozen=True):
    """What one payload adds: to a block, or to the message."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    stop_reason: str | None = None
    stop_details: StopDetails | None = None


class Block(msgspec.Struct, frozen=True):
    """A block as it starts; in a whole message, as it is."""

    type: str | None = None
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    input: msgspec.Raw | None = None


class Message(msgspec.Struct, frozen=True):
    """The message that the stream builds."""

    id: str | None = None
    model: str | None = None
    usage: Usage | None = None


class Payload(msgspec.Struct, frozen=True):
    """One event of the stream, or a whole message in its place."""

    type: str | None = None
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


class ProviderFault(msgspec.Struct, frozen=True):
    """A payload that reports an error instead of content."""

    body: Mapping[str, object]


_KNOWN = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "message",
    }
)
decode_fast = msgspec.json.Decoder(Payload).decode
"""Decodes a payload of the usual shape; raises for any other, which `read_payload` may still take.

A payload without `type`, or of type `error`, is none, whatever its shape.
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
            if payload.type is not None and payload.type != "error":
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
    kind = _string(parsed.get("type")) or event or None
    reported = parsed.get("error")
    named = isinstance(reported, Mapping | str) and bool(reported)
    if named or kind == "error":
        return ProviderFault(parsed)
    if kind not in _KNOWN:
        return Payload(type=kind)  # whatever its fields are
    return _Reader(data).payload(parsed, kind)


class _Reader:
    """Reads the shapes of one payload, which it quotes when one is wrong."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def payload(self, value: Mapping[str, object], kind: str | None) -> Payload:
        content = value.get("content")
        blocks = None
        if content is not None:
            if not isinstance(content, list):
                raise _malformed("holds content that is not a list", self._data)
            blocks = [self._block(each) for each in content]
        message = self._optional(value, "message")
        delta = self._optional(value, "delta")
        block = self._optional(value, "content_block")
        return Payload(
            type=kind,
            index=_count(value.get("index")),
            delta=None if delta is None else self._delta(delta),
            content_block=None if block is None else self._block(block),
            message=None if message is None else self._message(message),
            usage=_usage(value.get("usage")),
            content=blocks,
            id=_string(value.get("id")),
            model=_string(value.get("model")),
            stop_reason=_string(value.get("stop_reason")),
        )

    def _optional(self, value: Mapping[str, object], name: str) -> Mapping[str, object] | None:
        found = value.get(name)
        return None if found is None else self._object(found, name)

    def _object(self, value: object, name: str) -> Mapping[str, object]:
        if not isinstance(value, Mapping):
            raise _malformed(f"holds {name} that is not an object", self._data)
        return value

    def _delta(self, delta: Mapping[str, object]) -> Delta:
        details = delta.get("stop_details")
        explanation = details.get("explanation") if isinstance(details, Mapping) else None
        return Delta(
            type=_string(delta.get("type")),
            text=_string(delta.get("text")),
            thinking=_string(delta.get("thinking")),
            partial_json=_string(delta.get("partial_json")),
            signature=_string(delta.get("signature")),
            stop_reason=_string(delta.get("stop_reason")),
            stop_details=StopDetails(_string(explanation)),
        )

    def _block(self, value: object) -> Block:
        block = self._object(value, "a content block")
        given = block.get("input")
        return Block(
            type=_string(block.get("type")),
            id=_string(block.get("id")),
            name=_string(block.get("name")),
            text=_string(block.get("text")),
            thinking=_string(block.get("thinking")),
            signature=_string(block.get("signature")),
            data=_string(block.get("data")),
            input=None if given is None else msgspec.Raw(encode_json(freeze_json(given))),
        )

    def _message(self, message: Mapping[str, object]) -> Message:
        return Message(
            id=_string(message.get("id")),
            model=_string(message.get("model")),
            usage=_usage(message.get("usage")),
        )


def _usage(value: object) -> Usage | None:
    if not isinstance(value, Mapping):
        return None
    details = value.get("output_tokens_details")
    thought = details.get("thinking_tokens") if isinstance(details, Mapping) else None
    return Usage(
        input_tokens=_count(value.get("input_tokens")),
        output_tokens=_count(value.get("output_tokens")),
        cache_read_input_tokens=_count(value.get("cache_read_input_tokens")),
        cache_creation_input_tokens=_count(value.get("cache_creation_input_tokens")),
        output_tokens_details=OutputDetails(_count(thought)),
    )


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _malformed(problem: str, data: bytes) -> LlmError:
    return LlmError(f"a payload of the stream {problem}: {excerpt(data)}", MALFORMED_RESPONSE)
