"""Rules local to one event, checked wherever an event enters: append, seed, restore and read."""

from collections.abc import Callable, Mapping
from typing import Final, NoReturn, TypeVar, cast

from msgspec.structs import astuple

from dsh_brand import JsonValue
from dsh_llm import (
    Block,
    Message,
    ModelSource,
    OpaqueBlock,
    ReasoningBlock,
    SystemPromptSource,
    TextBlock,
    ToolAdditionBlock,
    ToolCallBlock,
    ToolRemovalBlock,
    ToolSource,
    UserSource,
)
from dsh_session.errors import InvalidEventError, UnsupportedEventError
from dsh_session.events import (
    SURFACE_EVENT_TYPES,
    AssistantAttempt,
    AssistantMessageEvent,
    DeveloperMessageEvent,
    RawData,
    ReplaceOp,
    RequestHeader,
    RequestHeaderEvent,
    SessionEvent,
    SessionEventData,
    SystemMessageEvent,
    ToolResultEvent,
    UserMessageEvent,
)
from dsh_session.integers import MAX_SAFE_INT, is_natural
from dsh_session.vocabulary import (
    MESSAGE_PROJECTION_EVENT_TYPES,
    RETIRED_SESSION_EVENT_TYPES,
    is_known_event_type,
    is_projecting_type,
)

D = TypeVar("D", bound=SessionEventData)

_ORDINARY_BLOCKS: Final = frozenset({TextBlock, ReasoningBlock, ToolCallBlock})
"""Blocks that may stand in any message."""

_CORE_SOURCES: Final = frozenset({UserSource, ModelSource, ToolSource, SystemPromptSource})
"""Sources whose kind is what the class says; a producer's may be anything."""


def check_event(event: SessionEvent) -> None:
    """Check what one event can show by itself.

    Raises:
        InvalidEventError: A rule is broken.
        UnsupportedEventError: The event needs a message projection that this build does not have.
    """
    # All fields at once: to read them one by one takes as long as the whole check.
    name, seq, time, data, cited, op, ignorable, opaque = astuple(event)
    if type(seq) is not int or not 0 <= seq <= MAX_SAFE_INT:
        _refuse(event, f"seq must be a non-negative integer, not {seq!r}")
    if type(time) is not int or not -MAX_SAFE_INT <= time <= MAX_SAFE_INT:
        _refuse(event, f"time must be an integer of milliseconds, not {time!r}")
    if ignorable is not False and type(ignorable) is not bool:
        _refuse(event, f"ignorable is true or left out, not {ignorable!r}")
    if opaque is not None:
        _check_opaque(event)
    if name in SURFACE_EVENT_TYPES:
        if op != "append" or cited is not None:
            _check_surface_keys(event)
    elif op is not None or cited is not None:
        _refuse(event, "a log-only event has neither surfaceOp nor sourceEventSeqs")
    if type(data) is RawData:
        _check_raw(event, data)
        return
    if data.type != name:
        _refuse(event, f"its payload is of type {data.type!r}")
    check = PAYLOAD_CHECKS.get(type(data))
    if check is not None:
        check(event, data)


def check_stored_event(event: SessionEvent) -> None:
    """Refuse an intact event that this build may not read past.

    Raises:
        UnsupportedEventError: Required, and of an unknown or retired type.
    """
    if event.ignorable:
        return
    if event.type in RETIRED_SESSION_EVENT_TYPES:
        raise UnsupportedEventError(event.type, event.seq, "the type is retired: import the log")
    if not is_known_event_type(event.type):
        reason = "unknown and required: install the plugin that owns it, or upgrade"
        raise UnsupportedEventError(event.type, event.seq, reason)


def _check_opaque(event: SessionEvent) -> None:
    if not event.ignorable or is_known_event_type(event.type):
        _refuse(event, "only an unknown ignorable event may hold foreign surface keys")


def _check_surface_keys(event: SessionEvent) -> None:
    op, cited = event.surface_op, event.source_event_seqs
    if op is None:
        _refuse(event, "a surface event needs surfaceOp: 'append', or a ReplaceOp")
    if isinstance(op, ReplaceOp):
        for seq in (op.start_seq, op.end_seq):
            if not (is_natural(seq) and seq < event.seq):
                _refuse(event, f"a replacement names earlier seqs, not {seq!r}")
    elif op != "append":
        _refuse(event, f"surfaceOp must be 'append' or a ReplaceOp, not {op!r}")
    if cited is not None:
        _check_cited(event, cited)


