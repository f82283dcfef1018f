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
from dsh_llm.request import GenerateOptions
from dsh_llm.sources import ModelSource

_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")


def project_request(
    options: GenerateOptions,
    *,
    input_modalities: Sequence[str] | None,
    is_own_route: Callable[[str], bool],
) -> GenerateOptions:
    """The request as one adapter gets it.

    Args:
        options: The request.
        input_modalities: What the model reads; `None` if that is not declared.
        is_own_route: Tells for a provider whether its route belongs to this very adapter.
    """
    hide_images = input_modalities is not None and "image" not in input_modalities

    def project(message: RequestMessage) -> RequestMessage:
        if hide_images:
            message = _without_images(message)
        return _without_foreign_state(message, is_own_route)

    messages = tuple(map(project, options.messages))
    if all(a is b for a, b in zip(messages, options.messages, strict=True)):
        return options
    return msgspec.structs.replace(options, messages=messages)


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


def _without_images(message: RequestMessage) -> RequestMessage:
    if all(block.type != "image" for block in message.content):
        return message
    content = tuple(_image_text(b) if b.type == "image" else b for b in message.content)
    return msgspec.structs.replace(message, content=content)


def _image_text(block: Block) -> ContentBlock:
    value = to_json(block)
    attachment = value.get("attachment") if isinstance(value, dict) else None
    return TextBlock(f"[image sha256:{_digest(attachment)[:8]}: this model does not read images]")


def _digest(attachment: JsonValue) -> str:
    text = encode_json(attachment)
    named = _DIGEST.search(text.decode())
    return named[0] if named is not None else hashlib.sha256(text).hexdigest()
