"""Replies in the Messages streaming dialect."""

from collections.abc import Mapping, Sequence
from typing import Literal

from .completions import Call, event, stream_reply, words
from .replies import Reply, json_reply

StopReason = Literal[
    "end_turn",
    "tool_use",
    "max_tokens",
    "stop_sequence",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
]
MESSAGE_USAGE: Mapping[str, object] = {"input_tokens": 12, "output_tokens": 7}
SIGNATURE = "c2lnbmVk"


def message_event(kind: str, /, **fields: object) -> bytes:
    """One server-sent event of this type."""
    return b"event: %b\n" % kind.encode() + event({"type": kind, **fields})


def message_opening(usage: Mapping[str, object] = MESSAGE_USAGE) -> bytes:
    """The event that names the message and counts the input."""
    message: Mapping[str, object] = {
        "id": "msg_mock",
        "type": "message",
        "role": "assistant",
        "model": "mock",
        "content": [],
        "stop_reason": None,
        "usage": {**usage, "output_tokens": 1},
    }
    return message_event("message_start", message=message)


def block_start(index: int, block: Mapping[str, object]) -> bytes:
    """A block opens."""
    return message_event("content_block_start", index=index, content_block=block)


def block_delta(index: int, kind: str, /, **fields: object) -> bytes:
    """More of a block, such as `block_delta(0, "text_delta", text="Hi")`."""
    return message_event("content_block_delta", index=index, delta={"type": kind, **fields})


def block_stop(index: int) -> bytes:
    """A block is complete."""
    return message_event("content_block_stop", index=index)


def message_text_events(texts: str | Sequence[str], index: int = 0) -> list[bytes]:
    """A text block, one event per text; a single string is cut after each space."""
    deltas = [block_delta(index, "text_delta", text=piece) for piece in words(texts)]
    return [block_start(index, {"type": "text", "text": ""}), *deltas, block_stop(index)]


def thinking_events(
    texts: str | Sequence[str], index: int = 0, signature: str = SIGNATURE
) -> list[bytes]:
    """A thinking block with its signature; an empty one is left out."""
    events = [block_start(index, {"type": "thinking", "thinking": "", "signature": ""})]
    events += [block_delta(index, "thinking_delta", thinking=piece) for piece in words(texts)]
    if signature:
        events.append(block_delta(index, "signature_delta", signature=signature))
    return [*events, block_stop(index)]


def tool_use_events(calls: Sequence[Call], index: int = 0) -> list[bytes]:
    """Each call as a block of its own, the arguments in two halves."""
    events: list[bytes] = []
    for number, call in enumerate(calls):
        text = call.text()
        half = len(text) // 2
        at = index + number
        call_id = call.id or f"toolu_{number + 1}"
        head = {"type": "tool_use", "id": call_id, "name": call.name, "input": {}}
        events.append(block_start(at, head))
        pieces = [piece for piece in (text[:half], text[half:]) if piece]
        events += [block_delta(at, "input_json_delta", partial_json=piece) for piece in pieces]
        events.append(block_stop(at))
    return events


def message_closing(
    stop_reason: StopReason | None, usage: Mapping[str, object] = MESSAGE_USAGE
) -> list[bytes]:
    """Stop reason with the final counts, and the end mark."""
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    return [message_event("message_delta", delta=delta, usage=usage), message_event("message_stop")]


def message_text_reply(
    text: str | Sequence[str],
    *,
    reasoning: str | Sequence[str] = "",
    signature: str = SIGNATURE,
    stop_reason: StopReason = "end_turn",
    usage: Mapping[str, object] = MESSAGE_USAGE,
    name: str = "success",
) -> Reply:
    """A model that answers in words, after it thought if `reasoning` is given."""
    thought = thinking_events(reasoning, 0, signature) if reasoning else []
    said = message_text_events(text, 1 if thought else 0)
    closing = message_closing(stop_reason, usage)
    return stream_reply([message_opening(usage), *thought, *said, *closing], name=name)


def message_tool_reply(
    *calls: Call,
    text: str | Sequence[str] = "",
    reasoning: str | Sequence[str] = "",
    signature: str = SIGNATURE,
    stop_reason: StopReason = "tool_use",
    usage: Mapping[str, object] = MESSAGE_USAGE,
) -> Reply:
    """A model that calls tools, after some thoughts and words if they are given."""
    thought = thinking_events(reasoning, 0, signature) if reasoning else []
    index = 1 if thought else 0
    said = message_text_events(text, index) if text else []
    asked = tool_use_events(calls, index + (1 if said else 0))
    events = [message_opening(usage), *thought, *said, *asked]
    closing = message_closing(stop_reason, usage)
    return stream_reply([*events, *closing], name="tool_call_success")


def message_error_reply(
    name: str,
    status: int,
    message: str,
    *,
    kind: str,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """An HTTP error in the form Messages services give it."""
    document = {"type": "error", "error": {"type": kind, "message": message}}
    return json_reply(document, status=status, headers=headers, name=name)