def _check_cited(event: SessionEvent, cited: tuple[int, ...]) -> None:
    if event.type == AssistantMessageEvent.type:
        _refuse(event, "an assistant message cites nothing")
    if type(cited) is not tuple or not cited:
        _refuse(event, f"sourceEventSeqs must be a non-empty list, not {cited!r}")
    for seq in cited:
        if not (is_natural(seq) and seq < event.seq):
            _refuse(event, f"sourceEventSeqs name earlier events, not {seq!r}")
    if len(set(cited)) != len(cited):
        _refuse(event, "sourceEventSeqs must be distinct")


def _check_raw(event: SessionEvent, data: RawData) -> None:
    if event.type in SURFACE_EVENT_TYPES:
        _refuse(event, "a surface event needs its payload class")
    if is_projecting_type(event.type):
        _refuse(event, "it changes messages in history, and its data is none that it can have")
    if event.type in MESSAGE_PROJECTION_EVENT_TYPES:
        reason = "it changes messages in history, and no message projection is registered for it"
        raise UnsupportedEventError(event.type, event.seq, reason)
    if event.type == RequestHeaderEvent.type:
        _check_raw_header(event, data.json)


def _check_message(event: SessionEvent, message: Message, role: str) -> None:
    _, name, actual, content, source, _, is_error = astuple(message)
    if type(name) is not str or not name:
        _refuse(event, f"a message needs a non-empty id, not {name!r}")
    if actual != role:
        _refuse(event, f"its message must have role {role!r}, not {actual!r}")
    if type(source) not in _CORE_SOURCES:
        _check_kind(event, source.kind)
    if is_error is not None and type(is_error) is not bool:
        _refuse(event, f"isError must be a boolean, not {is_error!r}")
    if not _ORDINARY_BLOCKS.issuperset(map(type, content)):
        _check_blocks(event, content, role)


def _check_blocks(event: SessionEvent, content: tuple[Block, ...], role: str) -> None:
    for block in content:
        if isinstance(block, OpaqueBlock) and block.type == "tool-result":
            _refuse(event, "the block type 'tool-result' is retired: a tool message holds blocks")
        if role != "developer" and isinstance(block, ToolAdditionBlock | ToolRemovalBlock):
            _refuse(event, f"a {block.type!r} block stands in developer messages only")


def _check_kind(event: SessionEvent, kind: str) -> None:
    if not kind or kind == "plugin":
        why = "is retired: use a kind of the producer's own" if kind else "is missing"
        _refuse(event, f"the kind {kind!r} of its message's source {why}")


def _check_settlement(event: SessionEvent, turn: object, step: object) -> None:
    if type(turn) is int is type(step) and 0 <= turn <= MAX_SAFE_INT and 0 <= step <= MAX_SAFE_INT:
        return
    _refuse(event, f"turn and step must be non-negative integers, not {turn!r} and {step!r}")


def _check_flag(event: SessionEvent, name: str, value: object) -> None:
    if value is not None and value is not True:
        _refuse(event, f"{name} is true or left out, not {value!r}")


def _system(event: SessionEvent, data: SystemMessageEvent) -> None:
    _check_message(event, data.message, "system")
    if not isinstance(data.message.source, SystemPromptSource):
        _refuse(event, "a system message has source 'system-prompt'")


def _developer(event: SessionEvent, data: DeveloperMessageEvent) -> None:
    _check_message(event, data.message, "developer")
    added = False
    for block in data.message.content:
        if not isinstance(block, ToolAdditionBlock | ToolRemovalBlock):
            continue
        if type(block.tool_name) is not str or not block.tool_name:
            _refuse(event, f"a {block.type!r} block needs a non-empty toolName")
        if isinstance(block, ToolAdditionBlock):
            added = True
            if block.extra is not None and "tool" in block.extra:
                _refuse(event, "a tool addition has no definition of its own: headerSeq names it")
    if added != (data.header_seq is not None):
        _refuse(event, "headerSeq is present exactly when the message adds a tool")
    if data.header_seq is not None and not is_natural(data.header_seq):
        _refuse(event, f"headerSeq must be a seq, not {data.header_seq!r}")


def _user(event: SessionEvent, data: UserMessageEvent) -> None:
    _check_message(event, data.message, "user")


