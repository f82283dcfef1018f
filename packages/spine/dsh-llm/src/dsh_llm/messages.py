"""Messages and how they are made. Upstream: packages/llm/llm/src/message.ts."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from dsh_brand import HarnessError, JsonValue, Wire, from_json
from dsh_llm import codes
from dsh_llm._scrub import scrub
from dsh_llm.blocks import Block, ContentBlock, TextBlock
from dsh_llm.ids import CallId, MessageId, fresh_uuid
from dsh_llm.sources import (
    AnySource,
    MessageSource,
    ModelSource,
    ProducerSource,
    SystemPromptSource,
    ToolSource,
    UserSource,
    source_form,
)

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]


_OWN_SOURCES: Final[Mapping[str, type[MessageSource]]] = {
    "assistant": ModelSource,
    "tool": ToolSource,
    "system": SystemPromptSource,
}
_USUAL_SOURCES: Final[Mapping[str, type[MessageSource]]] = {**_OWN_SOURCES, "user": UserSource}


class MessageError(HarnessError, ValueError):
    """A message was built that no session would take."""

    def __init__(self, message: str) -> None:
        super().__init__(message, codes.INVALID_MESSAGE)


class Message(Wire, frozen=True, kw_only=True, weakref=True):
    """One entry of a conversation. A rewrite keeps its `id`."""

    id: MessageId
    role: Role
    content: tuple[ContentBlock, ...]
    source: AnySource
    tool_call_id: CallId | None = None
    """Which call a tool message answers."""
    is_error: bool | None = None

    def __post_init__(self) -> None:
        if type(self.content) is not tuple:
            msgspec.structs.force_setattr(self, "content", tuple(self.content))


class RequestUserInput(Wire, frozen=True, kw_only=True, weakref=True):
    """User content of a hand-built request, without id and source; never in a session."""

    role: Literal["user"] = "user"
    content: tuple[ContentBlock, ...]

    def __post_init__(self) -> None:
        if type(self.content) is not tuple:
            msgspec.structs.force_setattr(self, "content", tuple(self.content))


RequestMessage: TypeAlias = Message | RequestUserInput
"""What the messages of a request may be."""


def create_message(
    role: Role,
    content: Sequence[Block],
    source: MessageSource,
    *,
    tool_call_id: CallId | None = None,
    is_error: bool | None = None,
) -> Message:
    """Make a message with a fresh id; half characters in it are repaired.

    Raises:
        MessageError: The source does not fit the role, is retired, or lacks what its form needs.
    """
    message = Message(
        id=MessageId(fresh_uuid()),
        role=role,
        content=tuple(content),
        source=source,
        tool_call_id=tool_call_id,
        is_error=is_error,
    )
    _check(message)
    return scrub(message)


def create_system_message(text: str) -> Message:
    """Make the prompt; empty text gives a message without a block."""
    content = (TextBlock(text),) if text else ()
    return create_message("system", content, SystemPromptSource())


def create_developer_message(content: Sequence[Block], source: MessageSource) -> Message:
    """Make a message that tells the model of a change in the session, such as new tools."""
    return create_message("developer", content, source)


def create_user_message(
    content: str | Sequence[Block], source: MessageSource | None = None
) -> Message:
    """Make a user message; a string becomes one text block.

    Args:
        content: What to say, at least one block.
        source: Who says it; a person if left out.

    Raises:
        MessageError: Content without a block, or a source that does not fit.
    """
    blocks = (TextBlock(content),) if isinstance(content, str) else tuple(content)
    if not blocks:
        raise MessageError("a user message needs at least one block, and got none")
    return create_message("user", blocks, UserSource() if source is None else source)


def create_assistant_message(content: Sequence[Block], source: ModelSource) -> Message:
    """Make the message of a model's answer."""
    return create_message("assistant", content, source)


def create_tool_result_message(
    call_id: CallId, content: Sequence[Block], is_error: bool
) -> Message:
    """Make the answer to a tool call."""
    source = ToolSource(call_id)
    return create_message("tool", content, source, tool_call_id=call_id, is_error=is_error)


def freeze_message(message: Message | Mapping[str, JsonValue]) -> Message:
    """A message with the id that it has, from JSON if need be.

    Raises:
        ValueError: The JSON is no message; the text names the path.
        MessageError: The source does not fit.
    """
    frozen = message if isinstance(message, Message) else from_json(Message, message)
    _check(frozen)
    return frozen


def message_text(message: RequestMessage) -> str:
    """The text blocks of a message, joined without separator."""
    return "".join([block.text for block in message.content if isinstance(block, TextBlock)])


def _check(message: Message) -> None:
    source = message.source
    _check_role(message.role, source)
    if isinstance(source, ToolSource) and source.call_id != message.tool_call_id:
        raise MessageError(
            f"the source names call {source.call_id!r}, the message {message.tool_call_id!r}"
        )
    if isinstance(source, ProducerSource):
        form = source_form(source)
        if form == "snapshot" and source.sections is None:
            raise MessageError(f"source {source.kind!r} has form 'snapshot': give its sections")
        if form == "notice" and source.summary is None:
            raise MessageError(f"source {source.kind!r} has form 'notice': give its summary")


def _check_role(role: str, source: MessageSource) -> None:
    if type(source) is _USUAL_SOURCES.get(role):
        return
    for owner, kind in _OWN_SOURCES.items():
        if isinstance(source, kind) != (role == owner):
            wanted = kind.__struct_config__.tag
            raise MessageError(
                f"source {source.kind!r} does not fit role {role!r}: "
                f"{wanted!r} belongs to {owner!r} messages, and to them only"
            )
    if source.kind == "plugin":
        raise MessageError("source kind 'plugin' is retired: register a kind of your own")
    if not source.kind:
        raise MessageError("a source needs a non-empty kind")
