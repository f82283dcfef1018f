"""What the bodies of both protocols share: JSON bytes, sendable names, the refusal of images."""

import re
from collections.abc import Mapping, Sequence

import msgspec

from dsh_brand import encode_json, scrub_surrogates
from dsh_llm import GenerateOptions, LlmError, RequestMessage, codes

from .routes import HttpRoute, ModelFacts

_NOT_NAME = re.compile(r"[^A-Za-z0-9_-]")
NO_OUTPUT = "(no output)"
"""Sent for a tool result without text: an empty one is refused by some services."""


class NameRule:
    """The alphabet of tool names and call ids on the wire (L171).

    Args:
        limit: The longest name.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._fits = re.compile(rf"[A-Za-z0-9_-]{{1,{limit}}}")

    def fits(self, name: str) -> bool:
        """Whether the name can be sent as it is."""
        return self._fits.fullmatch(name) is not None

    def sendable(self, name: str) -> str:
        """A name that a model made up, in the alphabet; equal names stay equal."""
        return name if self.fits(name) else _NOT_NAME.sub("_", name)[: self.limit] or "_"

    def check_tool(self, name: str, label: str) -> None:
        """Refuse a declared tool whose name cannot be sent.

        Raises:
            LlmError: `UNSUPPORTED_OPTION`.
        """
        if not self.fits(name):
            raise LlmError(
                f"tool name {name!r} cannot be sent to {label}: use up to {self.limit} letters, "
                "digits, '_' and '-'",
                codes.UNSUPPORTED_OPTION,
            )


def check_effort(options: GenerateOptions, route: HttpRoute, facts: ModelFacts) -> None:
    """Refuse an effort that the model does not offer.

    Raises:
        LlmError: `UNSUPPORTED_REASONING_EFFORT`.
    """
    effort = options.reasoning_effort
    offered = () if facts.reasoning is None else tuple(e.id for e in facts.reasoning.efforts)
    if effort is not None and effort not in offered:
        raise LlmError(
            f"model {options.model!r} of route {route.name!r} does not offer the reasoning effort "
            f"{effort!r}; it offers {list(offered) or 'none'}",
            codes.UNSUPPORTED_REASONING_EFFORT,
        )


def refuse_images(message: RequestMessage) -> None:
    """Refuse a message with an image rather than dropping it.

    Raises:
        LlmError: `UNSUPPORTED_CONTENT`.
    """
    for block in message.content:
        if block.type == "image":
            raise LlmError(
                "this adapter sends text only and a message holds an image; choose another "
                "route or take the image out",
                codes.UNSUPPORTED_CONTENT,
            )


def body_of(head: Sequence[bytes], messages: Sequence[bytes], tail: Sequence[bytes]) -> bytes:
    """A request body of encoded fields; the messages, nearly all of it, are copied once.

    Args:
        head: Fields before the messages.
        messages: The messages, in parts that a comma separates.
        tail: Fields behind them.
    """
    pieces = [b"{", b",".join(head), b',"messages":[']
    for part in messages:
        pieces += (part, b",")
    if messages:
        pieces.pop()
    fields = b",".join(tail)
    pieces += (b"]," if fields else b"]", fields, b"}")
    return b"".join(pieces)


def encoded(value: object) -> bytes:
    """JSON bytes, non-ASCII characters unescaped, half characters as U+FFFD."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_scrubbed(value))


def encoded_number(value: float) -> bytes:
    """A number as JavaScript writes it: equal numbers give equal bytes."""
    return encode_json(value)


def _scrubbed(value: object) -> object:
    if isinstance(value, str):
        return scrub_surrogates(value)
    if isinstance(value, Mapping):
        return {_scrubbed(key): _scrubbed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_scrubbed(item) for item in value]
    return value