def _assistant(event: SessionEvent, data: AssistantMessageEvent) -> None:
    _check_message(event, data.message, "assistant")
    source = data.message.source
    if not isinstance(source, ModelSource) or not source.provider or not source.model:
        _refuse(event, "an assistant message has source 'model' with provider and model")
    _check_settlement(event, data.turn, data.step)


def _attempt(event: SessionEvent, data: AssistantAttempt) -> None:
    _check_settlement(event, data.turn, data.step)


def _tool_result(event: SessionEvent, data: ToolResultEvent) -> None:
    _check_message(event, data.message, "tool")
    source = data.message.source
    if not isinstance(source, ToolSource) or not source.call_id:
        _refuse(event, "a tool message has source 'tool' with a non-empty callId")
    if source.call_id != data.message.tool_call_id:
        _refuse(event, f"toolCallId {data.message.tool_call_id!r} is not {source.call_id!r}")
    if data.error is not None and data.message.is_error is not True:
        _refuse(event, "error needs a message with isError true")


def _request_header(event: SessionEvent, data: RequestHeaderEvent) -> None:
    header = data.header
    if header.extra is not None and "system" in header.extra:
        _refuse(event, "a header has no 'system': the prompt is a system/message")
    if header.tools is not None and not header.tools:
        _refuse(event, "empty tools are left out of a header")
    if not header.config.provider or not header.config.model:
        _refuse(event, "a header needs a non-empty provider and model")
    if header.config.reasoning_effort == "":
        _refuse(event, "reasoningEffort is not empty")
    if data.reason not in ("initial", "resume", "change", "series"):
        _refuse(event, f"reason {data.reason!r} is none of initial, resume, change, series")
    _check_flag(event, "startsSeries", data.starts_series)
    _check_defaults(event, header)


def _check_defaults(event: SessionEvent, header: RequestHeader) -> None:
    marks = header.adapter_defaults
    if marks is None:
        return
    if marks.extra:
        _refuse(event, f"adapterDefaults has no keys {sorted(marks.extra)}")
    if marks.reasoning_effort is None and marks.max_tokens is None:
        _refuse(event, "empty adapterDefaults are left out of a header")
    _check_flag(event, "adapterDefaults.reasoningEffort", marks.reasoning_effort)
    _check_flag(event, "adapterDefaults.maxTokens", marks.max_tokens)
    for name in ("reasoning_effort", "max_tokens"):
        if getattr(marks, name) is not None and getattr(header.config, name) is None:
            _refuse(event, f"adapterDefaults marks {name}, which the config does not have")


def _check_raw_header(event: SessionEvent, data: JsonValue) -> None:
    header = data.get("header") if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping) or not isinstance(header, Mapping):
        _refuse(event, "data and header must be objects")
    if "system" in header:
        _refuse(event, "a header has no 'system': the prompt is a system/message")
    if header.get("tools") == [] or header.get("adapterDefaults") == {}:
        _refuse(event, "empty tools and adapterDefaults are left out of a header")
    config = header.get("config")
    if not isinstance(config, Mapping):
        _refuse(event, "a header needs a config")
    for key in ("provider", "model", "reasoningEffort"):
        value = config.get(key, "absent" if key == "reasoningEffort" else None)
        if not isinstance(value, str) or not value:
            _refuse(event, f"config.{key} must be a non-empty string, not {value!r}")
    if data.get("reason") not in ("initial", "resume", "change", "series"):
        _refuse(event, f"reason {data.get('reason')!r} is none of initial, resume, change, series")
    _check_flag(event, "startsSeries", data.get("startsSeries"))


def _refuse(event: SessionEvent, reason: str) -> NoReturn:
    raise InvalidEventError(reason, event_type=event.type, seq=event.seq)


PayloadCheck = Callable[[SessionEvent, SessionEventData], None]


def _for(cls: type[D], check: Callable[[SessionEvent, D], None]) -> tuple[type, PayloadCheck]:
    return cls, cast("PayloadCheck", check)  # the table is asked by the payload's own class


PAYLOAD_CHECKS: Final[dict[type, PayloadCheck]] = dict(
    (
        _for(SystemMessageEvent, _system),
        _for(DeveloperMessageEvent, _developer),
        _for(UserMessageEvent, _user),
        _for(AssistantMessageEvent, _assistant),
        _for(AssistantAttempt, _attempt),
        _for(ToolResultEvent, _tool_result),
        _for(RequestHeaderEvent, _request_header),
    )
)
"""What is checked of a payload beyond the types of its fields; most need no look."""
