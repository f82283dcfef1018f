"""The adapter's copy of a request: what its route cannot take is replaced there, and only there.

Messages that need no change pass by identity; when none does, so does the request.
"""

import hashlib
import re
from collections.abc import Callable, Sequence

import msgspec

from dsh_brand import JsonValue, encode_json, to_json
from dsh_llm.blocks import Block, ContentBlock, TextBlock
from dsh_llm.messages import Message, RequestMessage
from dsh_llm.models import LlmResolvedModelInfo
from dsh_llm.request import GenerateOptions
from dsh_llm.sources import ModelSource
from dsh_llm.tool_updates import project_tool_updates

_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")


def project_request(
    options: GenerateOptions, info: LlmResolvedModelInfo, is_own_route: Callable[[str], bool]
) -> GenerateOptions:
    """The request as one adapter gets it.

    Args:
        options: The request.
        info: What is known about the model that is called.
        is_own_route: Tells for a provider whether its route belongs to this very adapter.
    """
    modalities = info.input_modalities
    hide_images = modalities is not None and "image" not in modalities
    # In this order, so that each step sees what the ones before it left.
    seen = _mapped(options.messages, lambda message: _without_images(message, hide_images))
    told, tools = project_tool_updates(seen, options.tools, info.tool_update, options.tool_history)
    messages = _mapped(told, lambda message: _without_foreign_state(message, is_own_route))
    if messages is options.messages and tools is options.tools:
        return options
    return msgspec.structs.replace(options, messages=messages, tools=tools)


def _mapped(
    messages: Sequence[RequestMessage], change: Callable[[RequestMessage], RequestMessage]
) -> Sequence[RequestMessage]:
    changed = tuple(map(change, messages))
    return messages if all(a is b for a, b in zip(changed, messages, strict=True)) else changed


def _without_foreign_state(
    message: RequestMessage, is_own_route: Callable[[str], bool]
) -> RequestMessage:
    source = message.source if isinstance(message, Message) else None
    if (
        not isinstance(source, ModelSource)
        or source.replay_state is None
        or is_own_route(source.provider)
    ):
        return message
    bare = msgspec.structs.replace(source, replay_state=None)
    return msgspec.structs.replace(message, source=bare)


def _without_images(message: RequestMessage, hide_all: bool) -> RequestMessage:
    """The message with text for images: those taken out of the request, or all of them."""
    if all(block.type != "image" for block in message.content):
        return message
    content = tuple(_image_text(block, hide_all) for block in message.content)
    if all(a is b for a, b in zip(content, message.content, strict=True)):
        return message
    return msgspec.structs.replace(message, content=content)


def _image_text(block: Block, hide_all: bool) -> ContentBlock:
    if block.type != "image":
        return block
    value = to_json(block)
    facts = value if isinstance(value, dict) else {}
    name = f"image sha256:{_digest(facts.get('attachment'))[:8]}"
    if facts.get("offloaded") is True:
        return TextBlock(f"[{name}: taken out to make room, and not sent again]")
    return TextBlock(f"[{name}: this model does not read images]") if hide_all else block


def _digest(attachment: JsonValue) -> str:
    text = encode_json(attachment)
    named = _DIGEST.search(text.decode())
    return named[0] if named is not None else hashlib.sha256(text).hexdigest()
