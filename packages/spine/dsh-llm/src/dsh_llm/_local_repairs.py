"""Repairs of one message that look at nothing but this message: encoding, emptiness, arguments.

The verdict on a frozen message is remembered weakly, by identity: a step over a long history
examines only what is new, and the copy of a repaired message stays the same object.
"""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from dsh_brand import JsonValue, decode_json
from dsh_llm._identity import IdentityMemory
from dsh_llm._scrub import scrub
from dsh_llm.blocks import ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock
from dsh_llm.ids import CallId
from dsh_llm.messages import Message, RequestMessage, RequestUserInput
from dsh_llm.sources import ModelSource

NO_CONTENT: Final = "(no content)"
MAX_ARGUMENT_DEPTH: Final = 512
"""Deeper arguments count as unreadable, so that the verdict does not depend on who reads them."""

_HUGE: Final = re.compile(r"[0-9][eE]\+?[0-9]{3}|[0-9]{309}")
"""Stands in every text with a number beyond a double, which some readers refuse, and in others."""

LocalRepair: TypeAlias = tuple[
    Literal["text-replaced", "content-filled", "message-dropped", "arguments-replaced"],
    CallId | None,
]
"""What was changed, and in which call."""


class LocalVerdict(NamedTuple):
    """What became of one message.

    Attributes:
        message: The sendable copy; `None` when the message itself will do or is left out.
        dropped: The message is left out.
        calls: The ids of its calls, in order; empty unless the role is assistant.
        repairs: Kind and call id of each change.
    """

    message: Message | RequestUserInput | None
    dropped: bool
    calls: tuple[str, ...]
    repairs: tuple[LocalRepair, ...]


_memory: Final[IdentityMemory[RequestMessage, LocalVerdict]] = IdentityMemory()
_SOUND: Final = LocalVerdict(None, dropped=False, calls=(), repairs=())


def local_verdict(message: RequestMessage) -> LocalVerdict:
    """Examine one message, or remember what was found before."""
    verdict = _memory.get(message)
    if verdict is None:
        verdict = examine(message)
        _memory.set(message, verdict)
    return verdict


def examine(message: RequestMessage) -> LocalVerdict:
    """Examine one message, and remember nothing: for who looks at each only once."""
    repairs: list[LocalRepair] = []
    clean = _encodable(message)
    if clean is not message:
        repairs.append(("text-replaced", None))
    if not clean.content:
        if clean.role in ("assistant", "system", "developer"):
            return LocalVerdict(None, dropped=True, calls=(), repairs=(("message-dropped", None),))
        repairs.append(("content-filled", None))
        clean = msgspec.structs.replace(clean, content=(TextBlock(text=NO_CONTENT),))
    calls: tuple[str, ...] = ()
    if clean.role == "assistant":
        calls = tuple([block.id for block in clean.content if isinstance(block, ToolCallBlock)])
        if calls:
            clean = _with_readable_arguments(clean, repairs)
    if clean is message and not calls:
        return _SOUND
    changed = clean if clean is not message else None
    return LocalVerdict(changed, dropped=False, calls=calls, repairs=tuple(repairs))


def _with_readable_arguments(message: RequestMessage, repairs: list[LocalRepair]) -> RequestMessage:
    content: list[ContentBlock] = []
    changed = False
    for block in message.content:
        if isinstance(block, ToolCallBlock) and not is_object_text(block.arguments):
            repairs.append(("arguments-replaced", block.id))
            content.append(msgspec.structs.replace(block, arguments="{}"))
            changed = True
        else:
            content.append(block)
    return msgspec.structs.replace(message, content=tuple(content)) if changed else message


def is_object_text(text: str) -> bool:
    """Whether `text` is the text of one JSON object that every reader can take."""
    try:
        value = decode_json(text)
    except ValueError:
        return False
    if not isinstance(value, dict):
        return False
    if _HUGE.search(text) is not None and not all(_finite(level) for level in _levels(value)):
        return False
    if text.count("{") + text.count("[") <= MAX_ARGUMENT_DEPTH:
        return True
    return sum(any(map(_is_container, level)) for level in _levels(value)) <= MAX_ARGUMENT_DEPTH


def _levels(value: JsonValue) -> Iterator[list[JsonValue]]:
    """The value, the values in it, the values in those, and so on down."""
    level: list[JsonValue] = [value]
    while level:
        yield level
        inner: list[JsonValue] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        level = inner


def _is_container(value: JsonValue) -> bool:
    return isinstance(value, dict | list)


def _finite(level: Iterable[JsonValue]) -> bool:
    try:
        return all(math.isfinite(item) for item in level if isinstance(item, int | float))
    except OverflowError:  # an integer that no double comes near
        return False


def _encodable(message: RequestMessage) -> RequestMessage:
    clean = scrub(message)
    if clean is message or not isinstance(clean, Message) or clean.role != "assistant":
        return clean
    source = clean.source
    if (
        isinstance(source, ModelSource)
        and source.replay_state is not None
        and _texts(clean.content) != _texts(message.content)
    ):
        # The state describes the text as the provider sent it, which this no longer is.
        return msgspec.structs.replace(
            clean, source=msgspec.structs.replace(source, replay_state=None)
        )
    return clean


def _texts(content: Iterable[ContentBlock]) -> list[str]:
    return [block.text for block in content if isinstance(block, TextBlock | ReasoningBlock)]
