"""One message as encoded blocks; a message that does not change is encoded once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from dsh_brand import decode_json, is_blank
from dsh_llm import (
    ReasoningBlock,
    RequestMessage,
    TextBlock,
    ToolCallBlock,
    message_text,
)
from dsh_llm_http.wire import NO_OUTPUT, NameRule, encoded, refuse_images

from .replay import Entry, usable_entries
from .routes import UnsignedThinking

NAMES = NameRule(128)
"""Tool names and call ids of the Messages protocol."""

Role = Literal["user", "assistant", "system"]


class Fragment(msgspec.Struct, frozen=True):
    """What a message adds to the turn of its role, as the turn that it is when it stands alone."""

    role: Role
    turn: bytes = b""
    """Empty for a message that this protocol leaves out."""
    is_result: bool = False
    """Holds a tool result; results stand before all else in their turn."""
    odd_ids: bool = False
    """Holds a call id that cannot be sent as it is."""

    def blocks(self) -> bytes:
        """The encoded blocks, separated by commas."""
        return self.turn[len(_HEADS[self.role]) : -len(TURN_END)]


TURN_END = b"]}"
_HEADS: Mapping[Role, bytes] = {
    "user": b'{"role":"user","content":[',
    "assistant": b'{"role":"assistant","content":[',
    "system": b'{"role":"system","content":[',
}


def turn_of(role: Role, blocks: Sequence[bytes]) -> bytes:
    """A turn of encoded blocks; empty without any."""
    return _HEADS[role] + b",".join(blocks) + TURN_END if blocks else b""


class Encoder:
    """Encodes the messages of one route for one model."""

    def __init__(self, model: str, unsigned_thinking: UnsignedThinking) -> None:
        self._model = model
        self._send_unsigned = unsigned_thinking == "send"

    def fragment(self, message: RequestMessage, sent_id: Callable[[str], str]) -> Fragment:
        """Encode a message.

        Args:
            message: The message.
            sent_id: Gives a call id as it goes over the wire.

        Raises:
            LlmError: `UNSUPPORTED_CONTENT`: it holds an image.
        """
        refuse_images(message)
        match message.role:
            case "assistant":
                return self._assistant(message, sent_id)
            case "tool":
                return _result(message, sent_id)
            case "user":
                return Fragment("user", turn_of("user", _texts(message)))
            case "system":
                prompt = message_text(message)
                blocks = () if is_blank(prompt) else (_text(prompt),)
                return Fragment("system", turn_of("system", blocks))
            case _:
                # A developer message tells of tool changes, which no profile here declares.
                return Fragment("user")

    def _assistant(self, message: RequestMessage, sent_id: Callable[[str], str]) -> Fragment:
        entries = usable_entries(message, self._model)
        content: list[bytes] = []
        odd = False
        for position, block in enumerate(message.content):
            match block:
                case TextBlock(text=text) if not is_blank(text):
                    content.append(_text(text))
                case ReasoningBlock(text=text):
                    entry = None if entries is None else entries[position]
                    content += self._thinking(text, entry)
                case ToolCallBlock(id=call_id):
                    content.append(_call(block, sent_id))
                    odd = odd or not NAMES.fits(call_id)
                case _:
                    pass
        return Fragment("assistant", turn_of("assistant", content), odd_ids=odd)

    def _thinking(self, text: str, entry: Entry | None) -> list[bytes]:
        if entry is not None and "redactedData" in entry:
            return [encoded({"type": "redacted_thinking", "data": entry["redactedData"]})]
        if entry is not None and "signature" in entry:
            signed = {"type": "thinking", "thinking": text, "signature": entry["signature"]}
            return [encoded(signed)]
        if self._send_unsigned and not is_blank(text):
            return [encoded({"type": "thinking", "thinking": text})]
        return []


def _texts(message: RequestMessage) -> tuple[bytes, ...]:
    return tuple(
        _text(block.text)
        for block in message.content
        if isinstance(block, TextBlock) and not is_blank(block.text)
    )


def _text(text: str) -> bytes:
    return encoded({"type": "text", "text": text})


def _call(block: ToolCallBlock, sent_id: Callable[[str], str]) -> bytes:
    head: Mapping[str, object] = {
        "type": "tool_use",
        "id": sent_id(block.id),
        "name": NAMES.sendable(block.name),
    }
    # The text of the arguments itself, as the model wrote it: parsed and rewritten, its numbers
    # and the order of its keys might change, and with them the prefix that the provider caches.
    return encoded(head)[:-1] + b',"input":' + _input(block.arguments) + b"}"


def _input(arguments: str) -> bytes:
    try:
        parsed = decode_json(arguments)
        text = arguments.strip().encode()
    except (ValueError, RecursionError):  # ValueError: also a half character
        return b"{}"
    return text if isinstance(parsed, Mapping) else b"{}"


def _result(message: RequestMessage, sent_id: Callable[[str], str]) -> Fragment:
    call_id = getattr(message, "tool_call_id", None) or ""
    failed = getattr(message, "is_error", None) is True
    texts = _texts(message) or (_text(NO_OUTPUT),)
    head = {"type": "tool_result", "tool_use_id": sent_id(call_id)}
    tail = b',"is_error":true}' if failed else b"}"
    block = encoded(head)[:-1] + b',"content":[' + b",".join(texts) + b"]" + tail
    odd = not NAMES.fits(call_id)
    return Fragment("user", turn_of("user", (block,)), is_result=True, odd_ids=odd)
