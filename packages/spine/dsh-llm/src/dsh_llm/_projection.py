"""The adapter's copy of a request: what its route cannot take is replaced there, and only there.

Messages that need no change pass by identity; when none does, so does the request. Of a history
that grows in a log only the new messages are looked at.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from dsh_brand import JsonValue, encode_json, to_json
from dsh_llm.blocks import (
    Block,
    ContentBlock,
    ReasoningBlock,
    TextBlock,
    ToolAdditionBlock,
    ToolCallBlock,
    ToolRemovalBlock,
)
from dsh_llm.growing import mapped
from dsh_llm.messages import Message, RequestMessage
from dsh_llm.models import LlmResolvedModelInfo
from dsh_llm.request import GenerateOptions
from dsh_llm.sources import ModelSource
from dsh_llm.tool_updates import ToldTools, told_tools, tool_story

_DIGEST: Final = r"\b[0-9a-f]{64}\b"
_CORE: Final = frozenset(
    {TextBlock, ReasoningBlock, ToolCallBlock, ToolAdditionBlock, ToolRemovalBlock}
)


def project_request(
    options: GenerateOptions, info: LlmResolvedModelInfo, own_routes: frozenset[str]
) -> GenerateOptions:
    """The request as one adapter gets it.

    Args:
        options: The request.
        info: What is known about the model that is called.
        own_routes: The routes that belong to this very adapter.
    """
    modalities = info.input_modalities
    hide_images = modalities is not None and "image" not in modalities
    tools, told = told_tools(
        options.messages, options.tools, info.tool_update, options.tool_history
    )
    messages = mapped(
        options.messages,
        (project_request, hide_images, told, own_routes),
        lambda: _Projection(hide_images, told, own_routes),
    )
    if messages is options.messages and tools is options.tools:
        return options
    return msgspec.structs.replace(options, messages=messages, tools=tools)


class _Projection:
    """What becomes of each message; every history of a route keeps one, so it is a small object."""

    __slots__ = ("_hide_images", "_own_routes", "_tell")

    def __init__(
        self, hide_images: bool, told: ToldTools | None, own_routes: frozenset[str]
    ) -> None:
        self._hide_images = hide_images
        self._tell = tool_story(told)
        self._own_routes = own_routes

    def __call__(self, message: RequestMessage) -> RequestMessage | None:
        # In this order, so that each step sees what the ones before it left.
        shown = _without_attachments(message, self._hide_images)
        if not isinstance(shown, Message):
            return shown
        if shown.role == "developer":
            return self._tell(shown)
        return _own_state(shown, self._own_routes)


def _own_state(message: Message, own_routes: frozenset[str]) -> Message:
    source = message.source
    if (
        type(source) is not ModelSource
        or source.replay_state is None
        or source.provider in own_routes
    ):
        return message
    bare = msgspec.structs.replace(source, replay_state=None)
    return msgspec.structs.replace(message, source=bare)


def _without_attachments(message: RequestMessage, hide_images: bool) -> RequestMessage:
    """The message with text for files and for images: those taken out of the request, or all."""
    for block in message.content:
        if type(block) not in _CORE:
            break
    else:
        return message
    content = tuple([_shown(block, hide_images) for block in message.content])
    if all(a is b for a, b in zip(content, message.content, strict=True)):
        return message
    return msgspec.structs.replace(message, content=content)


def _shown(block: Block, hide_images: bool) -> ContentBlock:
    kind = block.type
    if kind not in ("image", "file"):
        return block
    value = to_json(block)
    facts = value if isinstance(value, dict) else {}
    attachment = facts.get("attachment")
    if kind == "file":
        return TextBlock(_file_text(attachment))
    name = f"image sha256:{_digest(attachment)[:8]}"
    if facts.get("offloaded") is True:
        return TextBlock(f"[{name}: taken out to make room, and not sent again]")
    return TextBlock(f"[{name}: this model does not read images]") if hide_images else block


def _digest(attachment: JsonValue) -> str:
    text = encode_json(attachment)
    named = re.search(_DIGEST, text.decode())
    if named is not None:
        return named[0]
    # It takes as long to import as a sixth of this package, and nearly all attachments are named.
    import hashlib

    return hashlib.sha256(text).hexdigest()


def _file_text(attachment: JsonValue) -> str:
    facts = attachment if isinstance(attachment, Mapping) else {}
    name, size, path = facts.get("name"), facts.get("size"), facts.get("readPath")
    what = f"file {name!r}" if isinstance(name, str) else f"file sha256:{_digest(attachment)[:8]}"
    if isinstance(size, int):
        what += f", {size} bytes"
    if isinstance(path, str):
        return f"[{what}: its content is not in this message; read it at {path!r}]"
    return f"[{what}: its content is not in this message, and there is no path to read it at]"
